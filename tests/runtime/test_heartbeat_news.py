"""What waits for the main loop while it is blocked: bounded, in order, and nothing that matters is dropped."""

from __future__ import annotations

import threading

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.identity import Identity
from aiogroup._core.telemetry import events
from aiogroup._runtime.membership.heartbeat_thread import News

ME = Identity("billing", None, "m1", 7)


def waiting(most_events=1_000):
    woken = []
    return News(lambda: woken.append(True), most_events), woken


def test_events_come_in_order_and_the_main_loop_is_woken_once():
    news, woken = waiting()
    told = [events.HeartbeatSent(number) for number in range(10)]
    for event in told:
        news.add_event(event)
    assert len(woken) == 1
    assert list(news.take().events) == told
    assert not news.take().events
    news.add_event(told[0])
    assert len(woken) == 2


def test_of_events_the_newest_are_kept_and_the_rest_is_counted():
    news, _ = waiting(most_events=100)
    for number in range(1_000):
        news.add_event(events.HeartbeatSent(number))
    taken = news.take()
    assert [event.generation for event in taken.events] == list(range(900, 1_000))
    assert taken.dropped_count == 900
    assert news.take().dropped_count == 0


def test_a_fact_is_kept_once_however_often_it_is_learnt_and_no_event_displaces_it():
    news, _ = waiting(most_events=2)
    first, second = f.HeartbeatAnswered(ME, 27), f.PollIntervalPassed("m1")
    for _ in range(500):
        news.add_fact(first)
        news.add_event(events.HeartbeatSent(7))
    news.add_fact(second)
    assert news.take().facts == [first, second]


def test_a_node_is_lost_once():
    news, _ = waiting()
    for number in range(100):
        news.add_loss(number % 3, f"loss {number}")
    assert news.take().losses == {0: ("loss 0", False), 1: ("loss 1", False), 2: ("loss 2", False)}


def test_nothing_is_lost_between_two_threads():
    taken, is_woken = [], threading.Event()
    news = News(is_woken.set, 100_000)
    thread = threading.Thread(target=lambda: [news.add_event(events.HeartbeatSent(n)) for n in range(20_000)])
    thread.start()
    while len(taken) < 20_000:
        assert is_woken.wait(5)
        is_woken.clear()
        taken += [event.generation for event in news.take().events]
    thread.join()
    assert taken == list(range(20_000))
