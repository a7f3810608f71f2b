"""The producer of Kafka's system tests (VerifiableProducer.java), on aiokafka's: sends numbers and prints the acks."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from aiokafka.partitioner import DefaultPartitioner

from aiogroup._command.properties import producer_settings
from aiogroup._runtime.loop.clock import now_ms, sleep_ms, wall_ms
from aiogroup.errors import AiogroupError
from aiogroup.verifiable.process import Arguments, Interrupt, Output, keep_trying, read_config, run

__all__ = ["VerifiableProducer", "main"]

_log = logging.getLogger("aiogroup.verifiable")

TURN_COUNT: Final = 64
"""How many records are sent before the loop runs: sending into a batch that is not full awaits nothing."""
FOREVER_MS: Final = 24 * 3_600_000


class VerifiableProducer:
    """Sends 0, 1, 2, ... and prints the result of each; ends when asked to, or after `max_messages`."""

    def __init__(self, settings: Mapping[str, object], options: argparse.Namespace) -> None:
        self._settings = settings
        self._topic: str = options.topic
        self._throughput: int = options.throughput
        self._prefix = "" if options.value_prefix is None else f"{options.value_prefix}."
        self._numbers = iter(range(options.max_messages)) if options.max_messages >= 0 else itertools.count()
        self._keys: Iterator[str | None] = itertools.repeat(None)
        if options.repeating_keys is not None:
            self._keys = itertools.cycle(map(str, range(max(1, options.repeating_keys))))
        self._create_time: int | None = None if options.message_create_time == -1 else options.message_create_time
        self._open: dict[asyncio.Future[Any], tuple[str | None, str, int | None]] = {}
        self._is_answered = settings["acks"] != 0
        self._choose: Any = DefaultPartitioner()
        self._sent_count = 0
        self._acked_count = 0
        self._output: Output

    async def run(self, output: Output, interrupt: Interrupt) -> None:
        """From startup_complete to tool_data, whatever happens in between."""
        self._output, started_at_ms = output, now_ms()
        producer: Any = AIOKafkaProducer(**self._settings)  # type: ignore[no-untyped-call]
        output.emit("startup_complete")
        try:
            await interrupt.until_asked(partial(keep_trying, producer.start, KafkaConnectionError))
            await self._send_all(producer, interrupt, started_at_ms)
        except Exception:  # noqa: BLE001 (as in Java: logged, and the end is orderly)
            _log.exception("ends because of an error")
        finally:
            await producer.stop()
            for future in [each for each in self._open if each.done()]:
                self._settle(future)
            output.emit("shutdown_complete")
            passed_ms = max(1, now_ms() - started_at_ms)
            output.emit(
                "tool_data",
                sent=self._sent_count,
                acked=self._acked_count,
                target_throughput=self._throughput,
                avg_throughput=1000 * self._acked_count / passed_ms,
            )

    async def _send_all(
        self,
        producer: Any,  # noqa: ANN401 (aiokafka has no annotations)
        interrupt: Interrupt,
        started_at_ms: int,
    ) -> None:
        epoch_ms = wall_ms()
        for number in self._numbers:
            if interrupt.is_asked:
                return
            await interrupt.until_asked(self._output.room)
            await interrupt.until_asked(partial(self._send, producer, next(self._keys), f"{self._prefix}{number}"))
            if self._create_time is not None:
                self._create_time += wall_ms() - epoch_ms  # as in Java, where the steps grow
            if number % TURN_COUNT == 0:
                await asyncio.sleep(0)
            if self._throughput >= 0:
                due_at_ms = started_at_ms + (number + 1) * 1000 // self._throughput if self._throughput else None
                wait_ms = FOREVER_MS if due_at_ms is None else due_at_ms - now_ms()
                if wait_ms > 0:
                    await interrupt.until_asked(partial(sleep_ms, wait_ms))

    async def _send(
        self,
        producer: Any,  # noqa: ANN401 (aiokafka has no annotations)
        key: str | None,
        value: str,
    ) -> None:
        data = None if key is None else key.encode()
        self._sent_count += 1
        try:
            partition = await self._partition(producer, data)
            future = await producer.send(
                self._topic, value.encode(), key=data, partition=partition, timestamp_ms=self._create_time
            )
        except asyncio.CancelledError:
            self._sent_count -= 1  # it was still waiting for space in a batch
            raise
        except Exception as error:  # noqa: BLE001 (every error is printed)
            self._tell_error(key, value, error)
        else:
            self._open[future] = (key, value, partition)
            future.add_done_callback(self._settle)

    async def _partition(self, producer: Any, key: bytes | None) -> int | None:  # noqa: ANN401
        """The partition for a record. Without acks aiokafka does not report the partition, so it is chosen here."""
        if self._is_answered:
            return None
        partitions = sorted(await producer.partitions_for(self._topic))
        return int(self._choose(key, partitions, partitions))

    def _settle(self, future: asyncio.Future[Any]) -> None:
        waiting = self._open.pop(future, None)
        if waiting is None:
            return
        key, value, partition = waiting
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self._tell_error(key, value, error)
            return
        self._acked_count += 1
        where = future.result()
        self._output.emit(
            "producer_send_success",
            key=key,
            value=value,
            partition=partition if where is None else where.partition,
            offset=-1 if where is None else where.offset,
            topic=self._topic,
        )

    def _tell_error(self, key: str | None, value: str, error: BaseException) -> None:
        kind = f"class {type(error).__module__}.{type(error).__qualname__}"
        self._output.emit(
            "producer_send_error", key=key, value=value, topic=self._topic, exception=kind, message=str(error)
        )


def _parser() -> Arguments:
    parser = Arguments(prog="python -m aiogroup.verifiable producer", allow_abbrev=False, description=__doc__)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--bootstrap-server", "--broker-list", required=True, metavar="HOST:PORT[,...]")
    parser.add_argument("--max-messages", type=int, default=-1, help="end after this number; -1: never")
    parser.add_argument("--throughput", type=int, default=-1, help="records per second, about; -1: no limit")
    parser.add_argument("--acks", type=int, default=-1, choices=(0, 1, -1))
    parser.add_argument("--command-config", "--producer.config", metavar="FILE", help="a Java properties file")
    parser.add_argument("--message-create-time", type=int, default=-1, metavar="MS", help="of the first record")
    parser.add_argument("--value-prefix", type=int, help="put before each value, with a dot")
    parser.add_argument("--repeating-keys", type=int, help="keys count from 0 up to this, then from 0 again")
    return parser


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """The command line's settings, overridden by those of the file, as in VerifiableProducer.java."""
    settings, ignored = producer_settings(read_config(options.command_config))
    if ignored:
        _log.warning("these properties mean nothing here: %s", ", ".join(ignored))
    arguments = {
        "bootstrap_servers": options.bootstrap_server,
        "client_id": "aiogroup-verifiable",
        "acks": "all" if options.acks == -1 else options.acks,
    }
    return arguments | settings


def main(arguments: list[str]) -> int:
    """The exit code."""
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return 0
    options = parser.parse_args(arguments)
    try:
        settings = _settings(options)
    except AiogroupError as error:
        parser.error(str(error))
    return run(VerifiableProducer(settings, options).run)
