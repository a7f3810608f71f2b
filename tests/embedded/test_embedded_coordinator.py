"""The pure coordinator passes each script. tests/kafka runs the same scripts against a real one."""

from __future__ import annotations

import ast

import pytest

from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.embedded.machine.groups.coordinator import GroupCoordinator
from aiogroup.embedded.machine.groups.group import GroupSettings
from tests.support.group_scripts import DEVKAFKA, SCRIPTS, PureCoordinator, Script, stable
from tests.support.sources import sources

IMPURE = {"asyncio", "anyio", "socket", "time", "random", "uuid", "logging", "structlog", "threading", "datetime"}
SLOW = GroupSettings(initial_rebalance_delay_ms=3_000)


def made(settings=None):
    return Script(PureCoordinator(settings) if settings else PureCoordinator(), "billing", "orders")


@pytest.mark.parametrize("scripted", SCRIPTS, ids=lambda each: each.__name__)
def test_script(scripted):
    scripted(made())


def test_it_is_pure_and_shares_nothing_with_the_client():
    for source in sources("aiogroup/embedded/machine/groups"):
        names = set(source.imports())
        assert not {name.split(".")[0] for name in names} & IMPURE
        assert not [name for name in names if name.startswith("aiogroup.") and name.split(".")[1] == "membership"]
        assert ast.get_docstring(source.tree)


# Settings that the broker of the other tests does not have.


def test_an_empty_group_waits_for_more_members_and_longer_while_new_ones_come():
    s = made(SLOW)
    a, b, c = s.actor("a"), s.actor("b"), s.actor("c")
    assert a.enter() is None
    s.pass_ms(2_900)
    assert b.enter() is None
    s.pass_ms(200)  # b came during the delay, so there is another delay
    assert c.enter() is None
    s.pass_ms(5_899)  # c did the same at 6,000
    assert c.join() is None
    s.pass_ms(1)
    assert [each.joined().generation_id for each in (a, b, c)] == [1, 1, 1]


def test_the_initial_delay_never_exceeds_the_rebalance_time_out():
    s = made(SLOW)
    a = s.actor("a", rebalance_ms=4_000)
    others = [s.actor(f"b{number}", rebalance_ms=4_000) for number in range(3)]
    assert a.enter() is None
    for each in others:
        assert each.enter() is None
        s.pass_ms(1_334)
    assert a.joined().generation_id == 1


def test_a_newcomer_waits_five_minutes_and_no_longer():
    s = made()
    a = s.actor("a", rebalance_ms=1_000_000, session_ms=1_000_000)
    b, c = s.actor("b", session_ms=1_000_000), s.actor("c", "three", session_ms=1_000_000)
    stable(s, a)
    assert b.enter() is None
    assert c.enter() is None
    s.pass_ms(299_999)
    assert a.beat() == 27
    s.pass_ms(1)
    assert (b.joined().error_code, c.joined().error_code) == (25, 25)


def test_a_full_group_takes_nobody_else():
    s = made(GroupSettings(initial_rebalance_delay_ms=0, max_size=1))
    a, b = s.actor("a"), s.actor("b")
    stable(s, a)
    assert b.join().error_code == 81
    assert a.beat() == 0


def test_it_says_when_to_tick_next():
    s = made()
    coordinator = s.coordinator.coordinator
    assert coordinator.next_at_ms is None
    a = s.actor("a", session_ms=10_000)
    stable(s, a)
    assert coordinator.next_at_ms == 10_000
    s.pass_ms(4_000)
    assert a.beat() == 0
    assert coordinator.next_at_ms == 14_000
    s.pass_ms(10_000)
    assert coordinator.next_at_ms is None


@pytest.mark.parametrize(("version", "waits_ms"), [(0, 10_000), (1, 60_000)])
def test_11_before_version_1_the_session_is_the_rebalance_timeout(version, waits_ms):
    """KIP-62's acceptance. The codec begins with version 2, so the coordinator is asked without it."""
    coordinator = GroupCoordinator(lambda prefix: prefix, GroupSettings(initial_rebalance_delay_ms=0))
    answers = {}

    def ask(who, request, now_ms):
        answered = coordinator.handle(who, request, now_ms, version=version, client_id=who)
        answers.update({each.ticket: each.response for each in answered})

    def join(member_id=""):
        return JoinGroupRequest(
            group_id="billing",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000 if version else -1,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol("range", b""),),
        )

    ask("a", join(), 0)
    ask("a", SyncGroupRequest(group_id="billing", generation_id=1, member_id="a"), 0)
    ask("b", join(), 1_000)
    for now_ms in range(2_000, 1_000 + waits_ms, 1_000):
        ask("a", HeartbeatRequest(group_id="billing", generation_id=1, member_id="a"), now_ms)
        assert answers["a"].error_code == 27
    assert "b" not in answers
    for each in coordinator.tick(1_000 + waits_ms):
        answers[each.ticket] = each.response
    assert (answers["b"].generation_id, answers["b"].leader) == (2, "b")
    ask("a", join("a"), 1_000 + waits_ms)
    assert answers["a"].error_code == 25


# Another broker takes over.


def taken_over(s):
    """The answers of the coordinator that resigns, and the new one, which has its log."""
    pure = s.coordinator
    told = pure.coordinator.resign()
    pure.coordinator = GroupCoordinator(pure.new_id, DEVKAFKA, log=pure.coordinator.log, now_ms=pure.now_ms)
    return {each.ticket[0]: each.response.error_code for each in told}


def test_the_next_coordinator_knows_members_assignments_and_offsets():
    s = made()
    a, b = s.actor("a"), s.actor("b", "two")
    stable(s, a, b)
    a.commit(7)
    assert taken_over(s) == {}
    assert (a.beat(), b.beat(), a.commit(8)) == (0, 0, 0)
    assert bytes(a.sync().assignment) == b"a"
    assert a.committed().groups[0].topics[0].partitions[0].committed_offset == 8
    assert s.actor("b again", "two").join().error_code == 0
    s.pass_ms(30_001)
    assert a.beat() == 25


def test_the_next_coordinator_forgets_a_generation_without_an_assignment():
    s = made()
    a, b = s.actor("a"), s.actor("b")
    stable(s, a)
    assert b.enter() is None
    assert a.join().generation_id == 2
    assert b.joined().generation_id == 2
    assert b.sync() is None
    assert taken_over(s) == {"b": 16}
    assert (a.beat(), b.beat(), a.beat(generation=1)) == (22, 25, 0)
    assert a.commit() == 22


def test_a_parked_join_is_redirected_to_the_next_coordinator():
    s = made()
    a, b = s.actor("a"), s.actor("b")
    stable(s, a)
    assert b.enter() is None
    assert taken_over(s) == {"b": 16}
    assert a.beat() == 0
    assert b.join().error_code == 25


def test_a_group_that_is_empty_keeps_its_generation():
    s = made()
    a = s.actor("a")
    stable(s, a)
    a.commit(3)
    assert a.leave() == 0
    taken_over(s)
    assert s.actor("b").enter().generation_id == 3
