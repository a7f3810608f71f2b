"""The consumer of Kafka's system tests (VerifiableConsumer.java): every event of its life as a line of JSON."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from aiogroup._command.properties import assignors_of, check_group_protocol, consumer_settings
from aiogroup._runtime.loop.clock import wall_ms
from aiogroup.config import ConsumerConfig
from aiogroup.consumer import Consumer
from aiogroup.errors import AiogroupError, ConfigError, ConnectionLostError, FencedInstanceIdError
from aiogroup.records import Record, Records
from aiogroup.structs import TopicPartition
from aiogroup.verifiable.process import Arguments, Interrupt, Output, keep_trying, read_config, run

__all__ = ["VerifiableConsumer", "main"]

_log = logging.getLogger("aiogroup.verifiable")

WRITTEN_MS: Final = 1_000
"""How long to wait for a reader that reads nothing. After that the order of the lines is given up, as otherwise the
group's rebalance, which waits for the records in hand, would not end.
"""


class VerifiableConsumer:
    """Polls, prints, commits and prints, until it is asked to end, has read `max_messages`, or meets an error.

    The contract's order is `records_consumed`, `offsets_committed`, and only then `partitions_revoked`. A rebalance may
    go on as soon as the commit is answered, before the loop has printed it. So callbacks that run while a batch is
    being printed are kept, with their time, and printed after the batch. Nothing waits for that, so it cannot hang.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: str, *, max_messages: int, verbose: bool, commits: bool
    ) -> None:
        self._consumer = Consumer(topic, listener=self, **settings)
        self._left: int | None = max_messages if max_messages >= 0 else None
        self._verbose = verbose
        self._commits = commits
        self._is_telling = False
        self._kept: list[tuple[int, str, list[dict[str, object]]]] = []
        self._output: Output

    async def run(self, output: Output, interrupt: Interrupt) -> None:
        """From startup_complete to shutdown_complete, whatever happens in between."""
        self._output = output
        interrupt.on_ask = lambda: output.emit("shutdown_requested")
        output.emit("startup_complete")
        try:
            await interrupt.until_asked(lambda: keep_trying(self._consumer.start, ConnectionLostError))
            while self._left != 0 and not interrupt.is_asked:
                # No record is in hand here: a slow reader stops this loop, but neither heartbeats nor rebalances.
                await interrupt.until_asked(output.room)
                records = await interrupt.until_asked(self._poll)
                if records is not None:
                    await self._tell_batch(records)
        except Exception:  # noqa: BLE001 (as in Java: logged, and the end is orderly)
            _log.exception("ends because of an error")
        finally:
            report = await self._consumer.stop()
            if not report.is_clean:
                _log.warning("not everything could be done: %s", report)
            output.emit("shutdown_complete")

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        self._tell_partitions("partitions_assigned", assigned)

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """Print lost partitions as revoked ones, as Java's listener does."""
        self._tell_partitions("partitions_revoked", revoked)

    async def _poll(self) -> Records:
        most = self._consumer.config.max_poll_records
        counts = [count for count in (most, self._left) if count is not None]
        return await self._consumer.poll(max_records=min(counts, default=None))

    async def _tell_batch(self, records: Records) -> None:
        self._is_telling = True
        try:
            if self._verbose:
                for record in records.all():
                    self._output.emit("record_data", **_data(record))
            self._output.emit("records_consumed", count=records.count, partitions=_summary(records))
            if self._left is not None:
                self._left -= records.count
            # Otherwise a kill between a commit and its line would leave committed records that were never reported.
            await self._output.written(WRITTEN_MS)
            if self._commits:
                await self._commit({tp: batch[-1].offset + 1 for tp, batch in records.items()})
            else:
                await self._consumer.skip()  # printed records are processed, and may be committed at the end
        finally:
            self._is_telling = False
            kept, self._kept = self._kept, []
            for at_ms, name, partitions in kept:
                self._output.emit_at(at_ms, name, partitions=partitions)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        listed = [{**_named(tp), "offset": offset} for tp, offset in offsets.items()]
        try:
            await self._consumer.commit(dict(offsets))
        except FencedInstanceIdError:
            raise
        except AiogroupError as error:
            self._output.emit("offsets_committed", offsets=listed, error=str(error), success=False)
        else:
            self._output.emit("offsets_committed", offsets=listed, success=True)

    def _tell_partitions(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        listed = [_named(tp) for tp in sorted(partitions)]
        if self._is_telling:
            self._kept.append((wall_ms(), name, listed))
        else:
            self._output.emit(name, partitions=listed)


def _named(tp: TopicPartition) -> dict[str, object]:
    return {"topic": tp.topic, "partition": tp.partition}


def _summary(records: Records) -> list[dict[str, object]]:
    return [
        {**_named(tp), "count": len(batch), "minOffset": batch[0].offset, "maxOffset": batch[-1].offset}
        for tp, batch in records.items()
    ]


def _data(record: Record) -> dict[str, object]:
    texts = {"key": _text(record.key), "value": _text(record.value)}
    return {**texts, "topic": record.topic, "partition": record.partition, "offset": record.offset}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")  # StringDeserializer replaces too


def _parser() -> Arguments:
    parser = Arguments(prog="python -m aiogroup.verifiable consumer", allow_abbrev=False, description=__doc__)
    parser.add_argument("--bootstrap-server", "--broker-list", required=True, metavar="HOST:PORT[,...]")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-id", required=True)
    parser.add_argument("--group-instance-id", help="the static name of the member")
    parser.add_argument("--group-protocol", default="classic", help="classic is the only one")
    parser.add_argument("--group-remote-assignor", help="has no meaning with the classic protocol")
    parser.add_argument("--max-messages", type=int, default=-1, help="end after this number; -1: never")
    parser.add_argument("--session-timeout", type=int, default=30_000, metavar="MS")
    parser.add_argument("--verbose", action="store_true", help="print every record")
    parser.add_argument("--enable-autocommit", action="store_true")
    parser.add_argument("--reset-policy", default="earliest", help="earliest, latest or none")
    parser.add_argument("--assignment-strategy", default="org.apache.kafka.clients.consumer.RangeAssignor")
    parser.add_argument("--command-config", "--consumer.config", metavar="FILE", help="a Java properties file")
    return parser


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The file's settings, overridden by those of the command line; asking for a topic may create it, as in Java by
    default.
    """
    check_group_protocol(options.group_protocol)
    read, ignored = consumer_settings(read_config(options.command_config))
    if ignored:
        _log.warning("these properties mean nothing here: %s", ", ".join(ignored))
    settings: dict[str, Any] = {"client_id": "aiogroup-verifiable", "allow_auto_create_topics": True, **read}
    settings |= {
        "bootstrap_servers": options.bootstrap_server,
        "group_id": options.group_id,
        "session_timeout_ms": options.session_timeout,
        "enable_auto_commit": options.enable_autocommit,
        "auto_offset_reset": options.reset_policy,
        "partition_assignment_strategy": assignors_of(options.assignment_strategy),
    }
    if options.group_instance_id:
        settings["group_instance_id"] = options.group_instance_id
    ConsumerConfig.of(**settings)
    return settings


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return 0
    options = parser.parse_args(arguments)
    try:
        settings = _settings(options)
        tool = VerifiableConsumer(
            settings,
            options.topic,
            max_messages=options.max_messages,
            verbose=options.verbose,
            commits=not options.enable_autocommit,
        )
    except (ConfigError, AiogroupError) as error:
        parser.error(str(error))
    return run(tool.run)
