"""`async with consumer.paused():` keeps the membership and what is in hand, and hands out nothing. In virtual time."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from aiogroup import CommitFailedError, Consumer, ConsumerStoppedError, IllegalStateError, RebalanceListener
from aiogroup import TopicPartition as Tp
from aiogroup.embedded import Broker, run_virtual, stable

POLL_S = 20
OUTAGE_S = 3 * POLL_S


class Told(RebalanceListener):
    def __init__(self):
        self.names = []
        self.calls = []

    def on_event(self, event):
        self.names.append(event.name)

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", sorted(tp.partition for tp in revoked)))

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", sorted(tp.partition for tp in assigned)))

    def on_partitions_lost(self, lost):
        self.calls.append(("lost", sorted(tp.partition for tp in lost)))


class Place:
    def __init__(self, broker):
        self.broker = broker
        self.clock = broker.clock
        self.told = Told()

    def consumer(self, *, listens=False, **settings):
        told = self.told
        given = {"auto_offset_reset": "earliest", "max_poll_interval_ms": POLL_S * 1_000, "fetch_max_wait_ms": 100}
        return Consumer(
            "t",
            bootstrap_servers=self.broker.bootstrap_servers,
            group_id="g",
            listener=told if listens else None,
            observers=[told],
            session_timeout_ms=10_000,
            metadata_max_age_ms=1_000,
            **{**given, **settings},
        )

    def produce(self, *values, partition=0):
        for value in values:
            self.broker.produce("t", str(value).encode(), partition=partition)

    def committed(self, partition=0):
        return self.broker.committed("g").get(Tp("t", partition))


def plays(script, partitions=1):
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("t", partitions)
            await script(Place(broker))

    run_virtual(play())


async def gets_nothing(consumer, *tps, ms=2_000):
    assert (await consumer.getmany(*tps, timeout_ms=ms)).count == 0


async def values(consumer, count):
    return [(await consumer.getone()).value.decode() for _ in range(count)]


# Without a record in hand.


def test_it_keeps_the_membership_for_longer_than_the_poll_interval_and_then_goes_on():
    async def script(place):
        async with place.consumer() as consumer:
            since = len(place.told.names)
            async with consumer.paused():
                place.produce("a", "b")
                await place.clock.pass_s(OUTAGE_S)
                assert consumer.health().status == "paused"
                assert consumer.health().is_alive
                assert not consumer.health().is_ready
                assert consumer.paused() == consumer.assignment() == {Tp("t", 0)}
            assert consumer.health().status == "ready"
            assert consumer.paused() == frozenset()
            assert await values(consumer, 2) == ["a", "b"]
            heard = set(place.told.names[since:])
            assert not heard & {"poll_interval_warning", "poll_interval_exceeded", "rebalance_started", "member_moved"}

    plays(script)


def test_the_poll_interval_runs_again_after_it():
    async def script(place):
        place.produce("a")
        async with place.consumer() as consumer:
            await consumer.getone()
            async with consumer.paused():
                await place.clock.pass_s(OUTAGE_S)
            await place.clock.pass_s(POLL_S - 1)
            assert "poll_interval_exceeded" not in place.told.names
            await place.clock.pass_s(2)
            assert "poll_interval_exceeded" in place.told.names

    plays(script)


def test_a_member_that_was_parked_joins_again_in_it():
    async def script(place):
        async with place.consumer() as consumer:
            await place.clock.pass_s(POLL_S + 2)
            assert consumer.health().status == "parked"
            async with consumer.paused():
                await place.broker.until(stable("g", members=1), 30)
                await place.clock.pass_s(OUTAGE_S)
                assert consumer.health().status == "paused"

    plays(script)


def test_since_when_and_why():
    async def script(place):
        async with place.consumer() as consumer:
            assert consumer.health().status == "ready"
            async with consumer.paused():
                assert consumer.health().since_ms == 0
                await place.clock.pass_s(7)
                health = consumer.health()
                assert (health.why, health.since_ms) == ("the application has paused all partitions", 7_000)

    plays(script)


def test_pause_of_all_partitions_is_that_state_too_and_of_some_is_not():
    async def script(place):
        async with place.consumer() as consumer:
            consumer.pause(Tp("t", 0))
            assert consumer.health().status == "ready"
            consumer.pause(Tp("t", 1))
            assert consumer.health().status == "paused"
            consumer.resume(Tp("t", 0))
            assert consumer.health().status == "ready"

    plays(script, partitions=2)


# What is paused, and what is not any more.


def test_what_was_paused_before_stays_paused():
    async def script(place):
        place.produce("a")
        place.produce("b", partition=1)
        async with place.consumer() as consumer:
            consumer.pause(Tp("t", 1))
            async with consumer.paused():
                assert consumer.paused() == {Tp("t", 0), Tp("t", 1)}
            assert consumer.paused() == {Tp("t", 1)}
            assert await values(consumer, 1) == ["a"]
            await gets_nothing(consumer)
            consumer.resume(Tp("t", 1))
            assert await values(consumer, 1) == ["b"]

    plays(script, partitions=2)


def test_resume_in_it_is_about_pause_alone():
    async def script(place):
        place.produce("a")
        async with place.consumer() as consumer:
            consumer.pause(Tp("t", 0))
            async with consumer.paused():
                consumer.resume(Tp("t", 0))
                await gets_nothing(consumer)
            assert await values(consumer, 1) == ["a"]

    plays(script)


def test_pause_in_it_outlives_it():
    async def script(place):
        place.produce("a")
        async with place.consumer() as consumer:
            async with consumer.paused():
                consumer.pause(Tp("t", 0))
            await gets_nothing(consumer)

    plays(script)


def test_blocks_may_be_nested_and_overlap():
    async def script(place):
        place.produce("a")
        place.produce("b", partition=1)
        async with place.consumer() as consumer:
            outer, inner = consumer.paused(), consumer.paused(Tp("t", 0))
            await outer.__aenter__()
            await inner.__aenter__()
            await gets_nothing(consumer)
            await outer.__aexit__(None, None, None)
            assert consumer.paused() == {Tp("t", 0)}
            assert await values(consumer, 1) == ["b"]
            await gets_nothing(consumer)
            async with inner:
                pass
            await gets_nothing(consumer)
            await inner.__aexit__(None, None, None)
            assert await values(consumer, 1) == ["a"]

    plays(script, partitions=2)


def test_with_names_the_others_go_on():
    async def script(place):
        place.produce("a")
        place.produce("b", partition=1)
        async with place.consumer() as consumer, consumer.paused(Tp("t", 0)):
            assert await values(consumer, 1) == ["b"]
            await gets_nothing(consumer)
            assert consumer.health().status == "ready"

    plays(script, partitions=2)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_that_come_meanwhile_are_paused_too(strategy):
    async def script(place):
        async with place.consumer(partition_assignment_strategy=(strategy,)) as consumer:
            async with consumer.paused():
                place.broker.add_partitions("t", 2)
                await place.broker.until(lambda: len(consumer.assignment()) == 3, 60)
                for number in range(3):
                    place.produce(number, partition=number)
                await gets_nothing(consumer)
                assert consumer.paused() == consumer.assignment()
                assert consumer.health().status == "paused"
            assert sorted(await values(consumer, 3)) == ["0", "1", "2"]

    plays(script)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_named_one_that_comes_back_is_paused_again_and_others_are_not(strategy):
    async def script(place):
        settings = {"partition_assignment_strategy": (strategy,)}
        async with place.consumer(**settings) as consumer, consumer.paused(Tp("t", 0)):
            place.broker.add_partitions("t", 1)
            await place.broker.until(lambda: len(consumer.assignment()) == 2, 60)
            place.produce("a")
            place.produce("b", partition=1)
            assert await values(consumer, 1) == ["b"]
            await gets_nothing(consumer)
            assert consumer.paused() == {Tp("t", 0)}

    plays(script)


def test_partitions_that_are_assigned_by_name_meanwhile_are_paused_too():
    async def script(place):
        place.produce("a", partition=1)
        async with place.consumer() as consumer:
            consumer.unsubscribe()
            consumer.assign([Tp("t", 0)])
            async with consumer.paused():
                consumer.assign([Tp("t", 0), Tp("t", 1)])
                await gets_nothing(consumer)
                assert consumer.paused() == {Tp("t", 0), Tp("t", 1)}
            assert await values(consumer, 1) == ["a"]

    plays(script, partitions=2)


def test_both_lanes_are_paused_and_a_lane_that_begins_in_it():
    async def script(place):
        lanes = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1, "enable_auto_commit": False}
        place.produce(*range(4))
        async with place.consumer(enable_auto_commit=False) as consumer:
            await consumer.commit({Tp("t", 0): 1})
        made = place.consumer(**lanes, partition_assignment_strategy=("range",))
        async with made as consumer:
            async with consumer.paused():
                place.produce("new")
                await gets_nothing(consumer)
                await consumer.enforce_rebalance()
                await gets_nothing(consumer)
                assert place.told.names.count("catch_up_started") == 2, "the lanes began anew"
            assert sorted(await values(consumer, 4)) == ["1", "2", "3", "new"]

    plays(script)


# How it ends.


def test_an_error_and_a_cancellation_end_it():
    async def script(place):
        place.produce("a")
        async with place.consumer() as consumer:
            with pytest.raises(ZeroDivisionError):
                async with consumer.paused():
                    raise ZeroDivisionError
            assert consumer.paused() == frozenset()
            task = asyncio.ensure_future(stays_in(consumer))
            await place.clock.pass_s(1)
            assert consumer.paused() == {Tp("t", 0)}
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer.paused() == frozenset()
            assert await values(consumer, 1) == ["a"]

    plays(script)


async def stays_in(consumer):
    async with consumer.paused():
        await asyncio.get_running_loop().create_future()


def test_what_is_revoked_in_it_is_let_go_and_not_resumed():
    async def script(place):
        place.produce("a")
        place.produce("b", partition=1)
        async with place.consumer(listens=True) as consumer:
            async with consumer.paused(), place.consumer() as other:
                await place.broker.until(lambda: len(consumer.assignment()) == len(other.assignment()) == 1, 60)
                (kept,) = consumer.assignment()
                assert consumer.paused() == {kept}
                assert len(await values(other, 1)) == 1
            assert consumer.paused() == frozenset()
            assert ("revoked", [0, 1]) in place.told.calls

    plays(script, partitions=2)


def test_stop_does_not_wait_for_it_and_its_end_is_quiet():
    async def script(place):
        place.produce("a", "b")
        entered, ended = asyncio.Event(), asyncio.Event()

        async def body():
            async for _ in consumer:
                async with consumer.paused():
                    entered.set()
                    await place.clock.pass_s(OUTAGE_S)
                ended.set()

        consumer = place.consumer()
        async with consumer:
            task = asyncio.ensure_future(body())
            await entered.wait()
            began_ms = place.clock.now_ms
            report = await consumer.stop()
            assert place.clock.now_ms - began_ms < 1_000, "nobody processes what is in hand"
            assert report.in_hand == {Tp("t", 0): 1}
            await task
            assert ended.is_set()
        assert place.committed() in (None, 0)
        with pytest.raises(ConsumerStoppedError):
            consumer.paused()

    plays(script)


def test_it_is_not_entered_after_stop():
    async def script(place):
        async with place.consumer() as consumer:
            block = consumer.paused()
        with pytest.raises(ConsumerStoppedError):
            async with block:
                pass

    plays(script)


def test_a_rebalance_callback_cannot_wait_in_it():
    async def script(place):
        errors = []

        class Waits(Told):
            async def on_partitions_assigned(self, assigned):
                try:
                    async with consumer.paused():
                        await place.clock.pass_s(OUTAGE_S)
                except IllegalStateError as error:
                    errors.append(str(error))

        place.told = Waits()
        place.produce("a")
        consumer = place.consumer(listens=True)
        async with consumer:
            assert await asyncio.wait_for(values(consumer, 1), 10) == ["a"]
            assert len(errors) == 1
            assert "inside a rebalance callback" in errors[0]
            assert consumer.paused() == frozenset()
            assert "poll_interval_exceeded" not in place.told.names

    plays(script)


# With a record in hand.


def test_the_record_stays_in_hand_and_is_not_committed_until_the_next_is_asked_for():
    async def script(place):
        place.produce("a", "b")
        async with place.consumer(auto_commit_interval_ms=100) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if record.offset == 0:
                    async with consumer.paused():
                        await place.clock.pass_s(OUTAGE_S)
                        assert place.committed() in (None, 0)
                else:
                    await place.clock.pass_s(1)
                    assert place.committed() == 1
                    break
            assert seen == [b"a", b"b"]

    plays(script)


@pytest.mark.parametrize("auto_ack", [True, False])
@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_rebalance_does_not_wait_for_it_and_nothing_is_lost(strategy, listens, auto_ack):
    async def script(place):
        for partition in range(2):
            place.produce(*range(3), partition=partition)
        settings = {"partition_assignment_strategy": (strategy,), "auto_ack": auto_ack}
        async with place.consumer(listens=listens, **settings) as consumer:
            first = await consumer.getone()
            await consumer.getone()  # which processes the first, with auto_ack
            async with consumer.paused():
                began_ms = place.clock.now_ms
                async with place.consumer(**settings) as other:
                    await place.broker.until(lambda: len(other.assignment()) == 1, 60)
                    assert place.clock.now_ms - began_ms < 10_000, "the group does not wait for the outage"
                    (theirs,) = other.assignment()
                    done = {(first.tp, first.offset)} if auto_ack else set()
                    left = [offset for offset in range(3) if (theirs, offset) not in done]
                    assert [(await other.getone()).offset for _ in left] == left

    plays(script, partitions=2)


def test_a_commit_after_it_says_that_the_partition_went():
    async def script(place):
        place.produce(*range(3))
        settings = {"partition_assignment_strategy": ("range",), "enable_auto_commit": False}
        async with place.consumer(**settings) as consumer:
            await consumer.getone()
            async with consumer.paused():
                async with place.consumer(**settings) as other:
                    await place.broker.until(stable("g", members=2), 60)
                    owner = other if other.assignment() else consumer
                    record = await owner.getone() if owner is other else None
                    assert record is None or record.offset == 0
                with pytest.raises(CommitFailedError) as raised:
                    await consumer.commit()
                assert raised.value.not_owned == {Tp("t", 0)}

    plays(script)


@pytest.mark.parametrize("enable_auto_commit", [True, False])
def test_a_commit_says_so_too_where_the_outage_ends_while_the_partition_goes(enable_auto_commit):
    async def script(place):
        place.produce("a")
        goes, is_up = asyncio.Event(), asyncio.Event()

        class Slow(Told):
            async def on_partitions_revoked(self, revoked):
                goes.set()
                await is_up.wait()

        place.told = Slow()
        settings = {"partition_assignment_strategy": ("range",), "enable_auto_commit": enable_auto_commit}
        async with place.consumer(listens=True, **settings) as consumer:
            await consumer.getone()
            async with consumer.paused():
                await consumer.enforce_rebalance()
                await goes.wait()
            is_up.set()
            await place.broker.until(lambda: "partitions_revoked" in place.told.names, 60)
            with pytest.raises(CommitFailedError) as raised:
                await consumer.commit()
            assert raised.value.not_owned == {Tp("t", 0)}

    plays(script)


def test_what_another_task_processes_is_waited_for():
    async def script(place):
        for partition in range(2):
            place.produce(*range(3), partition=partition)
        settings = {"partition_assignment_strategy": ("range",)}
        async with place.consumer(listens=True, **settings) as consumer:
            is_down, is_done = asyncio.Event(), asyncio.Event()

            async def healthy():
                await consumer.getone(Tp("t", 0))
                await is_done.wait()
                with pytest.raises(IllegalStateError):
                    await consumer.getone(Tp("t", 0))

            async def down():
                await consumer.getone(Tp("t", 1))
                async with consumer.paused():
                    is_down.set()
                    await place.clock.pass_s(12)
                    assert ("revoked", [0, 1]) not in place.told.calls, "the healthy task holds a record"
                    is_done.set()
                    await place.clock.pass_s(5)
                    assert ("revoked", [0, 1]) in place.told.calls

            tasks = [asyncio.ensure_future(each()) for each in (healthy, down)]
            await is_down.wait()
            await consumer.enforce_rebalance()
            await tasks[1]
            tasks[0].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    plays(script, partitions=2)


# As a set.


def test_it_is_the_set_that_it_was():
    async def script(place):
        async with place.consumer() as consumer:
            consumer.pause(Tp("t", 1))
            found = consumer.paused()
            assert isinstance(found, frozenset)
            assert found == {Tp("t", 1)}
            assert hash(found) == hash(frozenset({Tp("t", 1)}))
            assert consumer.paused(Tp("t", 0)) == frozenset()
            assert consumer.paused(Tp("t", 0), Tp("t", 1)) == {Tp("t", 1)}
            assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found
            async with consumer.paused() as block:
                assert block == {Tp("t", 1)}, "it says what was paused before"
            consumer.resume(*found)
            with pytest.raises(IllegalStateError, match="not assigned"):
                consumer.paused(Tp("t", 7))
            with pytest.raises(TypeError, match="TopicPartition"):
                consumer.paused("t")

    plays(script, partitions=2)
