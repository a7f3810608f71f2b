"""A member as a process of its own, to be killed. It appends a JSON line for each event to a file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.forked import Forked


class MemberProcess:
    """`settings` go to `Consumer`; `hold_first` makes it keep the first record in hand for good.

    With `batches` it reads by `getmany`, else by `async for`. It writes `got` when records are handed out and `record`
    when one is processed, which takes `work_ms`. `block_ms` is how long its first record `block` blocks the event loop,
    and `events` a folder for an event log.
    """

    def __init__(self, path, cluster, group, topic, **settings):
        self.path = path
        options = {
            "path": str(path),
            "topic": topic,
            "hold_first": settings.pop("hold_first", False),
            "batches": settings.pop("batches", False),
            "work_ms": settings.pop("work_ms", 0),
            "block_ms": settings.pop("block_ms", 0),
            "events": settings.pop("events", None),
            "settings": {
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": group,
                "auto_offset_reset": "earliest",
                "retry_backoff_ms": 50,
                **settings,
            },
        }
        path.touch()
        self._errors = path.with_suffix(".err")
        with self._errors.open("wb") as errors:
            self.process = Forked("tests.support.member_process", json.dumps(options), stdout=errors, stderr=errors)

    def kill(self):
        """SIGKILL: the process writes, commits and sends nothing more."""
        self.process.kill()
        self.process.wait()

    @property
    def takes_signals(self):
        """Whether Python is up and handles SIGTERM."""
        return bool(self.lines())

    def stop(self):
        """SIGTERM: the member stops in order."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds):
        return self.process.wait(seconds)

    @property
    def is_alive(self):
        return self.process.poll() is None

    def lines(self):
        """The lines that it wrote. A line that SIGKILL cut off is ignored."""
        return [json.loads(line) for line in self.path.read_bytes().split(b"\n")[:-1]]

    def assigned(self):
        """The partitions of its last assignment."""
        return next((line["assigned"] for line in reversed(self.lines()) if "assigned" in line), [])

    def records(self):
        """(partition, offset) in the order in which they were processed."""
        return [tuple(line["record"]) for line in self.lines() if "record" in line]

    def errors(self):
        return self._errors.read_text(errors="replace")


@asynccontextmanager
async def spawned(path, cluster, group, topic, **settings):
    """A member process, which is killed at the end if it still lives."""
    process = MemberProcess(path, cluster, group, topic, **settings)
    try:
        yield process
    finally:
        process.kill()


class _Listener:
    def __init__(self, write):
        self._write = write

    def on_partitions_assigned(self, partitions):
        self._write(assigned=sorted(tp.partition for tp in partitions))

    def on_partitions_revoked(self, partitions):
        self._write(revoked=sorted(tp.partition for tp in partitions))

    def on_partitions_lost(self, partitions):
        self._write(lost=sorted(tp.partition for tp in partitions))


async def _work(consumer, options, write):
    """The application: some work, then a line for each record that is processed."""

    async def work(record):
        if record.value == b"block":
            time.sleep(options["block_ms"] / 1000)  # noqa: ASYNC251 (that is the fault)
            options["block_ms"] = 0
        if options["work_ms"]:
            await asyncio.sleep(options["work_ms"] / 1000)
        write(record=(record.partition, record.offset))
        if options["hold_first"]:
            await asyncio.Event().wait()

    def got(*records):
        write(got=[(record.partition, record.offset) for record in records])

    if options["batches"]:
        while True:
            batch = await consumer.getmany(timeout_ms=500)
            got(*batch.all())
            for record in batch.all():
                await work(record)
    async for record in consumer:
        got(record)
        await work(record)


async def _main(options):
    from aiogroup import Consumer, ConsumerStoppedError
    from aiogroup.eventlog import EventLog

    with Path(options["path"]).open("ab", buffering=0) as out:  # noqa: ASYNC230 (on disk before the record counts)

        def write(**line):
            out.write(json.dumps(line).encode() + b"\n")

        log = EventLog(options["events"], interval_ms=200) if options["events"] else None
        given = {**options["settings"], **({"observers": [log]} if log else {})}
        consumer = Consumer(options["topic"], listener=_Listener(write), **given)
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

        async def stop():
            await stopped.wait()
            await consumer.stop()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stop())
            write(starts=True)
            with contextlib.suppress(ConsumerStoppedError):
                await consumer.start()
                await _work(consumer, options, write)
        if log is not None:
            await log.close()
        write(stopped=True)


if __name__ == "__main__":
    asyncio.run(_main(json.loads(sys.argv[1])))
