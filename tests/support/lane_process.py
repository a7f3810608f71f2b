"""A process that reads a topic in both lanes and kills itself at a named step: `python -m tests.support.lane_process`.

Arguments as JSON: `settings`, `topic`, `step`, `end`. It writes the offset of every record that it has processed, and a
line that begins with `#` for each event that it noticed. Without a step it ends when everything below `end` is
committed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from aiogroup import Consumer, TopicPartition
from aiogroup._core.telemetry import events


def die(why):
    os.write(1, f"# {why}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Kills the process at one step of its life."""

    def __init__(self, step):
        self.step = step
        self.lanes = {"live": 0, "catch-up": 0}
        self.commits_count = 0

    def at(self, step):
        if step == self.step:
            die(step)

    def on_event(self, event):
        if isinstance(event, events.OffsetsCommitted):
            self.commits_count += 1
            self.at(f"commit {self.commits_count} is answered")
        if isinstance(event, events.RangeDone):
            self.at("a range is done")
        if isinstance(event, events.CatchUpStarted):
            self.at("recovered")

    def note(self, record):
        os.write(1, f"{record.offset}\n".encode())
        self.lanes[record.lane] += 1
        self.at(f"{self.lanes[record.lane]} of {record.lane}")


async def main(settings, topic, step, end):
    steps = Steps(step)
    async with Consumer(topic, observers=[steps], **settings) as consumer:
        steps.at("assigned")
        tp = TopicPartition(topic, 0)
        while True:
            batch = await consumer.poll(200)
            for record in batch.all():
                steps.note(record)
            if not settings["enable_auto_commit"] and batch.count:
                committing = asyncio.ensure_future(consumer.commit())
                for _ in range(3):
                    await asyncio.sleep(0)
                steps.at("a commit is on its way")
                await committing
            if not batch.count and await consumer.committed(tp) == end:
                return


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
