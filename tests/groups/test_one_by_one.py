"""Records that come one by one: each is taken in the step that reads its answer, and no task runs for that."""

from __future__ import annotations

import asyncio

from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.telemetry import events
from tests.groups.scripted import sleep_ms
from tests.support.group_members import until


async def reads_one_by_one(group, count=5, pause_ms=20, **settings):
    (member,) = await group.joined("m", **settings)
    for _ in range(count):
        await come(group, member)
        await sleep_ms(pause_ms)
    return member


async def come(group, member):
    """One record is made, and read."""
    before = member.count("record")
    group.produce(0)
    await until(lambda: member.count("record") == before + 1, what=member.tail)


def sleepers():
    """What each task of the fetchers waits for."""
    waited_for = {}
    for task in asyncio.all_tasks():
        name = task.get_name()
        if name.startswith("aiogroup fetcher"):
            inner = task.get_coro()
            while (deeper := getattr(inner, "cr_await", None)) is not None:
                inner = deeper
            waited_for[name] = inner
    return waited_for


async def test_records_that_come_one_by_one_wake_no_fetcher(group):
    member = await reads_one_by_one(group)
    before = sleepers()
    asked_count = len(group.sent(FetchRequest))
    for _ in range(10):
        await come(group, member)
        assert list(sleepers()) == ["aiogroup fetchers"]
    assert len(group.sent(FetchRequest)) >= asked_count + 10
    assert sleepers()["aiogroup fetchers"] is before["aiogroup fetchers"]


async def test_each_request_has_its_time_out(group):
    """The first one's would be over long ago."""
    member = await reads_one_by_one(group, 100, 50, request_timeout_ms=2_000, fetch_max_wait_ms=1_000)
    assert member.count(events.FetchFailed) == 0
    line = group.sent(FetchRequest)[-1].line
    group.network.mute.add(line)
    asked_at_ms = max(each.at_ms for each in group.sent(FetchRequest) if each.line is line)
    await until(lambda: member.count(events.FetchFailed) == 1, what=member.tail)
    assert 2_000 <= member.at_ms(events.FetchFailed) - asked_at_ms <= 2_010
    group.network.mute.clear()
    await come(group, member)


async def test_a_connection_that_ends_before_the_next_request_is_made_again(group):
    """The record is in hand, and the next request is not written yet."""
    member = await reads_one_by_one(group)

    async def end_the_connection(_record):
        group.sent(FetchRequest)[-1].line.get_protocol().eof_received()

    member.at_record = end_the_connection
    for _ in range(5):
        await come(group, member)
    assert member.count("record") == 10
    assert member.count(events.FetchFailed) == 0
