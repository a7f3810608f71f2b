"""Leader epochs say where the leader's log parts from what was read: tables, and clusters that elect anybody."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.cluster import Cluster, PartitionInfo, TopicInfo
from aiogroup._core.fetching.epochs import Epochs
from aiogroup._core.fetching.partition import Partition, PositionState
from aiogroup._core.fetching.truncation import (
    NO_LEADER,
    Action,
    Divergence,
    EpochEnd,
    EpochRemedy,
    Leader,
    Search,
    act,
    epoch_remedy_for,
    is_news,
    leader_of,
    must_check,
    narrow,
)
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode as E
from tests.fetching import wire_batches as w
from tests.support.effort import examples
from tests.support.records import LATEST, fetched, tp

UNDEFINED = EpochEnd(-1, -1)


def read(*runs, start=0, epoch=-1):
    epochs = Epochs()
    epochs.start(start, epoch)
    epochs.learn(runs)
    return epochs


# Leaders.


@pytest.mark.parametrize(
    ("known", "seen", "news"),
    [
        (NO_LEADER, Leader(1, 5), True),
        (Leader(1, 5), Leader(1, 5), False),
        (Leader(1, 5), Leader(1, 6), True),  # elected again
        (Leader(1, 5), Leader(2, 6), True),
        (Leader(1, 5), Leader(2, 4), False),  # who says so lags behind
        (Leader(1, 5), NO_LEADER, False),  # nobody to ask: what is known holds
        (Leader(1, -1), Leader(2, -1), True),  # a cluster without epochs
        (Leader(1, 5), Leader(2, -1), True),
    ],
)
def test_another_leader_is_news_unless_its_epoch_is_older(known, seen, news):
    assert is_news(known, seen) is news


def test_who_leads_nothing_is_nobody():
    led = {0: PartitionInfo(3, 7, (), ()), 1: PartitionInfo(-1, 8, (), ())}
    cluster = Cluster({}, {"orders": TopicInfo("orders", ZERO_UUID, led)})
    assert [leader_of(cluster, tp(number)) for number in range(3)] == [Leader(3, 7), NO_LEADER, NO_LEADER]


@pytest.mark.parametrize(
    ("leader_epoch", "leader", "needed"),
    [(4, Leader(1, 5), True), (-1, Leader(1, 5), False), (4, Leader(1, -1), False), (4, NO_LEADER, False)],
)
def test_without_epochs_there_is_nothing_to_check(leader_epoch, leader, needed):
    assert must_check(leader_epoch, leader) is needed


def test_no_error_lets_a_position_pass_unchecked():
    assert [code for code in E if epoch_remedy_for(code) is EpochRemedy.PROCEED] == [E.NONE]
    assert [code for code in E if epoch_remedy_for(code) is EpochRemedy.NOT_AUTHORIZED] == [
        E.TOPIC_AUTHORIZATION_FAILED
    ]
    assert epoch_remedy_for(9_999) is EpochRemedy.RETRY


# Answers.


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (EpochEnd(5, 10), None),
        (EpochEnd(5, 99), None),
        (EpochEnd(3, 10), None),  # nothing of epoch 5 is left: compaction may do that
        (EpochEnd(5, 9), Divergence(9, 5)),
        (EpochEnd(5, 0), Divergence(0, 5)),
        (EpochEnd(3, 4), Divergence(4, 3)),
        (UNDEFINED, Divergence(None)),
        (EpochEnd(5, -1), Divergence(None)),
        (EpochEnd(-1, 5), Divergence(None)),
    ],
)
def test_one_answer_is_read_as_java_reads_it(answer, found):
    """A position from a commit, 10 with epoch 5: nothing more is known."""
    assert narrow(Search(10, 10, 5), answer, read(start=10, epoch=5)) == found


def test_where_several_epochs_are_gone_the_search_goes_on_where_ours_and_the_answers_part():
    """Read: epoch 1 up to 5, then epoch 3. The leader: epoch 1 up to 3, epoch 2 up to 8, then epoch 4."""
    epochs = read((0, 1), (5, 3))
    further = narrow(Search(10, 10, 3), EpochEnd(2, 8), epochs)
    assert further == Search(10, 5, 1)
    assert narrow(further, EpochEnd(1, 3), epochs) == Divergence(3, 1)
    assert narrow(further, EpochEnd(1, 6), epochs) == Divergence(5, 1)
    assert narrow(further, UNDEFINED, epochs) == Divergence(None)


def test_an_epoch_that_the_leader_never_had_is_searched_through():
    """Read: epochs 1, 2 from 3 on and 4 from 5 on. The leader: epoch 1 up to 6, then epoch 3 up to 8."""
    epochs = read((0, 1), (3, 2), (5, 4))
    further = narrow(Search(10, 10, 4), EpochEnd(3, 8), epochs)
    assert further == Search(10, 5, 2)
    assert narrow(further, EpochEnd(1, 6), epochs) == Divergence(3, 1)


@pytest.mark.parametrize(
    ("found", "with_policy", "without"),
    [
        (None, Action.GO_ON, Action.GO_ON),
        (Divergence(4, 3), Action.SEEK, Action.FAIL),
        (Divergence(None), Action.RESET, Action.FAIL),
    ],
)
def test_a_policy_goes_on_by_itself_and_none_is_reported(found, with_policy, without):
    assert (act(found, has_policy=True), act(found, has_policy=False)) == (with_policy, without)


# Any history of elections.


class Logs:
    """Three replicas, each log a list of the epochs of its records; whoever is elected goes on with its own log."""

    def __init__(self):
        self.replicas = [[], [], []]
        self.epoch = 0
        self.leader = 0
        self.starts = [{}, {}, {}]

    def elect(self, number):
        self.leader, self.epoch = number, self.epoch + 1

    def write(self, count):
        self.replicas[self.leader] += [self.epoch] * count

    def follow(self, number):
        self.replicas[number] = list(self.replicas[self.leader])

    def end_of(self, epoch):
        """LeaderEpochFileCache.endOffsetFor, with the leader's own epoch as the latest."""
        log = self.replicas[self.leader]
        if epoch > self.epoch:
            return UNDEFINED
        end = bisect_right(log, epoch)
        floor = max((each for each in [*log, self.epoch] if each <= epoch), default=epoch)
        return EpochEnd(floor, end)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("elect"), st.integers(0, 2)),
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.just("follow"), st.integers(0, 2)),
    ),
    max_size=25,
)


@settings(max_examples=examples(25), deadline=None)
@given(MOVES, st.integers(1, 20), MOVES, st.integers(0, 2))
def test_the_search_ends_exactly_where_the_logs_part(before, position, after, elected):
    logs = Logs()
    for name, argument in before:
        getattr(logs, name)(argument)
    mine = list(logs.replicas[logs.leader][:position])
    if not mine:
        return
    epochs = read(*((offset, each) for offset, each in enumerate(mine) if offset == 0 or mine[offset - 1] != each))
    for name, argument in after:
        getattr(logs, name)(argument)
    logs.elect(elected)
    theirs = logs.replicas[logs.leader]
    shared = next((at for at, each in enumerate(mine) if at >= len(theirs) or theirs[at] != each), len(mine))

    found, asked = Search(len(mine), len(mine), mine[-1]), []
    while isinstance(found, Search):
        asked.append(found)
        answer = logs.end_of(found.leader_epoch)
        found = narrow(found, answer, epochs)
    assert len(asked) <= len(set(mine))
    if found is None:
        is_unclear = answer.epoch < mine[-1]  # as if epoch mine[-1] had been compacted away
        assert shared == len(mine) or is_unclear
    else:
        assert found.offset == shared
        assert shared == 0 or found.leader_epoch == mine[shared - 1]


# A partition.


def partition_at(position, *runs):
    partition = Partition(tp(0), 1, LATEST)
    partition.start_at(0, leader=Leader(1, 5))
    for begin, count, epoch in runs:
        partition.put(fetched(partition, count, base=begin), w.epochs_of(w.built(count, base=begin, epoch=epoch)))
        partition.target.fetched(begin + count)
    partition.ledger.deliver([position - 1], position)
    return partition


def test_a_committed_position_with_an_epoch_is_checked_first():
    partition = Partition(tp(0), 1, LATEST)
    partition.start_at(7, leader_epoch=3, leader=Leader(1, 5))
    assert (partition.state, partition.search) == (PositionState.VALIDATING, Search(7, 7, 3, Leader(1, 5)))
    assert (partition.position, partition.is_open) == (7, False)
    partition.confirm(EpochEnd(3, 7))
    assert (partition.state, partition.is_open, partition.target.offset) == (PositionState.FETCHING, True, 7)


@pytest.mark.parametrize(("leader_epoch", "leader"), [(-1, Leader(1, 5)), (3, Leader(1, -1)), (3, NO_LEADER)])
def test_a_position_that_cannot_be_checked_is_read_from_at_once(leader_epoch, leader):
    partition = Partition(tp(0), 1, LATEST)
    partition.start_at(7, leader_epoch=leader_epoch, leader=leader)
    assert partition.state is PositionState.FETCHING


def test_a_new_leader_is_asked_and_an_older_one_is_nobody():
    partition = partition_at(4, (0, 6, 5))
    before = partition.target.changes_count
    partition.follow(Leader(2, 4))
    assert (partition.state, partition.target.changes_count) == (PositionState.FETCHING, before)
    partition.follow(Leader(2, 6))
    assert (partition.state, partition.search) == (PositionState.VALIDATING, Search(4, 4, 5, Leader(2, 6)))
    assert partition.target.changes_count > before  # what the old leader still answers does not count


def test_a_position_without_an_epoch_follows_unchecked():
    partition = Partition(tp(0), 1, LATEST)
    partition.start_at(7, leader=Leader(1, 5))
    partition.follow(Leader(2, 6))
    assert (partition.state, partition.leader) == (PositionState.FETCHING, Leader(2, 6))


@pytest.mark.parametrize(
    ("runs", "answer", "is_kept"),
    [
        ([(0, 6, 5)], EpochEnd(5, 6), True),
        ([(0, 6, 5)], EpochEnd(5, 5), False),  # the last of what is buffered is gone
        ([(0, 6, 5)], EpochEnd(4, 9), False),
        ([(0, 4, 5), (4, 2, 6)], EpochEnd(5, 6), False),  # of epoch 6 nothing was said
    ],
)
def test_what_is_buffered_is_kept_if_the_leader_has_it_too(runs, answer, is_kept):
    partition = partition_at(4, *runs)
    partition.follow(Leader(2, 7))
    partition.confirm(answer)
    assert (bool(partition.buffer.pieces), partition.target.offset) == (is_kept, 6 if is_kept else 4)
    assert (partition.position, partition.state) == (4, PositionState.FETCHING)


def test_after_a_truncation_nothing_of_the_old_records_counts():
    partition = partition_at(4, (0, 6, 5))
    partition.committed = Committed(4)
    old = partition.ledger
    partition.follow(Leader(2, 7))
    partition.truncate(2, 3)
    assert (partition.position, partition.target.offset, list(partition.buffer.pieces)) == (2, 2, [])
    assert (partition.epoch_before(2), partition.committed, partition.state) == (3, None, PositionState.FETCHING)
    partition.ledger.deliver([2, 3], 4)
    old.ack(2)
    old.ack(3)
    assert partition.ledger.committable == 2


@pytest.mark.parametrize("state", ["stuck", "reset", "committed"])
def test_a_leader_changes_nothing_where_there_is_no_position(state):
    partition = Partition(tp(0), 1, LATEST)
    if state == "reset":
        partition.await_reset(LATEST)
    elif state == "stuck":
        partition.stick(ValueError())
    before = partition.state, partition.target.changes_count
    partition.follow(Leader(2, 6))
    partition.doubt()
    partition.trust()
    assert (partition.state, partition.target.changes_count) == before
