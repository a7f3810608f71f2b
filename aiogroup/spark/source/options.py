"""The options of the data sources: which group, which topics, how large the tasks are; and Kafka's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from aiogroup._command.properties import consumer_settings
from aiogroup.errors import ConfigError
from aiogroup.spark.access import Access, cluster_of

__all__ = ["Wanted"]

GROUP: Final = "group"
TOPICS: Final = "topics"
CATCHUP_GROUP: Final = "catchup.group"
CONFIG_FILE: Final = "command.config"
TASK_RECORDS: Final = "task.records"
OWN: Final = (GROUP, TOPICS, CATCHUP_GROUP, CONFIG_FILE, TASK_RECORDS)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options ask for.

    The file of `command.config` is read where the data source runs, on the driver and on each executor. So its contents
    are not part of any plan.
    """

    options: Mapping[str, str]
    task_records: int | None

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
                f"option {unknown[0]!r} is not known: {', '.join(OWN)} are, and the settings of a Kafka consumer"
            )
        text = given.get(TASK_RECORDS)
        if text is not None and (not text.isdecimal() or int(text) < 1):
            raise ConfigError(f"option {TASK_RECORDS!r}: {text!r} is no number of at least 1")
        wanted = cls(given, None if text is None else int(text))
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
