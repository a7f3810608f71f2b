"""KIP-62's clocks: told what happened and when, they say what is due when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.membership.liveness import HeartbeatClock, PollClock, PollDeadlines
from tests.support.effort import examples


def beating(now_ms=0):
    clock = HeartbeatClock(3_000, 10_000, now_ms)
    clock.on_joined(now_ms)
    return clock


def holding(now_ms=0):
    clock = PollClock(300_000, now_ms)
    clock.on_assignment(True, now_ms)
    return clock


def test_first_heartbeat_is_due_one_interval_after_joining():
    assert beating(500).due_at_ms == 3_500


def test_session_ends_without_an_answer_however_many_heartbeats_are_sent():
    clock = beating()
    for now in (3_000, 6_000, 9_000):
        clock.on_sent(now)
    assert not clock.is_session_over(9_999)
    assert clock.is_session_over(10_000)


def test_an_answer_begins_a_new_session():
    clock = beating()
    clock.on_sent(3_000)
    clock.on_acknowledged(3_100)
    assert clock.due_at_ms == 6_000
    assert clock.session_ends_at_ms == 13_100


def test_failed_heartbeat_is_repeated_after_the_backoff_and_never_later_than_its_time():
    clock = beating()
    clock.on_sent(3_000)
    clock.on_failed(3_050, 100)
    assert clock.due_at_ms == 3_150
    clock.on_failed(3_140, 100)
    assert clock.due_at_ms == 3_150
    assert clock.session_ends_at_ms == 10_000


def test_coordinator_just_found_is_owed_a_whole_session_and_a_heartbeat_at_once():
    clock = beating()
    clock.start_session_over(9_500)
    assert clock.due_at_ms == 9_500
    assert not clock.is_session_over(19_499)


def test_stall_counts_from_the_end_of_the_last_request():
    clock = holding()
    clock.on_request(1_000)
    clock.on_answer(5_000)
    assert clock.deadlines.warns_at_ms == 5_000 + 240_000
    assert clock.deadlines.expires_at_ms == 305_000


def test_waiting_for_records_is_no_stall():
    clock = holding()
    clock.on_request(0)
    assert clock.deadlines is None
    clock.on_answer(10_000_000)
    assert clock.deadlines.expires_at_ms == 10_300_000


def test_member_without_partitions_never_stalls():
    clock = PollClock(300_000, 0)
    assert clock.deadlines is None
    clock.on_assignment(True, 10_000_000)
    assert clock.deadlines.expires_at_ms == 10_300_000
    clock.on_assignment(False, 10_300_000)
    assert clock.deadlines is None


def test_rebalance_that_keeps_partitions_does_not_excuse_a_stall():
    clock = holding()
    clock.on_assignment(True, 299_000)
    assert clock.deadlines.expires_at_ms == 300_000


def test_taking_records_without_waiting_is_progress():
    clock = holding()
    clock.on_request(200_000)
    clock.on_answer(200_000)
    assert clock.deadlines.expires_at_ms == 500_000


def test_clock_runs_again_only_when_the_last_of_several_requests_ended():
    clock = holding()
    clock.on_request(0)
    clock.on_request(0)
    clock.on_answer(10)
    assert clock.deadlines is None
    clock.on_answer(20)
    assert clock.deadlines.since_ms == 20


def test_a_callback_has_the_interval_for_itself_even_while_records_are_waited_for():
    clock = holding()
    clock.on_request(1_000)
    clock.on_callback(5_000, begins=True)
    assert clock.deadlines.expires_at_ms == 305_000
    clock.on_callback(305_500, begins=False)
    assert clock.deadlines is None


def test_what_another_thread_reads_is_when_the_stall_began_or_that_there_is_none():
    clock = PollClock(300_000, 0)
    assert clock.running_since_ms is None
    clock.on_assignment(True, 10)
    assert clock.running_since_ms == 10
    clock.on_request(20)
    assert clock.running_since_ms is None
    clock.on_answer(30)
    assert clock.running_since_ms == 30


def test_answer_without_a_request_is_a_mistake():
    with pytest.raises(AssertionError):
        holding().on_answer(1)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 100_000)), max_size=40))
def test_clock_expires_the_interval_after_the_last_sign_of_life_and_never_during_a_request(steps):
    clock, now, last, open_count = holding(), 0, 0, 0
    for asks, wait_ms in steps:
        now += wait_ms
        if asks:
            clock.on_request(now)
            open_count += 1
            last = now
        elif open_count:
            clock.on_answer(now)
            open_count -= 1
            last = now
        assert clock.deadlines == (None if open_count else PollDeadlines(last, 300_000))
    for _ in range(open_count):
        clock.on_answer(now)
        last = now
    assert clock.deadlines.expires_at_ms == last + 300_000
