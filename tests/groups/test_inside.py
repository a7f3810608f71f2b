"""A look inside a running consumer: deadlines, partitions, and the place of the records that are held."""

from __future__ import annotations

from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from tests.groups.scripted import SESSION_MS, TOPIC, sleep_ms
from tests.support.group_members import named


def deadlines(member):
    return {each.name: each for each in member.consumer.inside().deadlines()}


async def test_the_deadlines_of_a_member_run_and_end(group):
    member = group.member("m", reads=False, max_poll_interval_ms=60_000)
    assert member.consumer.inside() is None
    await member.start()
    await group.shared_out(member)
    look = deadlines(member)
    assert {name: (each.setting, each.limit_ms) for name, each in look.items()} == {
        "session": ("session_timeout_ms", SESSION_MS),
        "poll": ("max_poll_interval_ms", 60_000),
        "rebalance": ("max_poll_interval_ms", 60_000),
    }
    assert look["rebalance"].used_ms is None
    before = look["poll"].used_ms
    await sleep_ms(5_000)
    look = deadlines(member)
    assert look["poll"].used_ms == before + 5_000
    assert look["session"].used_ms <= 3_500, "heartbeats are answered meanwhile"
    group.network.withheld = (JoinGroupRequest,)
    await member.do(member.consumer.enforce_rebalance())
    await sleep_ms(2_000)
    assert 1_900 <= deadlines(member)["rebalance"].used_ms <= 2_000
    await member.stop()
    assert member.consumer.inside() is None


async def test_partitions_show_where_they_are_and_what_is_held(group):
    group.produce(0, 0, 0)
    member = await group.member("m", reads=False, auto_offset_reset="earliest").start()
    await group.shared_out(member)
    await member.do(member.consumer.getone())
    first = next(each for each in member.consumer.inside().partitions() if each.tp == named(TOPIC, 0)[0])
    assert (first.position, first.figures.end, first.figures.lag) == (1, 3, 2)
    assert (first.held_count, first.held_from) == (1, 0)
    assert (first.state, first.withheld, first.error, first.ranges) == ("fetching", (), "", ())
    member.call("pause", first.tp)
    figures = {(each.topic, each.partition): each for each in member.consumer.inside().figures()}
    assert (figures[first.tp].lag, figures[first.tp].passed) == (2, 1)
    assert next(iter(member.consumer.inside().partitions())).withheld == ("paused",)
