"""The order of a verifiable consumer's lines when a rebalance is faster than the loop, and lines that nobody takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os

import pytest

from aiogroup import Records, TopicPartition
from aiogroup._runtime.shutdown import StopReport
from aiogroup.errors import CommitFailedError, FencedInstanceIdError
from aiogroup.records import Record
from aiogroup.verifiable import consumer as tool
from aiogroup.verifiable.process import Interrupt, Output
from tests.support.contract import Group, Member

TP = TopicPartition("t", 0)


class Lines:
    """An output that keeps what it gets, as lines."""

    def __init__(self):
        self.lines = []
        self.written_count = 0

    def emit(self, name, **fields):
        self.emit_at(1, name, **fields)

    def emit_at(self, timestamp, name, **fields):
        self.lines.append(json.dumps({"timestamp": timestamp, "name": name, **fields}))

    async def room(self):
        pass

    async def written(self, _timeout):
        self.written_count = len(self.lines)

    @property
    def names(self):
        return [json.loads(line)["name"] for line in self.lines]


class Rebalancing:
    """A consumer whose partitions are revoked, and assigned again, while a commit is answered."""

    refusal = None
    at_commit = staticmethod(lambda: None)

    def __init__(self, _topic, *, listener, **_settings):
        self._listener = listener
        self._next = 0
        self.config = tool.ConsumerConfig.of(group_id="g")

    async def start(self):
        self._listener.on_partitions_assigned({TP})

    async def poll(self, max_records):
        first, self._next = self._next, self._next + max_records
        batch = [Record(TP, at, 0, 0, None, b"v", ()) for at in range(first, self._next)]
        return Records({TP: batch}, {})

    async def skip(self):
        self.at_commit()

    async def commit(self, _offsets):
        self.at_commit()
        self._listener.on_partitions_revoked({TP})
        self._listener.on_partitions_assigned({TP})
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal

    async def stop(self):
        self._listener.on_partitions_revoked({TP})
        return StopReport()


async def told(monkeypatch, refusal=None):
    monkeypatch.setattr(tool, "Consumer", Rebalancing)
    monkeypatch.setattr(Rebalancing, "refusal", refusal)
    lines = Lines()
    verifiable = tool.VerifiableConsumer({}, "t", max_messages=3, verbose=True, commits=True)
    await verifiable.run(lines, Interrupt())
    judged = Member(Group())
    for line in lines.lines:
        judged.feed(line)
    return lines.names


async def test_a_commit_is_reported_before_the_revocation_that_overtook_it(monkeypatch):
    names = await told(monkeypatch)
    assert names[-6:] == [
        "records_consumed",
        "offsets_committed",
        "partitions_revoked",
        "partitions_assigned",
        "partitions_revoked",
        "shutdown_complete",
    ]


async def test_a_refused_commit_is_reported_and_not_the_end(monkeypatch):
    names = await told(monkeypatch, CommitFailedError("late", not_owned=frozenset({TP}), committed={}))
    assert names.count("offsets_committed") == 1
    assert names[-1] == "shutdown_complete"


async def test_a_fenced_one_ends_at_once(monkeypatch):
    monkeypatch.setattr(Member, "settled", lambda *_: None)  # there is no commit to tell of
    names = await told(monkeypatch, FencedInstanceIdError("another has the name"))
    assert "offsets_committed" not in names
    assert names[-1] == "shutdown_complete"


@pytest.mark.parametrize("commits", [True, False], ids=["explicit commits", "auto-commit"])
async def test_nothing_is_committed_before_the_reader_has_it(monkeypatch, commits):
    """Else a SIGKILL in between leaves records that nobody reads again and nobody was told of."""
    lines, written = Lines(), []
    monkeypatch.setattr(tool, "Consumer", Rebalancing)
    monkeypatch.setattr(Rebalancing, "at_commit", lambda _: written.append(lines.names[: lines.written_count][-1]))
    await tool.VerifiableConsumer({}, "t", max_messages=3, verbose=True, commits=commits).run(lines, Interrupt())
    assert written == ["records_consumed"]


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def read_lines(descriptor, count):
    with open(descriptor, "rb", closefd=False) as file:
        return [json.loads(file.readline()) for _ in range(count)]


async def test_a_slow_reader_stops_who_waits_for_room_and_nobody_else(pipe):
    reader, writer = pipe
    output = Output(lambda: None, descriptor=writer, limit_bytes=100_000)
    for number in range(400):
        output.emit("line", number=number, padding="x" * 1_000)  # more than a pipe holds
    waiting = asyncio.ensure_future(output.room())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    lines = await asyncio.to_thread(read_lines, reader, 400)
    await waiting
    output.close()
    assert [line["number"] for line in lines] == list(range(400))


async def test_what_is_written_is_with_the_reader(pipe):
    reader, writer = pipe
    output = Output(lambda: None, descriptor=writer)
    output.emit("line", padding="x" * 100_000)  # more than a pipe holds
    assert not await output.written(20)
    waiting = asyncio.ensure_future(output.written(30_000))
    await asyncio.to_thread(read_lines, reader, 1)
    assert await waiting
    output.close()


async def test_a_reader_that_is_gone_is_reported_once(pipe):
    reader, writer = pipe
    gone = asyncio.Event()
    output = Output(gone.set, descriptor=writer, limit_bytes=10)
    os.close(reader)
    output.emit("line")
    await gone.wait()
    output.emit("another")
    await output.room()
    output.close()


async def test_what_nobody_takes_does_not_hold_up_the_end(pipe):
    output = Output(lambda: None, descriptor=pipe[1])
    for _ in range(400):
        output.emit("line", padding="x" * 1_000)
    output.close(seconds=0.01)
    await asyncio.to_thread(read_lines, pipe[0], 400)
    output.close()


async def test_an_end_that_is_asked_for_cuts_waiting_short_and_nothing_else():
    interrupt = Interrupt()
    never = asyncio.Event()
    asyncio.get_running_loop().call_soon(interrupt.ask, 15)
    assert await interrupt.until_asked(never.wait) is None
    assert (interrupt.exit_code, interrupt.is_asked) == (143, True)
    assert await interrupt.until_asked(never.wait) is None
    assert asyncio.current_task().cancelling() == 0  # what comes after it is not cancelled
