"""A process is killed at every step of its recovery, and frozen: no offset is skipped (KIP-333, points 4 and 5)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess

import pytest

from tests.support.forked import Forked
from tests.support.kafka import QUICK, eventually
from tests.support.recovery import MODE, leave_at, written

STEPS = (
    "assigned", "recovered", "1 of catch-up", "3 of catch-up", "20 of catch-up", "50 of catch-up", "1 of live",
    "12 of live", "a commit is on its way", "commit 1 is answered", "commit 2 is answered", "commit 4 is answered",
    "a range is done",
)  # fmt: skip


def start(place, step="", *, auto_commit, name=None, end=0, **more):
    settings = {
        **QUICK, **MODE, "bootstrap_servers": place.cluster.bootstrap_servers, "group_id": place.group,
        "group_instance_id": name, "enable_auto_commit": auto_commit, "auto_commit_interval_ms": 5,
        "max_poll_records": 5, **more,
    }  # fmt: skip
    given = json.dumps({"settings": settings, "topic": place.topic, "step": step, "end": end})
    return Forked("tests.support.lane_process", given, stdout=subprocess.PIPE)


async def outcome(process, within_s=120):
    """The offsets that it processed, and how it ended. Only what hangs takes so long, also on a busy machine."""

    def read():
        with process.stdout as said:
            return said.read().decode(), process.wait()

    try:
        async with asyncio.timeout(within_s):
            text, code = await asyncio.to_thread(read)
    finally:
        process.kill()
    return [int(line) for line in text.splitlines() if not line.startswith("#")], code


@pytest.mark.parametrize("auto_commit", [True, False], ids=["auto-commit", "commit"])
@pytest.mark.parametrize("step", STEPS)
async def test_4_a_process_that_is_killed_at_any_step_skips_nothing(make_place, step, auto_commit):
    if "on its way" in step and auto_commit:
        auto_commit = False  # only an explicit commit can be caught there
    place, processed, end = make_place(), [], 120
    await leave_at(place, committed=70, end=end)
    for _ in range(2):  # the second finds what the first has left
        await place.produce(range(end, end + 60))  # however fast it starts, there are 50 records to catch up with
        end += 60
        process = start(place, step, auto_commit=auto_commit, name="one")
        dying = asyncio.create_task(outcome(process))
        while not dying.done():
            await place.produce(range(end, end + 12))
            end += 12
            await asyncio.wait([dying], timeout=0.2)
        offsets, code = await dying
        assert code == -signal.SIGKILL
        processed += offsets
    last, code = await outcome(start(place, auto_commit=auto_commit, name="one", end=end))
    assert code == 0
    assert set(processed + last) == set(range(70, end))
    assert await written(place) == (end, "")


async def test_5_a_frozen_process_that_comes_back_changes_nothing(make_place):
    place, end = make_place(), 1_000
    await leave_at(place, committed=70, end=end)
    frozen = start(place, auto_commit=True, end=end + 5, max_poll_records=1)  # the other one does not end it
    said: list[int] = []

    async def listen():
        while line := await asyncio.to_thread(frozen.stdout.readline):
            said.append(int(line))

    listening = asyncio.create_task(listen())
    try:
        await eventually(lambda: len(said) >= 100)
        frozen.send_signal(signal.SIGSTOP)
        last, code = await outcome(start(place, auto_commit=True, end=end))
        assert code == 0
        assert await written(place) == (end, "")
        await place.produce(range(end, end + 5))
        before = list(said)  # all that it wrote until it was frozen has long come
        frozen.send_signal(signal.SIGCONT)
        # What it held is refused; it joins again and reads on where the other one was.
        await eventually(lambda: end + 4 in said, 30)
        assert set(before + last) >= set(range(70, end))
        await eventually(lambda: place.committed_is(end + 5))
    finally:
        frozen.kill()
        await asyncio.to_thread(frozen.wait)
        await listening
        frozen.stdout.close()
