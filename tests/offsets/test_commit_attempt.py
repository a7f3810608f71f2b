"""A commit as a machine, without a loop: each fact in each state, and the ways from one state to the next."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from aiogroup._core.cluster import Cluster, TopicInfo
from aiogroup._core.membership.facts import CommitAnswered
from aiogroup._core.membership.identity import Identity
from aiogroup._core.offsets.commit_attempt import (
    ABANDONED,
    REFRESHED,
    UNWRITTEN,
    WRITABLE,
    Answered,
    CommitAttempt,
    Commits,
    CommitState,
    CoordinatorMoved,
    Failed,
    MadeDurable,
    Step,
)
from aiogroup._core.offsets.commit_plan import CommitEntry
from aiogroup._core.offsets.committed_request import BY_NAME
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiogroup.errors import (
    BrokerError,
    CommitFailedError,
    ConnectionLostError,
    GroupAuthorizationError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    TopicAuthorizationError,
)
from aiogroup.structs import TopicPartition

DUE, TURN, ROUND = CommitState.DUE, CommitState.WAITING_TURN, CommitState.WAITING_ROUND
SENT, STALE, RESTING, DONE = CommitState.SENT, CommitState.STALE, CommitState.RESTING, CommitState.DONE
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
BEGAN_MS, TIMEOUT_MS, BACKOFF_MS = 1_000, 5_000, 100
LATER = BEGAN_MS + 7
LOST = ConnectionLostError("the connection broke")
MINE = Identity("billing", member_id="m1", generation=3)


class Member:
    """A member of generation 3, and what commits ask of the rest of a consumer."""

    def __init__(self):
        self.identity = MINE
        self.awaits_round = self.is_rebalancing = False
        self.failure = None
        self.cluster = Cluster()
        self.owned = {A: 1, B: 1}
        self.topic_ids = {}
        self.durable = []
        self.shorter_entry = None

    @property
    def commits_as(self):
        return None if self.awaits_round else self.identity

    def name_topics(self, commit):
        commit.topic_ids.update(self.topic_ids)

    def is_owned_since(self, tp, ownership):
        return self.owned.get(tp) == ownership

    def note_durable(self, tp, entry):
        self.durable.append((tp, entry.offset))

    def shorter(self, _tp, _entry):
        return self.shorter_entry


@pytest.fixture
def member():
    return Member()


@pytest.fixture
def commits(member):
    return Commits(member, member, member, lambda count: BACKOFF_MS * count, is_member=True)


def begun(commits, offset=5, tps=(A, B), **more):
    return CommitAttempt(commits, {tp: CommitEntry(offset, "", 1) for tp in tps}, BEGAN_MS, TIMEOUT_MS, **more)


def answer(codes):
    partitions = tuple(OffsetCommitResponsePartition(tp.partition, code) for tp, code in codes.items())
    return Answered(OffsetCommitResponse(topics=(OffsetCommitResponseTopic("orders", partitions=partitions),)))


def of_all(code):
    return answer({A: code, B: code})


def sent(commits, **more):
    attempt = begun(commits, **more)
    attempt.handle(WRITABLE, BEGAN_MS)
    assert attempt.state is SENT
    return attempt


# Each fact in each state.


def bring_to(state, commits, member):
    """A commit in this state, of which everything has changed that it could wait for."""
    match state:
        case CommitState.DUE:
            return begun(commits)
        case CommitState.WAITING_TURN:
            attempt = begun(commits)
            later = begun(commits)
            attempt.handle(WRITABLE, BEGAN_MS)
            assert attempt.poll(BEGAN_MS).state is TURN
            later.handle(ABANDONED, BEGAN_MS)
        case CommitState.WAITING_ROUND:
            attempt, member.awaits_round = begun(commits), True
            assert attempt.poll(BEGAN_MS).state is ROUND
            member.awaits_round = False
        case CommitState.SENT:
            attempt = sent(commits)
        case CommitState.STALE:
            attempt = sent(commits)
            attempt.handle(of_all(E.UNKNOWN_TOPIC_OR_PARTITION), BEGAN_MS)
        case CommitState.RESTING:
            attempt = sent(commits)
            attempt.handle(Failed(LOST), BEGAN_MS)
        case CommitState.DONE:
            attempt = sent(commits)
            attempt.handle(of_all(0), BEGAN_MS)
    assert attempt.state is state
    return attempt


LOOK = "poll"
FACTS = {
    LOOK: LOOK, "writable": WRITABLE, "unwritten": UNWRITTEN, "answered": of_all(0), "failed": Failed(LOST),
    "refreshed": REFRESHED, "abandoned": ABANDONED,
}  # fmt: skip
MOVES = {
    (DUE, "writable"): SENT,
    (DUE, "failed"): RESTING,
    (DUE, "abandoned"): DONE,
    (TURN, LOOK): DUE,
    (TURN, "abandoned"): DONE,
    (ROUND, LOOK): DUE,
    (ROUND, "abandoned"): DONE,
    (SENT, "unwritten"): DUE,
    (SENT, "answered"): DONE,
    (SENT, "failed"): RESTING,
    (SENT, "abandoned"): DONE,
    (STALE, "refreshed"): RESTING,
    (STALE, "abandoned"): DONE,
    (RESTING, LOOK): DUE,
    (RESTING, "abandoned"): DONE,
}
"""What is not here leaves the state as it is."""


@pytest.mark.parametrize(("state", "name"), [*itertools.product(CommitState, FACTS)])
def test_each_fact_in_each_state(state, name, commits, member):
    attempt, now = bring_to(state, commits, member), BEGAN_MS + BACKOFF_MS
    error, durable = attempt.error, [*member.durable]
    if name == LOOK:
        attempt.poll(now)
    else:
        attempt.handle(FACTS[name], now)
    assert attempt.state is MOVES.get((state, name), state)
    if (state, name) not in MOVES:
        assert (attempt.error, member.durable) == (error, durable)
    assert (attempt in commits.under_way) is (attempt.state is not DONE)


@pytest.mark.parametrize("state", [DUE, TURN, ROUND, RESTING])
def test_time_ends_every_wait_that_nobody_else_bounds(state, commits, member):
    """An exchange and a look for metadata have a time-out of their own, which is no later."""
    attempt = bring_to(state, commits, member)
    member.awaits_round = state is ROUND
    assert attempt.poll(BEGAN_MS + TIMEOUT_MS).state is DONE
    assert type(attempt.error) is {ROUND: RebalanceInProgressError, RESTING: ConnectionLostError}.get(
        state, KafkaTimeoutError
    )


@pytest.mark.parametrize("state", [DUE, TURN, ROUND, RESTING])
def test_what_is_not_owned_any_more_is_seen_at_the_next_look(state, commits, member):
    attempt = bring_to(state, commits, member)
    member.owned.clear()
    assert attempt.poll(BEGAN_MS + BACKOFF_MS).state is DONE
    assert isinstance(attempt.error, CommitFailedError)
    assert attempt.error.not_owned == {A, B}


# Due, and written.


def test_it_is_due_at_once_and_written_under_the_identity_of_that_moment(commits, member):
    attempt = begun(commits)
    assert attempt.may_go_at_once(BEGAN_MS)
    member.identity = Identity("billing", member_id="m1", generation=4)
    request = attempt.request()
    assert (request.member_id, request.generation_id_or_member_epoch) == ("m1", 4)
    assert [each.committed_offset for each in request.topics[0].partitions] == [5, 5]
    assert attempt.state is SENT


def test_it_does_not_go_at_once_without_time_or_while_a_rebalance_is_due(commits, member):
    assert not begun(commits).may_go_at_once(BEGAN_MS + TIMEOUT_MS)
    member.is_rebalancing = True
    assert not begun(commits).may_go_at_once(BEGAN_MS)
    commits.is_member = False
    assert begun(commits).may_go_at_once(BEGAN_MS)


@pytest.mark.parametrize("why", ["round", "held back"])
def test_nothing_is_written_while_the_group_decides(why, commits, member):
    attempt = begun(commits)
    member.awaits_round, commits.is_held_back = why == "round", why == "held back"
    assert attempt.request() is None
    assert attempt.poll(LATER) == Step(ROUND, BEGAN_MS + TIMEOUT_MS)
    assert not commits.is_busy
    member.awaits_round = commits.is_held_back = False
    assert commits.is_busy  # as soon as it need not wait, though it has not looked yet


def test_a_commit_of_nobody_waits_for_no_round_and_is_bound_to_no_ownership(commits, member):
    commits.is_member = False
    attempt = begun(commits)
    member.awaits_round, member.owned = True, {}
    assert attempt.poll(LATER).state is DUE
    request = attempt.request()
    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)


def test_without_a_generation_nothing_is_sent_but_after_a_round_it_may_be(commits, member):
    member.identity = Identity("billing")
    waiting, member.awaits_round = begun(commits), True
    assert waiting.request() is None
    assert waiting.poll(LATER).state is ROUND
    member.awaits_round = False
    assert waiting.poll(LATER).state is DONE
    assert waiting.error.not_owned == {A, B}


def test_the_error_of_the_membership_goes_before_what_is_not_owned(commits, member):
    attempt = begun(commits)
    member.owned, member.failure = {}, GroupAuthorizationError("fenced")
    assert attempt.poll(LATER).state is DONE
    assert attempt.error is member.failure


@pytest.mark.parametrize("is_member", [True, False])
def test_offsets_of_a_topic_that_was_recreated_are_not_sent(is_member, commits, member):
    member.topic_ids = {A: UUID(int=1)}
    commits.is_member = is_member
    attempt = begun(commits)
    assert attempt.at_most == BY_NAME  # the id of the other one is not known
    member.cluster = Cluster(topics={"orders": TopicInfo("orders", UUID(int=2), {})})
    request = attempt.request()
    assert [each.partition_index for each in request.topics[0].partitions] == [1]
    assert attempt.commit.not_owned == {A}


def test_an_earlier_commit_waits_for_a_later_one_and_is_done_with_it(commits, member):
    earlier, later = begun(commits, 5), begun(commits, 7)
    assert earlier.request() is None
    assert earlier.poll(LATER).state is TURN
    assert later.request() is not None
    later.handle(of_all(0), LATER)
    assert earlier.poll(LATER).state is DONE
    assert (earlier.error, later.error) == (None, None)
    assert member.durable == [(A, 7), (B, 7)]


# The answer.


def test_what_is_durable_is_noted_and_told_once(commits, member):
    commits.failed[A] = CommitEntry(4, "", 1)
    attempt = sent(commits)
    attempt.handle(of_all(0), LATER)
    assert member.durable == [(A, 5), (B, 5)]
    assert commits.failed == {}
    step = attempt.poll(LATER)
    assert (step.state, step.effects) == (DONE, (MadeDurable(2, 7),))
    assert attempt.poll(LATER).effects == ()
    assert attempt.error is None


def test_a_deleted_topic_is_no_reason_where_the_code_says_that_it_is_committed(commits, member):
    member.cluster = Cluster(errors={"orders": int(E.UNKNOWN_TOPIC_OR_PARTITION)})
    attempt = sent(commits)
    attempt.handle(of_all(0), LATER)
    assert (attempt.state, attempt.error) == (DONE, None)


@pytest.mark.parametrize(
    ("code", "state", "effects"),
    [
        (E.COORDINATOR_LOAD_IN_PROGRESS, RESTING, ()),
        (E.NOT_COORDINATOR, RESTING, (CoordinatorMoved("commit: NOT_COORDINATOR"),)),
        (E.UNKNOWN_TOPIC_OR_PARTITION, STALE, ()),
        (E.REBALANCE_IN_PROGRESS, RESTING, (CommitAnswered(MINE, E.REBALANCE_IN_PROGRESS),)),
    ],
)
def test_what_passes_keeps_it_and_what_is_durable_stays_so(code, state, effects, commits, member):
    attempt = sent(commits)
    attempt.handle(answer({A: 0, B: code}), LATER)
    step = attempt.poll(LATER)
    assert step.state is state
    assert step.effects == (*effects, MadeDurable(1, 7))
    assert [*attempt.commit.pending] == [B]
    assert member.durable == [(A, 5)]
    assert attempt.stale_topics == ({"orders"} if state is STALE else set())


def test_the_backoff_grows_ends_with_the_time_and_begins_after_the_metadata_were_asked_for(commits):
    attempt = sent(commits)
    attempt.handle(of_all(E.UNKNOWN_TOPIC_OR_PARTITION), LATER)
    assert attempt.poll(LATER).wake_at_ms == BEGAN_MS + TIMEOUT_MS
    attempt.handle(REFRESHED, BEGAN_MS + 1_000)
    assert attempt.poll(BEGAN_MS + 1_000) == Step(RESTING, BEGAN_MS + 1_000 + BACKOFF_MS)
    assert attempt.poll(BEGAN_MS + 1_099).state is RESTING
    assert attempt.poll(BEGAN_MS + 1_100).state is DUE
    attempt.handle(Failed(LOST), BEGAN_MS + 1_100)
    assert attempt.poll(BEGAN_MS + 1_100) == Step(RESTING, BEGAN_MS + 1_100 + 2 * BACKOFF_MS)
    attempt.poll(BEGAN_MS + 1_300)
    attempt.handle(Failed(KafkaTimeoutError("silent")), BEGAN_MS + 4_900)
    assert attempt.poll(BEGAN_MS + 4_900) == Step(RESTING, BEGAN_MS + TIMEOUT_MS)
    assert attempt.poll(BEGAN_MS + TIMEOUT_MS).state is DONE
    assert str(attempt.error) == "the commit was tried 3 times in 5000 ms; the last time silent"
    assert attempt.commit.not_durable() == (A, B)


def test_a_refusal_ends_it_and_the_others_stand(commits):
    attempt = sent(commits)
    attempt.handle(answer({A: 0, B: E.TOPIC_AUTHORIZATION_FAILED}), LATER)
    assert attempt.state is DONE
    assert isinstance(attempt.error, TopicAuthorizationError)
    assert attempt.commit.refused == {B}


def test_what_no_attempt_can_mend_ends_it(commits):
    for attempt in (begun(commits), sent(commits)):
        attempt.handle(Failed(GroupAuthorizationError("no")), LATER)
        assert attempt.state is DONE
        assert isinstance(attempt.error, GroupAuthorizationError)


def test_an_answer_that_lacks_a_partition_is_asked_for_again(commits):
    attempt = sent(commits)
    attempt.handle(answer({A: 0}), LATER)
    assert attempt.state is RESTING
    attempt.poll(BEGAN_MS + TIMEOUT_MS)
    assert isinstance(attempt.error, BrokerError)
    assert "orders-1" in str(attempt.error)


def test_an_answer_for_what_a_later_commit_made_durable_meanwhile_ends_it(commits, member):
    earlier = sent(commits)
    later = sent(commits, offset=7)
    later.handle(of_all(0), LATER)
    earlier.handle(Failed(LOST), LATER)
    assert (earlier.state, earlier.error) == (DONE, None)
    assert member.durable == [(A, 7), (B, 7)]


def test_what_did_not_fit_is_due_without_a_backoff(commits):
    long = {tp: CommitEntry(5, "x" * 200_000, 1) for tp in (A, B)}
    attempt = CommitAttempt(commits, long, BEGAN_MS, TIMEOUT_MS)
    assert len(attempt.request().topics[0].partitions) == 1
    attempt.handle(answer({A: 0}), LATER)
    assert attempt.poll(LATER).state is DUE
    assert [each.partition_index for each in attempt.request().topics[0].partitions] == [1]


def test_a_token_that_is_too_long_is_sent_again_shorter_or_refused(commits, member):
    attempt, member.shorter_entry = sent(commits, tps=(A,)), CommitEntry(5, "short", 1)
    attempt.handle(answer({A: E.OFFSET_METADATA_TOO_LARGE}), LATER)
    assert attempt.state is RESTING
    assert attempt.commit.pending == {A: member.shorter_entry}
    attempt.poll(LATER + BACKOFF_MS)
    assert attempt.request().topics[0].partitions[0].committed_metadata == "short"
    member.shorter_entry = None
    attempt.handle(answer({A: E.OFFSET_METADATA_TOO_LARGE}), LATER + BACKOFF_MS)
    assert (attempt.state, attempt.commit.refused) == (DONE, {A})


def test_failed_offsets_are_those_that_are_still_owned(commits, member):
    commits.failed |= {A: CommitEntry(5, "", 1), B: CommitEntry(6, "", 1)}
    member.owned = {A: 1, B: 2}
    assert commits.not_durable() == {A: 5}
