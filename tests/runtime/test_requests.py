"""Requests for records: one at a time, and a cancelled one has taken nothing."""

from __future__ import annotations

import asyncio
import itertools
import random
from types import SimpleNamespace

import pytest

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.subscription import Subscription
from aiogroup._runtime.delivery import turn
from aiogroup._runtime.delivery.readers import is_request
from aiogroup._runtime.delivery.requests import Requests
from aiogroup._runtime.delivery.stopping import Stopping
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms, sleep_ms
from aiogroup._runtime.membership.callback_runs import CallbackRuns
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    ConcurrentConsumptionError,
    ConsumerStoppedError,
    IllegalStateError,
    RecordDeserializationError,
)
from tests.support.records import assigned, fetched, offsets, tp

NONE = frozenset()


class Reading:
    """Requests over one assignment, with a gate, a poll clock and the events that were told."""

    def __init__(self, *numbers, auto_ack=True):
        self.is_open = True
        self.events = []
        changes = Changes(Signal)
        self.assignment, self.partitions = assigned(*(numbers or (0,)), changes=changes)
        self.delivery = Delivery(self.assignment, auto_ack=auto_ack, records_per_turn=256, turn_ms=60_000)
        self.clock = PollClock(300_000, now_ms())
        self.clock.on_assignment(True, now_ms())
        config = ConsumerConfig(auto_ack=auto_ack)
        self.changes, self.inbox = changes, Inbox(self.delivery.interrupt, self.events.append)
        self.callback_runs = CallbackRuns()
        subscription = Subscription()
        subscription.assign(self.assignment.names)
        self.requests = Requests(
            config,
            Link(config),
            self.assignment,
            self.delivery,
            self.changes,
            self.events.append,
            self.inbox,
            self,
            subscription,
            self.callback_runs,
            Stopping(),
        )

    def may_deliver(self, _now):
        return self.is_open

    def is_settled(self):
        return True

    def on_request(self, now):
        self.clock.on_request(now)

    def on_answer(self):
        self.clock.on_answer(now_ms())

    def put(self, count, base=0, number=0):
        partition = self.assignment[tp(number)]
        partition.put(fetched(partition, count, base, acknowledge=lambda record: partition.ledger.ack(record.offset)))
        self.changes.tell(Change.ANSWERED)

    @is_request
    async def one(self):
        return (await self.requests.one(NONE)).offset

    @is_request
    async def many(self, timeout=None, max_count=None):
        return offsets((await self.requests.batch(timeout, max_count, NONE)).all())


@pytest.fixture
async def reading():
    return Reading()


async def waiting(call):
    task = asyncio.create_task(call)
    await sleep_ms(10)
    assert not task.done()
    return task


async def test_request_waits_for_its_record(reading):
    task = await waiting(reading.one())
    reading.put(2)
    assert await task == 0
    assert await reading.one() == 1


async def test_batch_ends_with_its_time_out_and_is_empty(reading):
    began = now_ms()
    assert await reading.many(timeout=5_000) == []
    assert 5_000 <= now_ms() - began <= 5_002


async def test_batch_without_waiting_returns_what_is_there(reading):
    began = now_ms()
    assert await reading.many(timeout=0) == []
    reading.put(3)
    assert await reading.many(timeout=0, max_count=2) == [0, 1]
    assert now_ms() == began


async def test_next_request_processes_what_the_last_one_gave(reading):
    reading.put(3)
    ledger = reading.assignment[tp(0)].ledger
    assert await reading.one() == 0
    assert ledger.committable == 0
    assert await reading.one() == 1
    assert ledger.committable == 1


async def test_cursor_goes_on_where_the_request_left_it(reading):
    reading.put(3)
    assert (await reading.requests.next()).offset == 0
    assert offsets(iter(reading.delivery.cursor.take, None)) == [1, 2]


# One at a time.


@pytest.mark.parametrize("second", ["one", "many", "next"])
async def test_second_request_is_refused_before_anything_moves(reading, second):
    reading.put(1)
    assert await reading.one() == 0
    first = await waiting(reading.one())
    reading.assignment[tp(0)].ledger.deliver([1], 2)
    requests = reading.requests
    before = (requests.asked_count, requests.last_asked_at_ms, reading.delivery.in_hand())
    await sleep_ms(10)
    call = requests.next() if second == "next" else getattr(reading, second)()
    with pytest.raises(ConcurrentConsumptionError, match="auto_ack=False"):
        await call
    assert (requests.asked_count, requests.last_asked_at_ms, reading.delivery.in_hand()) == before
    reading.put(1, base=2)
    assert await first == 2


async def test_requests_may_follow_each_other_from_any_task(reading):
    reading.put(3)
    assert [await asyncio.create_task(reading.one()) for _ in range(3)] == [0, 1, 2]


async def test_named_partitions_may_have_a_worker_each():
    reading = Reading(0, 1)
    first = await waiting(reading.requests.one(frozenset({tp(0)})))
    second = await waiting(reading.requests.one(frozenset({tp(1)})))
    with pytest.raises(ConcurrentConsumptionError):
        await reading.requests.one(frozenset({tp(1)}))
    with pytest.raises(ConcurrentConsumptionError):
        await reading.one()
    reading.put(1, number=1)
    reading.put(1, number=0)
    assert ((await first).partition, (await second).partition) == (0, 1)


async def test_several_workers_share_the_records_without_auto_ack():
    reading = Reading(auto_ack=False)
    workers = [asyncio.create_task(reading.one()) for _ in range(3)]
    await sleep_ms(1)
    reading.put(3)
    assert sorted(await asyncio.gather(*workers)) == [0, 1, 2]
    assert reading.assignment[tp(0)].ledger.committable == 0


async def test_no_request_inside_a_rebalance_callback(reading):
    with reading.callback_runs.in_callback(), pytest.raises(IllegalStateError, match="callback"):
        await reading.one()
    assert reading.requests.asked_count == 0


async def test_a_callback_of_another_consumer_may_ask_for_records(reading):
    reading.put(1)
    with Reading().callback_runs.in_callback():
        assert await reading.one() == 0


async def test_a_callback_inside_the_callback_of_another_consumer_is_inside_both(reading):
    other = Reading()
    with reading.callback_runs.in_callback(), other.callback_runs.in_callback():
        for each in (reading, other):
            with pytest.raises(IllegalStateError, match="callback"):
                await each.one()


async def test_a_task_started_in_a_callback_is_inside_only_until_the_callback_returns(reading):
    reading.put(3)
    returned, asked = asyncio.Event(), asyncio.Event()

    async def worker():
        with pytest.raises(IllegalStateError, match="callback"):
            await reading.one()
        asked.set()
        await returned.wait()
        return await reading.one()

    timed = asyncio.get_running_loop().create_future()
    with reading.callback_runs.in_callback():
        task = asyncio.create_task(worker())
        asyncio.get_running_loop().call_later(0.01, lambda: timed.set_result(asyncio.create_task(reading.one())))
        await asked.wait()
    returned.set()
    assert await task == 0
    assert await (await timed) == 1
    with reading.callback_runs.in_callback(), pytest.raises(IllegalStateError, match="callback"):
        await reading.one()
    assert await asyncio.create_task(reading.one()) == 2


async def test_a_task_of_an_earlier_callback_is_outside_of_the_next_one(reading):
    reading.put(1)
    go_on = asyncio.Event()

    async def worker():
        await go_on.wait()
        return await reading.one()

    with reading.callback_runs.in_callback():
        task = asyncio.create_task(worker())
    with reading.callback_runs.in_callback():
        go_on.set()
        assert await task == 0


# Cancelled requests.


async def test_thousand_cancelled_requests_lose_nothing_and_leave_the_clock_right(reading):
    dice = random.Random(7)
    given, put_count = [], 0
    for _ in range(1_000):
        task = asyncio.create_task(reading.one() if dice.random() < 0.5 else reading.many(max_count=2))
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        if dice.random() < 0.3:
            reading.put(1, base=put_count)
            put_count += 1
        await sleep_ms(dice.randrange(3))
        task.cancel()
        try:
            answer = await task
        except asyncio.CancelledError:
            continue
        given += answer if isinstance(answer, list) else [answer]
    last_ms = now_ms()
    while len(given) < put_count:
        given.append(await reading.one())
    assert given == list(range(put_count))
    assert put_count > 200
    assert reading.clock.deadlines.expires_at_ms == last_ms + 300_000


async def test_waiting_is_no_stall_and_a_stall_after_cancelled_requests_is_one(reading):
    task = await waiting(reading.one())
    await sleep_ms(10_000_000)
    assert reading.clock.deadlines is None
    task.cancel()
    cancelled_at_ms = now_ms()
    await sleep_ms(300_000)
    assert reading.clock.deadlines.expires_at_ms == cancelled_at_ms + 300_000


# The gate.


async def test_closed_gate_gives_nothing_and_what_is_there_comes_when_it_opens(reading):
    reading.put(2)
    reading.is_open = False
    task = await waiting(reading.one())
    assert reading.assignment[tp(0)].position == 0
    reading.is_open = True
    reading.delivery.interrupt()
    assert await task == 0


async def test_request_at_a_closed_gate_hands_over_what_was_in_hand(reading):
    reading.put(2)
    assert await reading.one() == 0
    handed_over = asyncio.create_task(reading.changes[Waiter.LEAVING].wait())
    await asyncio.sleep(0)
    reading.is_open = False
    await waiting(reading.one())
    assert await handed_over is True
    assert not reading.delivery.is_in_hand()


# Errors and stop.


async def test_error_is_raised_by_the_waiting_request_and_only_once(reading):
    task = await waiting(reading.one())
    reading.inbox.put(AiogroupError("a callback failed"))
    with pytest.raises(AiogroupError, match="callback"):
        await task
    reading.put(1)
    assert await reading.one() == 0


async def test_fatal_error_is_raised_by_every_later_request(reading):
    reading.put(3)
    reading.inbox.fail(AiogroupError("fenced"))
    for call in (reading.one, reading.many, reading.requests.next):
        with pytest.raises(AiogroupError, match="fenced"):
            await call()
    assert reading.assignment[tp(0)].position == 0


async def test_stop_ends_each_kind_of_waiting_request_in_its_way():
    one, many, iterating = Reading(), Reading(), Reading()
    tasks = [
        await waiting(one.one()),
        await waiting(many.many()),
        await waiting(iterating.requests.next()),
    ]
    for reading in (one, many, iterating):
        reading.requests.stop()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(ended[0], ConsumerStoppedError)
    assert ended[1] == []
    assert isinstance(ended[2], StopAsyncIteration)


async def test_nothing_is_handed_out_after_stop(reading):
    reading.put(3)
    assert await reading.one() == 0
    reading.requests.stop()
    with pytest.raises(ConsumerStoppedError):
        await reading.one()
    assert await reading.many() == []
    assert reading.assignment[tp(0)].position == 1


# A new loop.


async def test_new_loop_gets_the_record_that_the_last_one_left_in_hand_and_it_is_reported(reading):
    reading.put(3)
    reading.requests.iterate()
    assert (await reading.requests.next()).offset == 0
    reading.requests.iterate()
    assert (await reading.requests.next()).offset == 0
    assert [(event.name, event.offset) for event in reading.events] == [("record_redelivered", 0)]


# A poison record.


def bad_at(*offsets):
    """A key deserializer that refuses these."""

    def read(key):
        if int(key[1:]) in offsets:
            raise ValueError("unreadable")
        return key

    return {"key_deserializer": read}


def put_bad(reading, number, *offsets):
    partition = reading.assignment[tp(number)]
    partition.put(fetched(partition, 4, **bad_at(*offsets)))


async def test_skip_goes_on_after_the_poison_record_that_the_last_request_raised(reading):
    put_bad(reading, 0, 0, 1)
    for offset in (0, 1):
        with pytest.raises(RecordDeserializationError) as raised:
            await reading.one()
        assert raised.value.offset == offset
        reading.requests.skip(NONE)
    assert await reading.many() == [2, 3]
    assert reading.assignment[tp(0)].ledger.committable == 2


async def test_skip_passes_over_no_record_that_another_request_raised():
    reading = Reading(0, 1)
    put_bad(reading, 0, 0)
    put_bad(reading, 1)
    with pytest.raises(RecordDeserializationError):
        await reading.one()
    assert await reading.many() == [0, 1, 2, 3]
    reading.requests.skip(NONE)  # what is in hand is processed; the poison record was raised before
    assert not reading.delivery.is_in_hand()
    with pytest.raises(RecordDeserializationError):
        await reading.one()


async def test_skip_of_a_named_partition_leaves_the_others_alone():
    reading = Reading(0, 1)
    put_bad(reading, 0, 0)
    put_bad(reading, 1, 0)
    for number in (0, 1):
        with pytest.raises(RecordDeserializationError):
            await reading.requests.one(frozenset({tp(number)}))
    reading.requests.skip(frozenset({tp(0)}))
    assert (await reading.requests.one(frozenset({tp(0)}))).offset == 1
    with pytest.raises(RecordDeserializationError):
        await reading.requests.one(frozenset({tp(1)}))
    assert reading.delivery.in_hand() == {tp(0): 1}


async def test_skip_passes_over_no_record_where_the_partition_was_moved_since_its_poison(reading):
    """The deserializer failed for a moment only, and the application goes back to records before."""
    put_bad(reading, 0, 2)
    assert await reading.many() == [0, 1]
    with pytest.raises(RecordDeserializationError):
        await reading.one()
    partition = reading.assignment[tp(0)]
    reading.delivery.seek(partition, 0)
    partition.put(fetched(partition, 4))
    assert [await reading.one(), await reading.one()] == [0, 1]
    reading.requests.skip(frozenset({tp(0)}))
    assert not reading.delivery.is_in_hand()
    assert await reading.many() == [2, 3]


async def test_skip_of_another_partition_forgets_no_poison_record_that_was_raised():
    reading = Reading(0, 1)
    put_bad(reading, 0, 0)
    with pytest.raises(RecordDeserializationError):
        await reading.one()
    reading.requests.skip(frozenset({tp(1)}))
    reading.requests.skip(NONE)
    assert await reading.one() == 1


async def test_skip_without_a_poison_record_passes_over_nothing(reading):
    reading.put(3)
    reading.requests.skip(frozenset({tp(0)}))
    reading.requests.skip(NONE)
    assert await reading.many() == [0, 1, 2]


# Room for the fetchers.


async def told(signal):
    """A task that ends when the signal is pulsed."""
    task = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    return task


async def test_a_fetcher_that_waits_for_room_is_woken_once_by_the_record_that_makes_some(reading):
    supply = reading.delivery.supply
    reading.put(1)
    reading.put(1, base=1)
    reading.put(1, base=2)
    task = await told(reading.changes[Waiter.FETCHERS])
    assert await reading.one() == 0
    await asyncio.sleep(0)
    assert not task.done(), "nobody waited for room"
    assert not supply.has_freed
    supply.is_room_wanted = True
    assert await reading.one() == 1
    await asyncio.sleep(0)
    assert task.done()
    assert not supply.is_room_wanted
    task = await told(reading.changes[Waiter.FETCHERS])
    assert await reading.one() == 2
    await asyncio.sleep(0)
    assert not task.done(), "it did not ask again"
    task.cancel()


async def test_a_fetcher_is_not_woken_while_nothing_was_used_up(reading):
    reading.put(2)
    reading.delivery.supply.is_room_wanted = True
    task = await told(reading.changes[Waiter.FETCHERS])
    reading.is_open = False
    await waiting(reading.many())
    assert not task.done()
    assert reading.delivery.supply.is_room_wanted
    task.cancel()


# Fairness.


async def steps_of_the_loop(reading, count):
    """How often the loop ran during each of these requests of `async for` that find a slice."""
    turns, seen = [], []

    async def neighbour():
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(neighbour())
    await asyncio.sleep(0)
    for _ in range(count):
        before = len(turns)
        await reading.requests.next()
        seen.append(len(turns) - before)
    task.cancel()
    return seen


@pytest.mark.parametrize(("first_count", "expected"), [(1, [0, 0]), (15, [0, 0]), (16, [0, 1]), (17, [1, 0])])
async def test_a_request_after_one_that_waited_lets_the_loop_run_by_the_count_of_records(
    monkeypatch, first_count, expected
):
    monkeypatch.setattr(turn, "time", SimpleNamespace(monotonic=lambda: 0.0))
    reading = Reading(0, 1, 2)
    task = await waiting(reading.requests.next())
    reading.put(first_count, number=0)
    await task
    assert len(offsets(iter(reading.delivery.cursor.take, None))) == first_count - 1
    reading.put(1, number=1)
    reading.put(1, number=2)
    assert await steps_of_the_loop(reading, 2) == expected


async def test_a_request_after_one_that_waited_lets_the_loop_run_where_the_application_took_the_whole_turn(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(turn, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reading = Reading(0, 1)
    task = await waiting(reading.requests.next())
    reading.put(1, number=0)
    await task
    now[0] += turn.TURN_SECONDS
    reading.put(1, number=1)
    assert await steps_of_the_loop(reading, 1) == [1]


@pytest.mark.parametrize(("count", "expected"), [(16, [0]), (17, [1])])
async def test_the_records_of_other_kinds_of_requests_count_too(monkeypatch, count, expected):
    monkeypatch.setattr(turn, "time", SimpleNamespace(monotonic=lambda: 0.0))
    reading = Reading(0)
    task = await waiting(reading.many())
    reading.put(count)
    await task
    reading.put(1, base=count)
    assert await steps_of_the_loop(reading, 1) == expected


async def test_many_slices_of_one_record_let_the_loop_run(monkeypatch):
    monkeypatch.setattr(turn, "time", SimpleNamespace(monotonic=lambda: 0.0))
    reading = Reading(*range(60))
    for number in range(60):
        reading.put(1, number=number)
    seen = await steps_of_the_loop(reading, 60)
    runs = [number for number, count in enumerate(seen) if count]
    assert [after - before for before, after in itertools.pairwise(runs)] == [17] * (len(runs) - 1)
    assert len(runs) >= 3


@pytest.mark.parametrize("kind", ["one", "many"])
async def test_requests_that_never_wait_let_the_loop_run(reading, kind):
    reading.put(2_000)
    turns = []

    async def neighbour():
        while True:
            turns.append(now_ms())
            await asyncio.sleep(0)

    task = asyncio.create_task(neighbour())
    for _ in range(2_000 if kind == "one" else 200):
        await (reading.one() if kind == "one" else reading.many(max_count=10))
    task.cancel()
    assert len(turns) >= 2_000 // 256
