"""Observers of records: when the handling of a record begins and ends, and in whose context."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar

import pytest

from aiogroup import Consumer, IllegalStateError
from aiogroup._core.native import Cursor
from aiogroup._core.telemetry.events import ObserverFailed
from aiogroup.embedded import Broker

inside = ContextVar("inside", default=None)


class Watch:
    """Notes what it is told, and sets a context variable while a record is handled."""

    def __init__(self):
        self.told = []
        self.events = []

    def on_event(self, event):
        self.events.append(event)

    def begin_record(self, record, whose):
        self.told.append(("begin", record.offset))
        self.whose = whose
        token = inside.set(record.offset)

        def end(error):
            self.told.append(("end", record.offset, error))
            inside.reset(token)

        return end

    def on_poll(self, records, began_ns, duration_ns, error, whose):
        self.told.append(("poll", None if records is None else records.count, error))

    def on_commit(self, topics, began_ns, duration_ns, error, whose):
        self.told.append(("commit", sorted(topics), error))


@pytest.fixture
async def broker():
    async with Broker() as broker:
        broker.create_topic("orders", 1)
        for number in range(6):
            broker.produce("orders", b"%d" % number)
        yield broker


def consumer_of(broker, *observers, **settings):
    settings = {"group_id": "ours", "auto_offset_reset": "earliest"} | settings
    return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, observers=observers, **settings)


async def test_without_such_an_observer_the_loop_gets_the_cursor_itself(broker):
    class Ears:
        def on_event(self, event):
            pass

    async with consumer_of(broker, Ears()) as consumer:
        assert type(aiter(consumer)) is Cursor
        assert type(aiter(consumer.merged())) is Cursor
    async with consumer_of(broker, Watch()) as consumer:
        assert type(aiter(consumer)) is not Cursor


async def test_a_record_is_handled_from_one_request_to_the_next_in_the_context_of_the_body(broker):
    watch, seen = Watch(), []
    async with consumer_of(broker, watch) as consumer:
        async for record in consumer:
            seen.append((inside.get(), await asyncio.create_task(in_a_task())))
            if record.offset == 2:
                break
        assert inside.get() is None
    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert watch.told == [
        ("begin", 0), ("end", 0, None), ("begin", 1), ("end", 1, None), ("begin", 2), ("end", 2, "not_processed"),
    ]  # fmt: skip
    assert watch.whose.group_id == "ours"
    assert watch.whose.generation == 1
    assert watch.whose.cluster_id


async def test_the_generation_is_that_of_the_record(broker):
    watch, generations = Watch(), []
    async with consumer_of(broker, watch, heartbeat_interval_ms=50) as consumer:
        async for record in consumer:
            generations.append((watch.whose.generation, consumer.group_metadata().generation))
            if record.offset == 5:
                async with consumer_of(broker, heartbeat_interval_ms=50, client_id="other"):
                    while consumer.group_metadata().generation == 1:  # noqa: ASYNC110 (nothing tells of it)
                        await asyncio.sleep(0.01)
                broker.produce("orders", b"last")
            if record.offset == 6:
                break
    assert {mine == watched for watched, mine in generations} == {True}
    assert generations[-1][0] > generations[0][0] == 1


async def fail(consumer):
    async for _ in consumer:
        1 / 0  # noqa: B018


async def in_a_task():
    return inside.get()


async def test_what_a_loop_left_in_hand_comes_again_and_is_begun_again(broker):
    watch = Watch()
    async with consumer_of(broker, watch) as consumer:
        with pytest.raises(ZeroDivisionError):
            await fail(consumer)
        assert inside.get() is None
        record = await anext(aiter(consumer))
        assert record.offset == 0
        gc.collect()
    assert watch.told[:3] == [("begin", 0), ("end", 0, "not_processed"), ("begin", 0)]


async def test_nothing_is_handled_while_a_record_is_waited_for(broker):
    watch = Watch()
    async with consumer_of(broker, watch, auto_offset_reset="latest") as consumer:
        records = aiter(consumer)
        waiting = asyncio.create_task(anext(records))
        await asyncio.sleep(0)
        assert watch.told == []
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        broker.produce("orders", b"new")
        assert (await anext(records)).offset == 6
        assert watch.told == [("begin", 6)]


async def test_the_end_of_the_loop_is_the_end_of_its_last_record(broker):
    watch = Watch()
    async with consumer_of(broker, watch) as consumer:
        async for record in consumer:
            if record.offset == 5:
                stopping = asyncio.create_task(consumer.stop())
                await asyncio.sleep(0)
        assert inside.get() is None
        await stopping
    assert watch.told[-1] == ("end", 5, None)


async def test_two_tasks_have_a_record_each(broker):
    watch, both = Watch(), asyncio.Barrier(2)
    async with consumer_of(broker, watch, auto_ack=False) as consumer:
        seen = {}

        async def work(name):
            record = await consumer.getone()
            await both.wait()
            seen[name] = (record.offset, inside.get())
            await both.wait()

        await asyncio.gather(work("a"), work("b"))
        assert sorted(seen.values()) == [(0, 0), (1, 1)]
        await consumer.getone()
        assert ("end", 0, None) in watch.told
        assert ("end", 1, None) in watch.told


async def test_what_a_task_holds_when_the_consumer_is_closed_is_not_processed(broker):
    watch = Watch()
    async with consumer_of(broker, watch) as consumer:
        await consumer.getone()
    assert watch.told == [("begin", 0), ("end", 0, "not_processed")]


async def test_batches_and_commits_are_told_with_their_errors(broker):
    watch = Watch()
    async with consumer_of(broker, watch, enable_auto_commit=False) as consumer:
        records = await consumer.getmany(timeout_ms=5_000)
        (tp,) = records
        await consumer.commit()
        await consumer.commit({tp: 1})
        with pytest.raises(ValueError, match="offset"):
            await consumer.commit({tp: -5})
        await consumer.poll(0)
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError):
            await consumer.poll(10)
    assert watch.told == [
        ("poll", records.count, None), ("commit", [], None), ("commit", ["orders"], None),
        ("commit", ["orders"], "ValueError"), ("poll", 6 - records.count, None), ("poll", None, "IllegalStateError"),
    ]  # fmt: skip


async def test_a_merge_is_told_of_too(broker):
    watch = Watch()
    async with consumer_of(broker, watch) as consumer:
        async for record in consumer.merged():
            assert inside.get() == record.offset
            if record.offset == 1:
                break
    assert watch.told[-2:] == [("begin", 1), ("end", 1, "not_processed")]


class Faulty(Watch):
    def __init__(self, where):
        super().__init__()
        self.where = where

    def begin_record(self, record, whose):
        if self.where == "begin":
            raise ZeroDivisionError

        def end(error):
            raise ZeroDivisionError

        return end


@pytest.mark.parametrize("where", ["begin", "end"])
async def test_a_faulty_observer_is_left_out_and_told_of_once(broker, where):
    watch = Watch()
    async with consumer_of(broker, Faulty(where), watch) as consumer:
        async for record in consumer:
            if record.offset == 5:
                break
    assert [each for each in watch.told if each[0] == "begin"] == [("begin", number) for number in range(6)]
    failed = [each for each in watch.events if isinstance(each, ObserverFailed)]
    assert [each.observer for each in failed] == ["Faulty"]
