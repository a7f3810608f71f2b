"""The options of the data sources: which group, which topics, how large the tasks are; and Kafka's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from aiogroup.errors import ConfigError
from aiogroup.properties import consumer_settings
from aiogroup.spark.access import Access, cluster_of
from aiogroup.spark.slices import Piece, pieces_of
from aiogroup.structs import TopicPartition

__all__ = ["CONFIG_FILE", "RANGES", "TASK_RECORDS", "WITH_HELD", "Wanted", "ranges_as_text"]

GROUP: Final = "group"
TOPICS: Final = "topics"
CATCHUP_GROUP: Final = "catchup.group"
CONFIG_FILE: Final = "command.config"
TASK_RECORDS: Final = "task.records"
RANGES: Final = "ranges"
WITH_HELD: Final = "with.held"
OWN: Final = (GROUP, TOPICS, CATCHUP_GROUP, CONFIG_FILE, TASK_RECORDS, RANGES, WITH_HELD)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options ask for. Without `pieces` it is what is pending when an action begins.

    The file of `command.config` is read where the data source runs, on the driver and on each executor, so what it
    says is not part of any plan.
    """

    options: Mapping[str, str]
    pieces: tuple[Piece, ...] | None
    task_records: int | None
    with_held: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Check the options.

        Raises:
            ConfigError: one is missing, unknown, or not valid.
        """
        given = {key.lower(): value for key, value in options.items()}
        for name in (GROUP, TOPICS):
            if not given.get(name):
                raise ConfigError(f"option {name!r} is missing: .option({name!r}, ...)")
        settings = {key: value for key, value in given.items() if key not in OWN}
        _, unknown = consumer_settings(settings)
        if unknown:
            raise ConfigError(
                f"option {unknown[0]!r} is not known: {', '.join(OWN[:-1])} are, and the settings of a Kafka consumer"
            )
        text = given.get(TASK_RECORDS)
        if text is not None and (not text.isdecimal() or int(text) < 1):
            raise ConfigError(f"option {TASK_RECORDS!r}: {text!r} is no number of at least 1")
        wanted = cls(
            given,
            _pieces(given[RANGES]) if RANGES in given else None,
            None if text is None else int(text),
            given.get(WITH_HELD) == "true",
        )
        wanted.access()
        return wanted

    def access(self, isolation_level: str | None = None) -> Access:
        """How the cluster is reached from this process.

        Raises:
            ConfigError: an option is not valid. OSError: the file cannot be read.
        """
        options = self.options
        path = options.get(CONFIG_FILE)
        servers, properties = cluster_of(options.get("bootstrap.servers"), None if path is None else Path(path))
        named = {key: value for key, value in options.items() if key not in OWN and key != "bootstrap.servers"}
        topics = [each.strip() for each in options[TOPICS].split(",") if each.strip()]
        access = Access.of(
            servers, options[GROUP], topics, {**properties, **named}, catchup_group_id=options.get(CATCHUP_GROUP)
        )
        return access if isolation_level is None else access.at(isolation_level)


def _pieces(text: str) -> tuple[Piece, ...]:
    """The ranges that `ranges_as_text` wrote.

    Raises:
        ConfigError: it is something else.
    """
    try:
        ranges = {
            TopicPartition(topic, int(number)): [(int(start), int(end)) for start, end in of_tp]
            for topic, by_number in json.loads(text).items()
            for number, of_tp in by_number.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'option {RANGES!r}: {{"topic": {{"0": [[start, end], ...]}}}} is needed, not {text!r:.100}'
        ) from error
    pieces = pieces_of(ranges)
    if not all(0 <= each.start < each.end for each in pieces):
        raise ConfigError(f"option {RANGES!r}: each range needs 0 <= start < end")
    return pieces


def ranges_as_text(pieces: tuple[Piece, ...]) -> str:
    """The value of the option `ranges`."""
    by_topic: dict[str, dict[str, list[list[int]]]] = {}
    for each in pieces:
        by_topic.setdefault(each.tp.topic, {}).setdefault(str(each.tp.partition), []).append([each.start, each.end])
    return json.dumps(by_topic, separators=(",", ":"))
