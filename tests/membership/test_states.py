"""The table of moves, and the machine held against it: walked through as far as its facts lead."""

from __future__ import annotations

from collections import deque

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.classic.leadership import Leadership
from aiogroup._core.membership.classic.machine import Backoff
from aiogroup._core.membership.identity import NewMemberId
from aiogroup._core.membership.states import HEARTBEATING, MOVES, MemberState
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup.errors import AiogroupError
from tests.support.coordinator import COOPERATIVE, ORDERS, SETTINGS, Member, joined, rejoin_wanted, synced

S = MemberState
PARTS = (Backoff, Leadership, NewMemberId)  # of a machine, and mutable
MUTABLE = (list, dict, set, *PARTS)


def answers(member):
    """Every kind of answer to what is pending, and every other fact, as functions of a member."""

    def reply(index, fact):
        def report(other):
            other.pending.pop(index)
            other.report(fact)

        return report

    def say(fact):
        return lambda other: other.report(fact)

    who = member.identity
    for index, (asked, as_who) in enumerate(member.pending):
        if isinstance(asked, f.HandOver):
            yield reply(index, f.HandedOver())
        elif isinstance(asked, f.ComputeAssignment):
            yield reply(index, f.AssignmentComputed(asked.generation, {}))
        elif isinstance(asked, f.Adopt):
            yield reply(index, f.Adopted(asked.generation))
        else:
            yield reply(index, f.RequestLost(as_who, "closed"))
            is_join = isinstance(asked, JoinGroupRequest)
            for code in (0, 14, 16, 22, 25, 79):
                if is_join:
                    yield reply(index, f.JoinAnswered(as_who, joined("m1", 5, error_code=code)))
                    yield reply(index, f.JoinAnswered(as_who, joined("m1", 5, error_code=code, leader="m2")))
                else:
                    yield reply(index, f.SyncAnswered(as_who, synced(0, error_code=code)))
    for code in (E.REBALANCE_IN_PROGRESS, E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.NOT_COORDINATOR, 82):
        yield say(f.HeartbeatAnswered(who, code))
        yield say(f.CommitAnswered(who, code))
    for topics in (ORDERS, frozenset()):
        yield say(f.SubscriptionChanged(topics, "subscribe"))
    yield say(rejoin_wanted("metadata"))
    yield say(f.PollIntervalPassed())
    yield say(f.RecordsWanted())
    yield say(f.LeaveWanted("stop"))
    yield say(f.Failed(AiogroupError("no")))


def snapshot(member):
    """What tells two situations apart."""
    who = member.identity
    pending = tuple((type(asked), as_who == who) for asked, as_who in member.pending)
    return (
        member.machine.state,
        bool(who.member_id),
        who.is_member,
        bool(member.machine.topics),
        member.machine.rejoin_why is None,
        member.machine.claim >= 0,
        member.is_cooperative,
        member.keeps,
        member.holds,
        frozenset(pending),
    )


def fork(member):
    """A copy for another future, which shares what is a value."""
    for kept in (member.moves, member.sent, member.effects):
        kept.clear()
    other = twin(member)
    other.machine = machine = twin(member.machine)
    observers = [name for name, value in vars(machine).items() if value is member]
    assert observers
    for name in observers:
        setattr(machine, name, other)
    return other


def twin(thing):
    """A quarter of what `copy.deepcopy` takes: twenty thousand are made."""
    other = object.__new__(type(thing))
    kept = vars(other)
    kept.update(vars(thing))
    for name, value in kept.items():
        if isinstance(value, MUTABLE):
            kept[name] = twin(value) if isinstance(value, PARTS) else type(value)(value)
    return other


def walk():
    """One member for each situation that facts can lead to, and every move seen on the way."""
    firsts = [Member(topics=frozenset(), settings=settings) for settings in (SETTINGS, COOPERATIVE)]
    seen, todo, moves = {snapshot(first): fork(first) for first in firsts}, deque(firsts), set()
    while todo:
        member = todo.popleft()
        for report in answers(member):
            other = fork(member)
            report(other)
            for _ in range(2):  # what follows when nothing is asked in between, and when it is
                moves.update(other.moves)
                if len(other.pending) <= 1 and snapshot(other) not in seen:
                    seen[snapshot(other)] = fork(other)
                    todo.append(seen[snapshot(other)])
                other.poll()
                other.now_ms += 2_000
            moves.update(other.moves)
    return list(seen.values()), moves


@pytest.fixture(scope="module")
def walked():
    return walk()


def test_every_state_has_its_moves():
    assert set(MOVES) == set(S)


def test_every_state_is_reached(walked):
    situations, _ = walked
    assert {member.machine.state for member in situations} == set(S)


def test_every_move_of_the_table_can_happen(walked):
    _, moves = walked
    assert moves == {(old, new) for old, others in MOVES.items() for new in others}


def test_every_situation_but_failure_has_a_way_back_to_stable(walked):
    situations, _ = walked
    assert len(situations) > 50
    for member in situations:
        before = snapshot(member)
        other = fork(member)
        other.recover()
        assert other.state == ("failed" if member.state == "failed" else "stable"), before
        if other.state == "stable":
            assert other.identity.is_member
            assert not other.machine.is_rebalancing


def test_member_delivers_only_where_it_heartbeats():
    assert MemberState.STABLE in HEARTBEATING
    assert S.JOINING not in HEARTBEATING
    assert not HEARTBEATING & {S.PARKED, S.LEFT, S.FAILED, S.UNJOINED}


def test_failure_leads_nowhere_but_out():
    assert MOVES[S.FAILED] == {S.LEFT}
