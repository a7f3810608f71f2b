"""Fetch sessions (KIP-227), against a model of what a broker keeps (FetchSession.scala)."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiogroup._core.fetching.asking.sessions import Asked, FetchSession, epoch_after
from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode as E
from tests.support.effort import examples
from tests.support.records import tp

ID = uuid.UUID(int=1)
OTHER = uuid.UUID(int=2)
OURS, LATER = "an ownership", "the next ownership"


def asked(offset=0, *, partition=OURS, topic_id=ID, epoch=0, max_bytes=100, changes_count=0):
    return Asked(partition, changes_count, topic_id, epoch, offset, max_bytes)


def opened(*numbers, session_id=7):
    """A session with these partitions, of which the broker has answered the first request."""
    session = FetchSession()
    for number in numbers:
        session.want(tp(number), asked())
    request = session.begin()
    session.answered(E.NONE, session_id, list(request.partitions))
    return session


def continued(session, named=()):
    request = session.begin()
    session.answered(E.NONE, request.session_id, named)
    return request


def head(request):
    return request.session_id, request.session_epoch


def test_first_request_names_everything_and_asks_for_a_session():
    session = FetchSession()
    session.want(tp(0), asked(5))
    session.want(tp(1), asked(6))
    request = session.begin()
    assert (head(request), request.is_full, request.forgotten) == ((0, 0), True, {})
    assert request.partitions == {tp(0): asked(5), tp(1): asked(6)}


def test_the_last_request_closes_the_session():
    session = opened(0, 1)
    session.lost()
    last = session.end()
    assert (head(last), last.partitions, last.forgotten, last.has_ids) == ((7, -1), {}, {}, True)
    assert session.end() is None
    assert head(session.begin()) == (0, 0)


def test_there_is_nothing_to_close_without_a_session():
    session = FetchSession()
    session.want(tp(0), asked())
    session.begin()
    assert session.end() is None


def test_in_a_session_only_what_changed_is_named():
    session = opened(0, 1, 2)
    request = continued(session)
    assert (head(request), request.is_full, request.partitions, request.forgotten) == ((7, 1), False, {}, {})
    session.want(tp(1), asked(9))
    session.want(tp(3), asked(4))
    session.want(tp(2), asked())
    session.drop(tp(0))
    request = continued(session)
    assert head(request) == (7, 2)
    assert request.partitions == {tp(1): asked(9), tp(3): asked(4)}
    assert request.forgotten == {tp(0): ID}


@pytest.mark.parametrize("change", [{"offset": 1}, {"epoch": 3}, {"max_bytes": 200}])
def test_each_field_that_the_broker_keeps_is_sent_when_it_changes(change):
    session = opened(0)
    session.want(tp(0), asked(**change))
    assert continued(session).partitions == {tp(0): asked(**change)}


def test_what_only_we_know_is_not_sent_and_its_answer_means_the_newest():
    session = opened(0)
    session.want(tp(0), asked(changes_count=1))  # a seek to where it was
    assert continued(session).partitions == {}
    assert session.held[tp(0)].changes_count == 1


def test_what_changed_and_changed_back_is_not_sent():
    session = opened(0, 1)
    session.drop(tp(0))
    session.want(tp(0), asked())
    session.want(tp(2), asked())
    session.drop(tp(2))
    request = continued(session)
    assert (request.partitions, request.forgotten) == ({}, {})


def test_answer_means_what_was_held_when_it_was_asked_for():
    session = opened(0)
    session.begin()
    session.want(tp(0), asked(50))
    assert session.held[tp(0)].fetch_offset == 0


def test_epoch_wraps_to_one():
    assert [epoch_after(epoch) for epoch in (0, 1, 2**31 - 2, 2**31 - 1)] == [1, 2, 2**31 - 1, 1]


def test_broker_without_sessions_is_asked_in_full_each_time():
    session = opened(0, 1, session_id=0)
    for _ in range(3):
        request = session.begin()
        assert (head(request), len(request.partitions)) == ((0, 0), 2)
        session.answered(E.NONE, 0, list(request.partitions))


def test_full_requests_bring_what_had_records_last():
    session = opened(0, 1, 2, session_id=0)
    session.want(tp(0), asked(9))
    assert list(session.begin().partitions) == [tp(1), tp(2), tp(0)]


def test_session_that_the_broker_forgot_starts_over():
    session = opened(0, 1)
    session.begin()
    session.answered(E.FETCH_SESSION_ID_NOT_FOUND, 0, ())
    request = session.begin()
    assert (head(request), len(request.partitions)) == ((0, 0), 2)


@pytest.mark.parametrize(
    "code", [E.INVALID_FETCH_SESSION_EPOCH, E.FETCH_SESSION_TOPIC_ID_ERROR, E.UNKNOWN_SERVER_ERROR]
)
def test_after_another_error_the_old_session_is_closed_by_the_request_that_opens_a_new_one(code):
    session = opened(0, 1)
    session.drop(tp(1))
    session.begin()
    session.answered(code, 0, ())
    request = session.begin()
    assert (head(request), list(request.partitions), request.forgotten) == ((7, 0), [tp(0)], {})


def test_after_no_answer_the_old_session_is_closed_by_the_request_that_opens_a_new_one():
    session = opened(0)
    session.begin()
    session.lost()
    assert head(session.begin()) == (7, 0)


def test_session_that_the_broker_closed_starts_over():
    session = opened(0)
    session.begin()
    session.answered(E.NONE, 0, [tp(0)])
    assert head(session.begin()) == (0, 0)


@pytest.mark.parametrize("named", [[], [tp(0)], [tp(0), tp(2)], [tp(0), tp(1), tp(2)]])
def test_full_answer_that_does_not_name_what_was_asked_is_not_built_on(named):
    session = FetchSession()
    session.want(tp(0), asked())
    session.want(tp(1), asked())
    session.begin()
    session.answered(E.NONE, 7, named)
    assert head(session.begin()) == (7, 0)


def test_answer_that_names_what_was_not_asked_ends_the_session():
    session = opened(0)
    session.begin()
    session.answered(E.NONE, 7, [tp(5)])
    assert head(session.begin()) == (7, 0)


@pytest.mark.parametrize("another", [{"partition": LATER}, {"topic_id": OTHER}])
def test_another_partition_under_the_same_name_begins_a_new_session(another):
    """A broker would add it, and forget it in the same request."""
    session = opened(0, 1)
    session.drop(tp(0))
    session.want(tp(0), asked(**another))
    request = session.begin()
    assert (head(request), len(request.partitions)) == ((7, 0), 2)


def test_answer_that_was_not_taken_in_is_asked_for_again_if_it_is_wanted():
    session = opened(0, 1)
    session.begin()
    session.answered(E.NONE, 7, [tp(0)])
    session.miss(tp(0))
    assert session.begin().is_full
    session.answered(E.NONE, 8, [tp(0), tp(1)])
    assert not continued(session).is_full
    session.begin()
    session.answered(E.NONE, 8, [tp(0)])
    session.miss(tp(0))
    session.drop(tp(0))
    request = session.begin()
    assert (request.is_full, request.forgotten) == (False, {tp(0): ID})


def test_topic_without_an_id_makes_all_go_by_name_in_a_session_of_their_own():
    session = opened(0)
    assert continued(session).has_ids
    session.want(tp(0, "old"), asked(topic_id=ZERO_UUID))
    request = session.begin()
    assert (request.has_ids, request.is_full) == (False, True)
    session.answered(E.NONE, 8, list(request.partitions))
    assert not continued(session).has_ids
    session.drop(tp(0, "old"))
    request = session.begin()
    assert (request.has_ids, request.is_full) == (True, True)


def test_names_of_topics_are_found_by_the_ids_they_were_asked_for_by():
    session = opened(0)
    assert session.names == {ID: "orders"}


class BrokerCache:
    """What FetchManager keeps of one client: at most one session, by what the requests said."""

    def __init__(self):
        self.session_id = 0
        self.epoch = 0
        self.partitions = {}
        self._last_id = 0

    def serve(self, request, *, gives_sessions):
        """(error code, session id, what it would read)."""
        if request.is_full:
            self.session_id = 0  # one client: also a session whose opening answer was lost is of no use any more
            wire = {name: each[2:] for name, each in request.partitions.items()}
            if not gives_sessions:
                return E.NONE, 0, wire
            self._last_id += 1
            self.session_id, self.epoch, self.partitions = self._last_id, 1, wire
            return E.NONE, self.session_id, dict(wire)
        if request.session_id != self.session_id:
            return E.FETCH_SESSION_ID_NOT_FOUND, 0, {}
        if request.session_epoch != self.epoch:
            return E.INVALID_FETCH_SESSION_EPOCH, 0, {}
        self.partitions |= {name: each[2:] for name, each in request.partitions.items()}
        for name in request.forgotten:
            self.partitions.pop(name, None)
        self.epoch += 1
        return E.NONE, self.session_id, dict(self.partitions)


NUMBERS = st.integers(0, 4)


class Sessions(RuleBasedStateMachine):
    """Whatever is wanted, lost, evicted and refused: the broker reads exactly what is wanted when it is asked."""

    @initialize()
    def begin(self):
        self.session, self.broker = FetchSession(), BrokerCache()
        self.in_flight = None
        self.changes_count = 0

    @rule(number=NUMBERS, offset=st.integers(0, 3), epoch=st.integers(0, 1), owner=st.sampled_from([OURS, LATER]),
          topic_id=st.sampled_from([ID, ID, OTHER, ZERO_UUID]))  # fmt: skip
    def want(self, number, offset, epoch, owner, topic_id):
        self.changes_count += 1
        one = asked(offset, partition=owner, epoch=epoch, topic_id=topic_id, changes_count=self.changes_count)
        self.session.want(tp(number), one)

    @rule(number=NUMBERS)
    def drop(self, number):
        self.session.drop(tp(number))

    @precondition(lambda self: self.in_flight is None and self.session.wanted)
    @rule(gives_sessions=st.sampled_from([True, True, True, False]), arrives=st.sampled_from([True, True, True, False]))
    def send(self, gives_sessions, arrives):
        request = self.session.begin()
        if request.is_full:
            assert list(request.partitions) == list(self.session.wanted)
        if not arrives:
            self.session.lost()
            return
        code, session_id, reads = self.broker.serve(request, gives_sessions=gives_sessions)
        if not code:
            assert reads == {name: each[2:] for name, each in self.session.wanted.items()}
            assert self.session.held == self.session.wanted
        self.in_flight = (request, code, session_id, reads)

    @precondition(lambda self: self.in_flight is not None)
    @rule(data=st.data())
    def answer(self, data):
        request, code, session_id, reads = self.in_flight
        self.in_flight = None
        some = list(reads) if request.is_full else [name for name in reads if data.draw(st.booleans())]
        held = dict(self.session.held)
        self.session.answered(code, session_id, some)
        assert self.session.held == held
        assert self.session.is_open is (code == E.NONE and session_id != 0)

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def lose_answer(self):
        self.in_flight = None
        self.session.lost()

    @rule()
    def evict(self):
        self.broker.session_id = 0

    @invariant()
    def holds_what_is_open(self):
        if self.in_flight is None and self.session.is_open:
            assert self.broker.session_id == 0 or self.broker.partitions == {
                name: each[2:] for name, each in self.session.held.items()
            }


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=examples(12), stateful_step_count=30, deadline=None)
