"""One member of the demo's group: a process that may be killed at any moment.

Each processed record is in its report, a file, before it asks for the next record: `write` hands the line to the
operating system, so not even SIGKILL loses it. It ends when its standard input is closed, by the demo or by the demo's
end.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Set

from aiogroup import Consumer, Record, TopicPartition

SESSION_TIMEOUT_MS = 6_000
"""The least that brokers allow by default. After this time the group notices a killed member."""


class Report:
    """Lines of `word partition offset nanoseconds`."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, word: str, partition: int, offset: int = -1) -> None:
        os.write(self._file, f"{word} {partition} {offset} {time.monotonic_ns()}\n".encode())

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        for tp in assigned:
            self.write("assigned", tp.partition)

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        for tp in revoked:
            self.write("revoked", tp.partition)


async def process(record: Record, report: Report, rest_ms: int) -> None:
    """The work: note the record, and rest a moment now and then, so that a kill comes in the middle of it."""
    report.write("processed", record.partition, record.offset)
    if record.offset % 50 == 49:
        await asyncio.sleep(rest_ms / 1000)


async def consume(consumer: Consumer, report: Report, rest_ms: int) -> None:
    async with consumer:
        async for record in consumer:
            await process(record, report, rest_ms)


async def run(options: argparse.Namespace) -> None:
    report = Report(options.report)
    consumer = Consumer(
        bootstrap_servers=options.servers,
        group_id=options.group,
        client_id=options.name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=500,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([options.topic], listener=report)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    work = asyncio.create_task(consume(consumer, report, options.rest_ms))
    end = asyncio.create_task(ended.wait())
    await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        await consumer.stop(timeout_ms=5_000)
    end.cancel()
    await work


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("name", "servers", "group", "topic", "report"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--rest-ms", type=int, required=True)
    asyncio.run(run(parser.parse_args()))
