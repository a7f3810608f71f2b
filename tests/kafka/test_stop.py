"""How a consumer ends (delivery.md, "Stop"): in order, within its time-out, and saying what it could not do."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import AiogroupError, ConnectionLostError, ConsumerStoppedError, StopReport
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.telemetry import events
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, Place, eventually, take, turns
from tests.support.punctuality import timed


def listening(place, listener, **settings):
    consumer = place.unsubscribed(**settings)
    consumer.subscribe([place.topic], listener=listener)
    return consumer


async def test_the_order_is_commit_callback_leave(make_place):
    place, listener, committed = make_place(), Listener(), []
    await place.produce(range(3))

    async def look(_):
        committed.append(await place.committed())
        await consumer.commit({place.tp(): 1})

    listener.inside["revoked"] = look
    consumer = listening(place, listener, auto_commit_interval_ms=600_000)
    await consumer.start()
    await take(consumer, 3)
    report = await consumer.stop()
    assert committed == [2]  # processed offsets before the callback
    assert listener.calls[1:] == [("revoked", frozenset({place.tp()}))]
    assert report.in_hand == {place.tp(): 1}
    async with place.consumer(session_timeout_ms=60_000) as other:  # left: nobody waits for a session
        assert other.assignment() == {place.tp()}


async def test_a_pending_request_ends_as_its_kind_does(make_place):
    place = make_place()
    for call in ("getone", "getmany", "poll", "async for"):
        async with place.consumer() as consumer:
            asking = {
                "getone": consumer.getone,
                "getmany": lambda consumer=consumer: consumer.getmany(timeout_ms=60_000),
                "poll": consumer.poll,
                "async for": lambda consumer=consumer: _all(consumer),
            }[call]
            pending = asyncio.create_task(asking())
            await turns()
            report, took_ms, _ = await timed(consumer.stop())
            assert took_ms < 5_000
            assert report == StopReport()
            assert report.is_clean
            if call == "getone":
                with pytest.raises(ConsumerStoppedError):
                    await pending
            else:
                assert not await asyncio.wait_for(pending, 10)


async def _all(consumer):
    return [record async for record in consumer]


async def test_every_later_call_raises(make_place):
    place = make_place()
    async with place.consumer() as consumer:
        pass
    for call in (
        consumer.start,
        consumer.getone,
        consumer.getmany,
        consumer.poll,
        consumer.commit,
        lambda: consumer.committed(place.tp()),
        lambda: consumer.position(place.tp()),
        consumer.lag,
        consumer.skip,
        consumer.topics,
        consumer.seek_to_beginning,
        consumer.enforce_rebalance,
        lambda: _all(consumer),
        lambda: consumer.end_offsets([place.tp()]),
    ):
        with pytest.raises(ConsumerStoppedError):
            await call()
    for call in (
        lambda: consumer.subscribe([place.topic]),
        lambda: consumer.assign([place.tp()]),
        consumer.unsubscribe,
        lambda: consumer.seek(place.tp(), 0),
        lambda: consumer.current_lag(place.tp()),
        consumer.lags,
        lambda: consumer.pause(place.tp()),
        consumer.group_metadata,
    ):
        with pytest.raises(ConsumerStoppedError):
            call()


async def test_it_is_idempotent_and_concurrent_stops_get_one_report(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(1))
    consumer = place.consumer(observers=[ears])
    await consumer.start()
    await take(consumer, 1)
    first, second = await asyncio.gather(consumer.stop(timeout_ms=1_000), consumer.stop())
    assert first is second
    assert await consumer.stop() is first
    assert first.in_hand == {place.tp(): 1}
    assert len(ears.heard(events.ConsumerStopped)) == 1
    never_started = place.consumer()
    assert (await never_started.stop()).is_clean


async def test_another_task_may_finish_what_it_holds(make_place):
    place = make_place()
    await place.produce(range(3))
    working, finish, seen = asyncio.Event(), asyncio.Event(), []

    async def work():
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 1:
                working.set()
                await finish.wait()

    consumer = place.consumer()
    await consumer.start()
    task = asyncio.create_task(work())
    await working.wait()
    stopping = asyncio.create_task(consumer.stop(timeout_ms=10_000))
    await turns()
    assert not stopping.done()
    finish.set()
    report = await stopping
    await task
    assert seen == [0, 1]
    assert report.is_clean
    assert await place.committed() == 2


@pytest.mark.parametrize("auto_ack", [True, False])
async def test_it_waits_for_every_worker(make_place, auto_ack):
    place, finish = make_place(2), asyncio.Event()
    for partition in (0, 1):
        await place.produce(range(1), partition)

    async def work(tp):
        record = await consumer.getone(tp)
        if tp == place.tp(0):
            await finish.wait()
        if not auto_ack:
            record.ack()
            return
        with pytest.raises(ConsumerStoppedError):  # to ask again says that it is processed
            await consumer.getone(tp)

    consumer = place.consumer(auto_ack=auto_ack)
    await consumer.start()
    workers = [asyncio.create_task(work(place.tp(partition))) for partition in (0, 1)]
    await eventually(lambda: _position(consumer, place.tp(0), 1))
    await eventually(lambda: _position(consumer, place.tp(1), 1))
    stopping = asyncio.create_task(consumer.stop(timeout_ms=10_000))
    await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    await asyncio.sleep(0.1)
    assert not stopping.done()
    finish.set()
    assert (await stopping).is_clean
    await asyncio.gather(*workers)
    assert (await place.committed(0), await place.committed(1)) == (1, 1)


@pytest.mark.parametrize("drain", [True, False])
async def test_it_waits_at_most_half_of_the_time_out_for_what_is_held(make_place, drain):
    place = make_place()
    await place.produce(range(3))

    async def hold():
        async for _ in consumer:
            await asyncio.sleep(60)

    consumer = place.consumer()
    await consumer.start()
    task = asyncio.create_task(hold())
    await eventually(lambda: _position(consumer, place.tp(), 1))
    report, took_ms, late_ms = await timed(consumer.stop(timeout_ms=3_000, drain=drain))
    assert report.in_hand == {place.tp(): 1}
    assert took_ms - late_ms < (2_500 if drain else 1_400)
    assert took_ms >= 1_400 or not drain
    task.cancel()
    assert await place.committed() in (None, 0)


async def _position(consumer, tp, offset):
    return await consumer.position(tp) == offset


async def test_the_task_that_holds_a_record_does_not_wait_for_itself(make_place):
    place = make_place()
    await place.produce(range(3))
    async with place.consumer() as consumer:
        async for _ in consumer:
            report, took_ms, _ = await timed(consumer.stop())
        assert took_ms < 5_000
        assert report.in_hand == {place.tp(): 1}


@pytest.mark.parametrize("leave", [None, True, False])
@pytest.mark.parametrize("static", [True, False])
async def test_dynamic_members_leave_and_static_ones_keep_their_name(make_place, leave, static):
    place = make_place()
    settings = {"session_timeout_ms": 60_000, **({"group_instance_id": "one"} if static else {})}
    consumer = place.consumer(**settings)
    await consumer.start()
    await consumer.stop(leave_group=leave)
    async with place.admin() as admin:
        (described,) = (await admin.describe_consumer_groups([place.group]))[0].groups
    members = described[5]
    expected = leave if leave is not None else not static
    assert bool(members) != expected


async def test_a_running_callback_ends_and_none_runs_twice(make_place):
    place, listener, ended, began = make_place(), Listener(), [], asyncio.Event()

    async def slow(_):
        began.set()
        await asyncio.sleep(0.3)
        ended.append(True)

    listener.inside["revoked"] = slow
    consumer = listening(place, listener)
    await consumer.start()
    await consumer.enforce_rebalance()
    await asyncio.wait_for(began.wait(), 10)
    report = await consumer.stop()
    assert report.is_clean
    assert listener.names() == ["assigned", "revoked"]
    assert ended == [True]


async def test_what_a_callback_raised_at_the_end_is_in_the_report(make_place):
    place, listener = make_place(), Listener()

    async def fail(_):
        raise ZeroDivisionError("no more calls to raise it from")

    listener.inside["revoked"] = fail
    consumer = listening(place, listener)
    await consumer.start()
    report = await consumer.stop()
    assert not report.is_clean
    assert report.problems == ("not raised any more: ZeroDivisionError('no more calls to raise it from')",)


async def test_an_error_of_a_callback_needs_no_repr(make_place):
    class BlankError(Exception):
        def __repr__(self):
            return self.args[0].decode()

    async def fail(_):
        raise BlankError(None)

    place, listener, ears = make_place(), Listener(), Ears()
    listener.inside["revoked"] = fail
    consumer = listening(place, listener, observers=[ears])
    await consumer.start()
    report = await consumer.stop()
    (problem,) = report.problems
    (failed,) = ears.heard(events.ListenerFailed)
    assert "BlankError object at" in problem
    assert "BlankError object at" in failed.error


async def test_async_with_stops_also_on_cancellation(make_place):
    place, listener, ears = make_place(), Listener(), Ears()
    await place.produce(range(3))
    holding = asyncio.Event()

    async def work():
        async with listening(place, listener, auto_commit_interval_ms=600_000, observers=[ears]) as consumer:
            async for record in consumer:
                if record.offset == 2:
                    holding.set()
                    await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await holding.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert listener.names() == ["assigned", "revoked"]
    assert await place.committed() == 2
    assert ears.heard(events.ConsumerStopped)


async def test_an_error_in_the_block_is_not_hidden(make_place):
    place = make_place()
    consumer = place.consumer()

    async def fail():
        async with consumer:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()


@pytest.mark.parametrize("state", ["paused", "killed"])
@pytest.mark.parametrize("timeout_ms", [0, 1_000])
async def test_it_is_bounded_when_the_broker_is_gone_and_says_what_was_not_done(
    cluster_1, unique_name, state, timeout_ms
):
    (node,) = cluster_1.nodes
    place, listener = Place(cluster_1, unique_name("topic"), unique_name("group")), Listener()
    await asyncio.to_thread(cluster_1.create_topic, place.topic)
    await place.produce(range(3))
    consumer = listening(place, listener, auto_commit_interval_ms=600_000)
    await consumer.start()
    await take(consumer, 3)
    await asyncio.to_thread(node.pause if state == "paused" else node.kill)
    try:
        report, took_ms, late_ms = await timed(consumer.stop(timeout_ms=timeout_ms))
        assert took_ms - late_ms <= timeout_ms + 400
        assert report.not_committed == {place.tp(): 2}
        assert report.in_hand == {place.tp(): 1}
        assert report.problems
        assert not report.is_clean
        assert listener.names() == ["assigned", "revoked"]
    finally:
        await asyncio.to_thread(node.resume if state == "paused" else node.start)


async def test_start_and_the_end_of_the_block_are_bounded_where_no_broker_is(kafka_cluster):
    consumer = Place(kafka_cluster, "none", "none").consumer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        await asyncio.wait_for(consumer.start(), 5)
    assert (await consumer.stop()).is_clean


async def test_a_commit_on_its_way_is_answered_before_the_member_leaves(make_place):
    """They go different ways: a commit that LeaveGroup overtakes is refused, and its records are repeated."""
    place, listener = make_place(), Listener()
    await place.produce(range(2))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        settings = {"bootstrap_servers": proxy.bootstrap_servers, "enable_auto_commit": False}
        consumer = listening(place, listener, **settings)
        await consumer.start()
        await take(consumer, 2)
        answered = asyncio.Event()
        proxy.hold(OffsetCommitRequest, until=answered)
        committing = asyncio.create_task(consumer.commit())
        await eventually(lambda: proxy.count(OffsetCommitRequest))
        stopping = asyncio.create_task(consumer.stop(drain=False))
        await eventually(lambda: "revoked" in listener.names())
        await turns(200)
        assert not proxy.count(LeaveGroupRequest)
        answered.set()
        await committing
        assert not (await stopping).problems
        assert proxy.count(LeaveGroupRequest) == 1
    assert await place.committed() == 2


async def test_a_commit_that_is_never_answered_is_reported(make_place):
    place = make_place()
    await place.produce(range(2))
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        consumer = place.consumer(bootstrap_servers=proxy.bootstrap_servers, enable_auto_commit=False)
        await consumer.start()
        await take(consumer, 2)
        proxy.drop(OffsetCommitRequest)
        committing = asyncio.create_task(consumer.commit())
        await eventually(lambda: proxy.count(OffsetCommitRequest))
        report = await consumer.stop(timeout_ms=2_000, drain=False)
        with pytest.raises(AiogroupError):
            await committing
    assert "commits on their way: not done in time" in report.problems
    assert proxy.count(LeaveGroupRequest) == 1
