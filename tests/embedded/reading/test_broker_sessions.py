"""Fetch sessions (KIP-227): the table of epochs, what an answer leaves out, the order of partitions, and evictions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from uuid import UUID

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup.embedded.machine.reading.sessions import Sessions, Wanted
from tests.support.reading_machine import ReadingMachine, answer_of, only, parts, want

FINAL, INITIAL = -1, 0


@pytest.fixture
def machine():
    machine = ReadingMachine()
    machine.topic(partitions=4)
    return machine


@pytest.fixture
def four(machine):
    return [machine.partition(index=n) for n in range(4)]


def indexes(answer):
    return [each.partition_index for topic in answer.responses for each in topic.partitions]


def begin(machine, partitions, **fields):
    """Begin a session. Returns its id."""
    return answer_of(machine.fetch(*((each, 0) for each in partitions), session_epoch=INITIAL, max_wait_ms=0, **fields))


# KIP-227's table: session id, epoch, and what they mean.
@pytest.mark.parametrize(
    ("epoch", "has_session", "error", "begins", "ends"),
    [
        pytest.param(FINAL, False, 0, False, False, id="full, no session wanted"),
        pytest.param(INITIAL, False, 0, True, False, id="full, a session wanted"),
        pytest.param(FINAL, True, 0, False, True, id="full, closes the session"),
        pytest.param(INITIAL, True, 0, True, True, id="full, closes the session and begins another"),
        pytest.param(1, True, 0, False, False, id="the next of the session"),
        pytest.param(2, True, 71, False, False, id="ahead of the session"),
        pytest.param(1, False, 70, False, False, id="no such session"),
        pytest.param(7, False, 70, False, False, id="no such session at all"),
    ],
)
def test_the_table_of_epochs(machine, four, epoch, has_session, error, begins, ends):
    session_id = begin(machine, four).session_id if has_session else 0
    told = answer_of(machine.fetch((four[0], 0), session_id=session_id, session_epoch=epoch, max_wait_ms=0))
    assert told.error_code == error
    sessions = machine.fetching.sessions(0)
    if begins:
        assert told.session_id not in (0, session_id)
        assert sessions.get(told.session_id).epoch == 1
    elif not error and has_session and not ends:
        assert told.session_id == session_id
    else:
        assert told.session_id == 0
    if has_session:
        assert (sessions.get(session_id) is None) is ends


def test_the_epoch_before_is_refused_and_the_session_stays(machine, four):
    session_id = begin(machine, four).session_id
    for epoch, code in ((1, 0), (1, 71), (2, 0), (4, 71), (3, 0)):
        told = answer_of(machine.fetch(session_id=session_id, session_epoch=epoch, max_wait_ms=0))
        assert told.error_code == code, epoch
        assert (told.session_id == session_id) is not bool(code)


def test_after_the_greatest_epoch_comes_one(machine, four):
    session_id = begin(machine, four).session_id
    machine.fetching.sessions(0).get(session_id).epoch = 0x7FFF_FFFF
    for epoch in (0x7FFF_FFFF, 1, 2):
        told = answer_of(machine.fetch(session_id=session_id, session_epoch=epoch, max_wait_ms=0))
        assert told.error_code == 0


def test_names_and_ids_do_not_mix(machine, four):
    for first, then in ((12, 13), (13, 12)):
        session_id = begin(machine, four, version=first).session_id
        told = answer_of(machine.fetch(session_id=session_id, session_epoch=1, max_wait_ms=0, version=then))
        assert (told.error_code, told.session_id) == (E.FETCH_SESSION_TOPIC_ID_ERROR, 0)
        told = answer_of(machine.fetch(session_id=session_id, session_epoch=1, max_wait_ms=0, version=first))
        assert told.error_code == 0


@pytest.mark.parametrize("version", [4, 6])
def test_versions_without_sessions(machine, four, version):
    told = answer_of(machine.fetch((four[0], 0), version=version, max_wait_ms=0))
    assert (told.session_id, len(machine.fetching.sessions(0))) == (0, 0)


def test_only_news_is_told(machine, four):
    def ask(*wanted, epoch=count(1), **fields):  # noqa: B008 (one count for all calls)
        told = answer_of(
            machine.fetch(*wanted, session_id=session_id, session_epoch=next(epoch), max_wait_ms=0, **fields)
        )
        return indexes(told)

    first = begin(machine, four)
    session_id = first.session_id
    assert indexes(first) == [0, 1, 2, 3], "a full answer holds all"
    assert ask() == []
    machine.append(four[2])
    assert ask() == [2]
    assert ask() == [2], "the records are still not fetched"
    assert ask((four[2], 1)) == []
    four[2].log.delete_before(1)
    assert ask() == [2], "the log begins elsewhere"
    assert ask() == []
    four[3].replicas = (1, 2)
    assert ask() == [3]
    assert ask() == [3], "errors are told each time"
    four[3].replicas = (0, 1, 2)
    assert ask() == [3], "the error went: that is news"
    assert ask() == []
    assert ask(forgotten=[four[1]]) == []
    machine.append(four[1])
    assert ask() == []
    assert ask((four[1], 0)) == [1]


def test_partitions_whose_records_were_sent_are_read_last_next_time(machine, four):
    for each in four:
        size = machine.append(each)
    told = begin(machine, four, max_bytes=2 * size)
    turns = [{index for index, each in enumerate(parts(told).values()) if each.records}]
    for epoch in (1, 2, 3):
        told = answer_of(
            machine.fetch(session_id=told.session_id, session_epoch=epoch, max_bytes=2 * size, max_wait_ms=0)
        )
        turns.append([each.partition_index for each in parts(told).values() if each.records])
    # The first answer of a session does not rotate (FetchSession.scala: FullFetchContext).
    assert turns == [{0, 1}, [0, 1], [2, 3], [0, 1]]


def test_what_was_not_found_comes_last_in_a_session_too(machine, four):
    gone = want(four[0], topic_id=UUID(int=3))
    told = answer_of(machine.fetch(gone, (four[1], 0), session_epoch=0, max_wait_ms=0))
    assert [each.error_code for each in parts(told).values()] == [0, E.UNKNOWN_TOPIC_ID]
    machine.append(four[1])
    told = answer_of(machine.fetch(session_id=told.session_id, session_epoch=1))
    assert [each.error_code for each in parts(told).values()] == [0, E.UNKNOWN_TOPIC_ID]


def test_a_partition_that_a_request_names_and_forgets_is_forgotten(machine, four):
    session_id = begin(machine, four).session_id
    machine.append(four[0])
    told = answer_of(
        machine.fetch((four[0], 0), forgotten=[four[0]], session_id=session_id, session_epoch=1, max_wait_ms=0)
    )
    assert indexes(told) == []


def test_a_session_without_partitions_ends(machine, four):
    session_id = begin(machine, four[:1]).session_id
    told = answer_of(machine.fetch(forgotten=four[:1], session_id=session_id, session_epoch=1, max_wait_ms=0))
    assert (told.error_code, told.session_id, told.responses) == (0, 0, ())
    assert machine.fetching.sessions(0).get(session_id) is None


def test_each_node_has_its_own_sessions_and_forgets_them_when_it_dies(machine, four):
    session_id = begin(machine, four).session_id
    told = answer_of(machine.fetch(session_id=session_id, session_epoch=1, max_wait_ms=0, node_id=1))
    assert told.error_code == E.FETCH_SESSION_ID_NOT_FOUND
    machine.fetching.forget(0)
    told = answer_of(machine.fetch(session_id=session_id, session_epoch=1, max_wait_ms=0))
    assert told.error_code == E.FETCH_SESSION_ID_NOT_FOUND


def test_a_request_that_waited_while_another_of_its_session_came(machine, four):
    session_id = begin(machine, four).session_id
    waits = machine.fetch(session_id=session_id, session_epoch=1)
    told = answer_of(machine.fetch(session_id=session_id, session_epoch=2, max_wait_ms=0))
    assert told.error_code == 0
    machine.append(four[0])
    told = answer_of(waits)
    assert (told.error_code, told.session_id, told.responses) == (
        E.INVALID_FETCH_SESSION_EPOCH,
        session_id,
        (),
    )


@dataclass
class Told:
    wanted: Wanted
    error: E = E.NONE
    high_watermark: int = 0
    log_start_offset: int = 0
    size_bytes: int = 0
    is_always_news: bool = False


class TestRoom:
    """FetchSessionCacheShard.tryEvict, with 2 slots and an age of 100 ms."""

    @pytest.fixture
    def sessions(self):
        return Sessions(count(1).__next__, 2, 100, lambda _id: "t")

    def begin(self, sessions, size, now_ms, *, is_follower=False):
        plan = sessions.plan(self.request(size), 13, now_ms, is_follower=is_follower)
        return plan.settle([Told(each) for each in plan.wanted], now_ms)[1]

    def request(self, size=0, **fields):
        asked = tuple(FetchPartition(index) for index in range(size))
        topics = (FetchTopic("t", UUID(int=1), asked),) if size else ()
        return FetchRequest(topics=topics, **{"session_epoch": 0, **fields})

    def use(self, sessions, session_id, epoch, now_ms):
        plan = sessions.plan(self.request(session_id=session_id, session_epoch=epoch), 13, now_ms)
        assert plan.error == 0

    def there(self, sessions, *ids):
        return [sessions.get(each) is not None for each in ids]

    def test_a_fresh_session_is_not_evicted(self, sessions):
        ids = [self.begin(sessions, 3, 0), self.begin(sessions, 3, 0)]
        assert self.begin(sessions, 50, 100) == 0
        assert self.there(sessions, *ids) == [True, True]

    def test_the_stalest_session_is_evicted(self, sessions):
        ids = [self.begin(sessions, 3, 0), self.begin(sessions, 3, 0)]
        self.use(sessions, ids[0], 1, 50)
        assert self.begin(sessions, 1, 101) == 3
        assert self.there(sessions, *ids) == [True, False]

    def test_a_session_in_use_is_evicted_for_a_larger_one_if_it_is_old(self, sessions):
        ids = [self.begin(sessions, 3, 0), self.begin(sessions, 2, 0)]
        for each in ids:
            self.use(sessions, each, 1, 90)
        assert self.begin(sessions, 50, 150) == 0, "they were not old when they were last used"
        for each in ids:
            self.use(sessions, each, 2, 160)
        assert self.begin(sessions, 1, 170) == 0, "it is smaller"
        assert self.begin(sessions, 2, 170) == 0, "it has as many partitions, and its id counts as 0"
        assert self.begin(sessions, 3, 170) == 3
        assert self.there(sessions, *ids) == [True, False]

    def test_a_privileged_session_takes_the_place_of_an_ordinary_one(self, sessions):
        ids = [self.begin(sessions, 9, 0, is_follower=True), self.begin(sessions, 9, 0)]
        assert self.begin(sessions, 1, 10, is_follower=True) == 3
        assert self.there(sessions, *ids) == [True, False]
        assert self.begin(sessions, 99, 20, is_follower=True) == 0, "privileged ones must be old for that"
        assert self.begin(sessions, 99, 20) == 0

    def test_without_slots_there_are_no_sessions(self):
        sessions = Sessions(count(1).__next__, 0, 100, lambda _id: "t")
        assert self.begin(sessions, 3, 0) == 0
        assert len(sessions) == 0


def test_slots_and_age_are_settings():
    machine = ReadingMachine(
        {"max.incremental.fetch.session.cache.slots": "1", "min.incremental.fetch.session.eviction.ms": "50"}
    )
    machine.topic()
    one = [machine.partition()]
    first = begin(machine, one).session_id
    assert first > 0
    assert begin(machine, one).session_id == 0
    machine.pass_ms(51)
    assert begin(machine, one).session_id not in (0, first)
    assert only(begin(machine, one)).error_code == 0, "without a session it is served all the same"
