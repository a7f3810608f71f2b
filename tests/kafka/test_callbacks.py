"""When rebalance callbacks run, what they may do, what becomes of their errors (delivery.md, "Rebalance callbacks")."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.abc import ConsumerRebalanceListener

from aiogroup import AiogroupError, IllegalStateError
from aiogroup._core.telemetry.events import (
    HeartbeatAcknowledged,
    ListenerFailed,
    PartitionsLost,
    PollIntervalExceeded,
    RebalanceStarted,
)
from tests.support.kafka import Ears, Listener, eventually, take, turns


def listening(place, listener, **settings):
    consumer = place.unsubscribed(**settings)
    consumer.subscribe([place.topic], listener=listener)
    return consumer


async def keep_asking(consumer):
    async for _ in consumer:
        pass


async def test_eager_revokes_all_and_assigned_comes_once_per_rebalance_also_when_empty(make_place):
    place, first, second = make_place(), Listener(), Listener()
    tps = frozenset({place.tp()})
    async with listening(place, first) as consumer:
        assert first.calls == [("assigned", tps)]
        asking = asyncio.create_task(keep_asking(consumer))
        async with listening(place, second) as other:
            await eventually(lambda: len(first.calls) == 3)
            assert first.names() == ["assigned", "revoked", "assigned"]
            assert first.calls[1] == ("revoked", tps)
            assert {first.calls[2], second.calls[0]} == {("assigned", tps), ("assigned", frozenset())}
            assert (consumer.assignment() or other.assignment()) == tps
        await eventually(lambda: first.calls[-1] == ("assigned", tps))
        await consumer.stop()
        await asking
    assert first.calls[-1] == ("revoked", tps)


async def test_they_wait_while_the_application_holds_a_record_and_heartbeats_go_on(make_place):
    place, listener, ears = make_place(2), Listener(), Ears()
    await place.produce(range(3))
    async with listening(place, listener, session_timeout_ms=1_000, observers=[ears]) as consumer:
        await asyncio.create_task(take(consumer, 2))  # a task that has ended, so that another one may read on
        other = place.consumer()
        joining = asyncio.create_task(other.start())
        await eventually(lambda: ears.heard(RebalanceStarted)[1:])
        before = len(ears.heard(HeartbeatAcknowledged))
        await eventually(lambda: len(ears.heard(HeartbeatAcknowledged)) >= before + 8)  # longer than the session
        assert listener.names() == ["assigned"]
        assert not joining.done()
        asking = asyncio.create_task(keep_asking(consumer))
        await joining
        await eventually(lambda: listener.names() == ["assigned", "revoked", "assigned"])
        asking.cancel()
        await other.stop()


async def test_they_do_not_wait_when_nothing_was_delivered_or_all_is_processed(make_place):
    place, listener = make_place(2), Listener()
    await place.produce(range(3))
    async with listening(place, listener) as consumer:
        async with place.consumer() as other:  # nobody asks: nothing is in hand
            assert len(other.assignment()) == 1
        await take(consumer, 1)
        await consumer.commit()
        async with place.consumer() as other:
            assert len(other.assignment()) == 1


@pytest.mark.parametrize("callback", ["revoked", "assigned"])
async def test_what_would_deadlock_is_refused_also_in_tasks_started_there(make_place, callback):
    place, listener, refused = make_place(), Listener(), []

    async def call_all(_):
        async def try_one(call):
            try:
                result = call()
                if asyncio.iscoroutine(result):
                    await result
            except IllegalStateError as error:
                assert "callback" in str(error)  # noqa: PT017
                refused.append(call)

        calls = (
            consumer.getone,
            consumer.getmany,
            consumer.poll,
            consumer.__anext__,
            consumer.stop,
            lambda: consumer.subscribe([place.topic]),
            consumer.unsubscribe,
            lambda: consumer.assign([place.tp()]),
        )
        for call in calls:
            await try_one(call)
        await asyncio.gather(*(asyncio.create_task(try_one(call)) for call in calls))

    listener.inside[callback] = call_all
    consumer = listening(place, listener)
    async with consumer:
        pass
    assert len(refused) == 16
    assert listener.names() == ["assigned", "revoked"]


@pytest.mark.parametrize("kind", ["eager", "cooperative-sticky"])
@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_a_worker_for_each_partition_may_be_started_where_partitions_come(make_place, call, kind):
    place, workers, seen = make_place(4), {}, {}

    async def work(consumer, tp):
        while True:
            one = call == "getone"
            batch = [await consumer.getone(tp)] if one else (await consumer.getmany(tp, timeout_ms=100)).all()
            for record in batch:
                seen.setdefault(tp, []).append(record.value.decode())

    class Crew(ConsumerRebalanceListener):
        """aiokafka's way: a task for each partition, ended where the partition leaves."""

        consumer = None

        async def on_partitions_revoked(self, revoked):
            gone = [workers.pop((self.consumer, tp)) for tp in revoked]
            for task in gone:
                task.cancel()
            await asyncio.wait(gone or [asyncio.create_task(turns(1))])
            assert all(task.cancelled() for task in gone), gone

        async def on_partitions_assigned(self, assigned):
            for tp in assigned:
                workers[self.consumer, tp] = asyncio.create_task(work(self.consumer, tp))

    def made():
        crew = Crew()
        crew.consumer = listening(place, crew, partition_assignment_strategy=strategy)
        return crew.consumer

    def has_read(upto):
        ended = [task for task in workers.values() if task.done()]
        assert not ended, ended[0]
        return all(list(dict.fromkeys(seen.get(place.tp(n), []))) == [str(v) for v in range(upto)] for n in range(4))

    async def produce(first, end):
        for number in range(4):
            await place.produce(range(first, end), number)

    strategy = ["range"] if kind == "eager" else [kind]
    async with made() as consumer:
        await produce(0, 5)
        await eventually(lambda: has_read(5))
        async with made() as other:
            await eventually(lambda: (len(consumer.assignment()), len(other.assignment())) == (2, 2))
            await produce(5, 10)
            await eventually(lambda: has_read(10))
            assert {each for each, _ in workers} == {consumer, other}
        await eventually(lambda: len(consumer.assignment()) == 4)
        await produce(10, 15)
        await eventually(lambda: has_read(15))
        assert len(workers) == 4
    assert not workers
    assert await place.committed_is(15, 15, 15, 15)


async def test_what_is_started_in_a_callback_may_subscribe_and_stop_once_it_has_returned(make_place):
    place, more, listener, later = make_place(), make_place(), Listener(), []

    async def subscribe_and_stop():
        with pytest.raises(IllegalStateError, match="callback"):
            await consumer.stop()
        asked.set()
        await returned.wait()
        consumer.subscribe([more.topic])
        await eventually(lambda: consumer.assignment() == {more.tp()})
        return await consumer.stop()

    async def start(_):
        later.append(asyncio.create_task(subscribe_and_stop()))
        asyncio.get_running_loop().call_later(0.3, lambda: later.append(asyncio.create_task(consumer.getmany())))
        await asked.wait()

    asked, returned = asyncio.Event(), asyncio.Event()
    listener.inside["assigned"] = start
    consumer = listening(place, listener)
    await consumer.start()
    listener.inside.clear()
    await eventually(lambda: len(later) == 2)
    assert await later[1] == {}
    returned.set()
    assert (await later[0]).problems == ()


async def test_another_consumer_works_inside_and_may_be_stopped_there(make_place):
    place, other_place, listener, read = make_place(), make_place(), Listener(), []
    await other_place.produce(range(1))

    async def use_another(_):
        read.append((await other.getone()).value)
        read.append(await other.stop())

    listener.inside["assigned"] = use_another
    async with other_place.consumer() as other, listening(place, listener):
        value, report = read
    assert (value, report.problems) == (b"0", ())


async def test_commit_and_seek_work_inside(make_place):
    place, listener = make_place(), Listener()
    await place.produce(range(10))

    async def seek(partitions):
        for tp in partitions:
            assert await consumer.position(tp) == 0
            consumer.seek(tp, 5)

    async def commit(partitions):
        for tp in partitions:
            await consumer.commit({tp: 7})
            assert await consumer.committed(tp) == 7

    listener.inside = {"assigned": seek, "revoked": commit}
    consumer = listening(place, listener, enable_auto_commit=False)
    async with consumer:
        assert await take(consumer, 1) == ["5"]
    assert await place.committed() == 7


async def test_seek_inside_assigned_is_enough_where_no_policy_is(make_place):
    place, listener = make_place(), Listener()
    await place.produce(range(3))

    async def seek(partitions):
        for tp in partitions:
            consumer.seek(tp, 2)

    listener.inside["assigned"] = seek
    consumer = listening(place, listener, auto_offset_reset="none")
    async with consumer:
        assert await take(consumer, 1) == ["2"]


@pytest.mark.parametrize("callback", ["revoked", "assigned"])
async def test_an_exception_does_not_veto_and_is_raised_once_from_the_next_call(make_place, callback):
    place, listener, ears = make_place(2), Listener(), Ears()
    async with listening(place, listener, observers=[ears]) as consumer:

        async def fail(_):
            raise ZeroDivisionError(callback)

        listener.inside[callback] = fail
        async with place.consumer() as other:
            assert len(other.assignment()) == 1
            await eventually(lambda: ears.heard(ListenerFailed))
            await eventually(lambda: len(consumer.assignment()) == 1)
            listener.inside.clear()
            with pytest.raises(ZeroDivisionError, match=callback):
                await consumer.getmany()
            assert await consumer.getmany() == {}
    assert [event.callback for event in ears.heard(ListenerFailed)] == [f"on_partitions_{callback}"]


async def test_the_error_of_the_first_callback_waits_for_the_first_request(make_place):
    place, listener = make_place(), Listener()

    async def fail(_):
        raise ZeroDivisionError

    listener.inside["assigned"] = fail
    async with listening(place, listener) as consumer:
        with pytest.raises(ZeroDivisionError):
            await consumer.getone()
        assert await consumer.getmany() == {}


async def test_heartbeats_go_on_during_a_callback_longer_than_the_session(make_place):
    place, listener, ears = make_place(), Listener(), Ears()

    async def long(_):
        before = len(ears.heard(HeartbeatAcknowledged))
        await eventually(lambda: len(ears.heard(HeartbeatAcknowledged)) >= before + 12)

    listener.inside = {"assigned": long, "revoked": long}
    settings = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 150, "observers": [ears]}
    async with listening(place, listener, **settings) as consumer:
        assert consumer.assignment() == {place.tp()}
    assert listener.names() == ["assigned", "revoked"]
    assert not ears.heard(PartitionsLost)


async def test_a_callback_longer_than_the_poll_interval_loses_the_membership(make_place):
    place, listener, ears = make_place(), Listener(), Ears()
    await place.produce(range(1))

    async def too_long(_):
        if len(listener.calls) == 1:
            await eventually(lambda: ears.heard(PollIntervalExceeded), 5)

    listener.inside["assigned"] = too_long
    consumer = listening(place, listener, session_timeout_ms=1_000, max_poll_interval_ms=1_000, observers=[ears])
    await consumer.start()
    assert await take(consumer, 1) == ["0"]  # lost, and joined again
    assert listener.names() == ["assigned", "lost", "assigned"]
    await consumer.stop()


async def test_so_it_does_while_records_are_waited_for(make_place):
    place, listener, ears = make_place(2), Listener(), Ears()
    settings = {"session_timeout_ms": 1_000, "max_poll_interval_ms": 1_000, "observers": [ears]}
    async with listening(place, listener, **settings) as consumer:
        asking = asyncio.create_task(consumer.getone())

        async def too_long(_):
            if not ears.heard(PollIntervalExceeded):
                await eventually(lambda: ears.heard(PollIntervalExceeded), 5)

        listener.inside["assigned"] = too_long
        await consumer.enforce_rebalance()
        await eventually(lambda: ears.heard(PollIntervalExceeded), 5)
        await eventually(lambda: listener.names()[-2:] == ["lost", "assigned"])
        await place.produce(range(1))
        assert (await asyncio.wait_for(asking, 10)).value == b"0"
        assert len(ears.heard(PollIntervalExceeded)) == 1


async def test_lost_runs_at_the_next_request_and_defaults_to_revoked(make_place):
    place, calls, ears = make_place(), [], Ears()

    class Old(ConsumerRebalanceListener):  # aiokafka's own, with sync callbacks
        def on_partitions_revoked(self, revoked):
            calls.append(("revoked", set(revoked)))

        def on_partitions_assigned(self, assigned):
            calls.append(("assigned", set(assigned)))

    settings = {"session_timeout_ms": 1_000, "max_poll_interval_ms": 1_000, "observers": [ears]}
    async with listening(place, Old(), **settings) as consumer:
        await place.produce(range(2))
        await take(consumer, 1)
        await eventually(lambda: ears.heard(PollIntervalExceeded), 5)
        await turns()
        tps = {place.tp()}
        assert calls == [("assigned", tps)]
        assert await take(consumer, 1) == ["0"]  # it was in hand, so it comes again
        assert calls == [("assigned", tps), ("revoked", tps), ("assigned", tps)]


async def test_lost_runs_in_stop_when_nobody_asks(make_place):
    place, listener, ears = make_place(), Listener(), Ears()
    settings = {"session_timeout_ms": 1_000, "max_poll_interval_ms": 1_000, "observers": [ears]}
    async with listening(place, listener, **settings):
        await eventually(lambda: ears.heard(PollIntervalExceeded), 5)
        assert listener.names() == ["assigned"]
    assert listener.calls[1:] == [("lost", frozenset({place.tp()}))]


async def test_subscribe_runs_them_at_once_and_what_is_in_hand_is_not_processed(make_place):
    place, more, listener = make_place(), make_place(), Listener()
    await place.produce(range(3))
    await more.produce(["other"])
    async with listening(place, listener) as consumer:
        await take(consumer, 2)
        consumer.subscribe([more.topic], listener=listener)
        await eventually(lambda: listener.names() == ["assigned", "revoked", "assigned"])
        assert listener.calls[1:] == [("revoked", frozenset({place.tp()})), ("assigned", frozenset({more.tp()}))]
        assert await place.committed() == 1
        assert await take(consumer, 1) == ["other"]
        consumer.unsubscribe()
        await eventually(lambda: listener.names()[3:] == ["revoked"])
        assert consumer.assignment() == frozenset()
        consumer.assign([place.tp()])
        assert await take(consumer, 1) == ["1"]


async def test_subscribe_ends_the_wait_for_the_hand_over_point(make_place):
    place, listener, ears = make_place(2), Listener(), Ears()
    await place.produce(range(3))
    async with listening(place, listener, observers=[ears]) as consumer:
        await take(consumer, 1)
        await consumer.enforce_rebalance()
        await eventually(lambda: ears.heard(RebalanceStarted)[1:])
        await turns()
        assert listener.names() == ["assigned"]
        consumer.subscribe(pattern=place.topic, listener=listener)
        consumer.unsubscribe()
        await eventually(lambda: listener.names() == ["assigned", "revoked"])


async def test_unsubscribe_and_assign_in_one_go(make_place):
    place, listener = make_place(2), Listener()
    await place.produce(range(2))
    async with listening(place, listener) as consumer:
        await take(consumer, 1)
        consumer.unsubscribe()
        consumer.assign([place.tp(0)])
        await eventually(lambda: consumer.assignment() == {place.tp(0)})
        assert await take(consumer, 1) == ["0"]  # it was in hand, and nobody asked for the next before the switch
        assert listener.names() == ["assigned", "revoked"]
        assert listener.calls[1] == ("revoked", frozenset({place.tp(0), place.tp(1)}))
        assert consumer.assignment() == {place.tp(0)}
        assert await take(consumer, 1) == ["1"]


@pytest.mark.parametrize("callback", ["revoked", "assigned"])
async def test_one_that_awaits_something_cancelled_is_reported_and_costs_nothing(make_place, callback):
    place, listener = make_place(), Listener()
    await place.produce(range(2))

    async def await_a_cancelled_task(_):
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    consumer = listening(place, listener)
    async with consumer:
        assert await take(consumer, 1) == ["0"]
        listener.inside[callback] = await_a_cancelled_task
        await consumer.enforce_rebalance()
        with pytest.raises(AiogroupError, match=f"on_partitions_{callback} raised CancelledError"):
            await asyncio.wait_for(consumer.getone(), 10)
        listener.inside.clear()
        assert await take(consumer, 1) == ["1"]
