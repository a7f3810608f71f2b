"""Offsets that the application names, at every moment of a loss and a return of their partition (delivery.md, rule 5).

An offset that is named while the partition is away, or while it is not known yet where its lanes go on, is one of an
earlier ownership: nothing of this one was delivered so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import pytest

from aiogroup import CommitFailedError, ConsumerStoppedError, IllegalStateError, KafkaTimeoutError
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.testing import Proxy
from tests.support.kafka import Listener, eventually, turns
from tests.support.reading import producing
from tests.support.recovery import MANUAL, MODE, Reading, committed_with, leave_at

EAGER = {"partition_assignment_strategy": ["range"]}
COOPERATIVE = {"partition_assignment_strategy": ["cooperative-sticky"]}
AWAY = ("JoinGroup", "SyncGroup")
UNDECIDED = ("OffsetFetch", "ListOffsets")
SESSION_MS = 1_500


@contextlib.asynccontextmanager
async def reading_behind_a_proxy(place, **settings):
    """A member that has read up to 131 and further, and nothing of it is committed but what a test does."""
    await leave_at(place, committed=70, end=120)
    async with (
        Proxy(place.cluster.bootstrap_servers) as proxy,
        place.consumer(
            **{"bootstrap_servers": proxy.bootstrap_servers, "session_timeout_ms": SESSION_MS, **MANUAL, **settings}
        ) as consumer,
    ):
        await place.produce(range(120, 150))
        reading = Reading()
        await reading.until(consumer, lambda: reading.has(120, 132))
        yield proxy, consumer, reading


async def lose(proxy, consumer, how):
    """The partition goes, and is on its way back."""
    if how == "lost":
        unknown = {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
        proxy.rewrite("Heartbeat", lambda exchange: dataclasses.replace(exchange.response, **unknown), times=1)
    else:
        await consumer.enforce_rebalance()
        await consumer.skip()  # nothing is in hand: the hand-over point


WAYS = [("rebalance", EAGER), ("lost", EAGER), ("lost", COOPERATIVE)]
WAY_NAMES = ["an eager rebalance", "lost, eager", "lost, cooperative"]


@pytest.mark.parametrize(("how", "strategy"), WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize("moment", [*AWAY, *UNDECIDED])
async def test_with_lanes_an_offset_of_an_earlier_ownership_changes_nothing(make_place, moment, how, strategy):
    place = make_place()
    tp = place.tp()
    async with reading_behind_a_proxy(place, **MODE, **strategy) as (proxy, consumer, _):
        await consumer.commit({tp: 131})
        before = await committed_with(place)
        assert before[0] == 70
        assert "live=131" in before[1]
        held = proxy.hold(moment)
        await lose(proxy, consumer, how)
        await eventually(lambda: held.used_count)
        if moment in UNDECIDED:
            assert consumer.assignment() == {tp}
            committing = asyncio.create_task(consumer.commit({tp: 131}))
            with pytest.raises(IllegalStateError, match="not known yet"):
                consumer.offsets_for_transaction({tp: 131})
            with pytest.raises(IllegalStateError, match="not known yet"):
                consumer.group_metadata()
            await turns(100)
            assert await committed_with(place) == before
            assert not committing.done()
            held.remove()
            with pytest.raises(ValueError, match=r"131 is next to process in no lane.*\[70, 120\), \[131, 150\)"):
                await committing
        else:
            with pytest.raises(CommitFailedError) as caught:
                await consumer.commit({tp: 131})
            assert caught.value.not_owned == {tp}
            with pytest.raises(IllegalStateError):
                consumer.offsets_for_transaction({tp: 131})
            held.remove()
            await eventually(lambda: consumer.lanes())
            with pytest.raises(ValueError, match="next to process in no lane"):
                await consumer.commit({tp: 131})
        assert await committed_with(place) == before
    assert await ranges_of(place) == ((70, 120), (131, 150))


async def ranges_of(place):
    """What the next owner begins with."""
    async with place.consumer(**MODE, **MANUAL) as consumer:
        return consumer.lanes()[place.tp()].ranges


async def test_with_lanes_the_wait_is_bounded_and_nothing_else_is_committed_meanwhile(make_place):
    place = make_place()
    tp = place.tp()
    settings = MODE | EAGER | {"default_api_timeout_ms": 1_000}
    async with reading_behind_a_proxy(place, **settings) as (proxy, consumer, reading):
        await consumer.commit({tp: 131})
        before = await committed_with(place)
        with proxy.hold("ListOffsets") as held:
            await lose(proxy, consumer, "lost")
            await eventually(lambda: held.used_count)
            with pytest.raises(KafkaTimeoutError, match=f"where {place.topic}-0 go on") as caught:
                await consumer.commit({tp: 131})
            assert caught.value.retriable
            with contextlib.suppress(CommitFailedError):  # told once: what was delivered was lost
                await consumer.commit()
            await consumer.commit()
            assert consumer.offsets_for_transaction({}) == {}
            assert await committed_with(place) == before
        reading.offsets.clear()
        await reading.until(consumer, lambda: reading.has(70, 120) and reading.has(131, 150))
        await consumer.commit()
    assert await place.committed() == 150


async def test_with_lanes_offsets_that_were_made_fit_before_a_loss_are_fit_no_more(make_place):
    place = make_place()
    tp = place.tp()
    async with reading_behind_a_proxy(place, **MODE, **EAGER) as (proxy, consumer, _):
        assert "live=131" in consumer.offsets_for_transaction({tp: 131})[tp].metadata
        assert consumer.group_metadata().group_id == place.group
        with proxy.hold("ListOffsets") as held:
            await lose(proxy, consumer, "lost")
            await eventually(lambda: held.used_count)
            with pytest.raises(IllegalStateError, match="not known yet"):
                consumer.group_metadata()
        await eventually(lambda: consumer.lanes())
        with pytest.raises(IllegalStateError, match="ranges are pending"):
            consumer.group_metadata()


async def test_with_lanes_a_callback_that_names_offsets_of_an_earlier_ownership_is_refused(make_place):
    place, listener, refused = make_place(), Listener(), []
    tp = place.tp()

    async def commit(_):
        try:
            await consumer.commit({tp: 131})
        except (ValueError, CommitFailedError) as error:
            refused.append(type(error))

    async with reading_behind_a_proxy(place, **MODE, **EAGER, listener=listener) as (proxy, consumer, _):
        await consumer.commit({tp: 131})
        before = await committed_with(place)
        listener.inside = {"assigned": commit}
        await lose(proxy, consumer, "lost")
        await eventually(lambda: refused)
        assert refused == [ValueError]
        # Taken away before it was known where it goes on: nothing of this ownership can be named, and nobody waits.
        listener.inside = {"revoked": commit}
        held = proxy.hold("ListOffsets")
        await lose(proxy, consumer, "lost")
        await eventually(lambda: held.used_count)
        await eventually(lambda: len(listener.calls) >= 5)  # the leaders do not answer: assigned all the same
        await lose(proxy, consumer, "rebalance")
        await eventually(lambda: len(refused) == 2)
        assert refused == [ValueError, CommitFailedError]
        held.remove()
        assert await committed_with(place) == before


async def test_with_lanes_what_a_cooperative_rebalance_keeps_is_committed_when_the_group_has_answered(make_place):
    place = make_place()
    tp = place.tp()
    async with reading_behind_a_proxy(place, **MODE, **COOPERATIVE) as (proxy, consumer, _):
        for moment in AWAY:
            with proxy.hold(moment) as held:
                await lose(proxy, consumer, "rebalance")
                await eventually(lambda held=held: held.used_count)
                committing = asyncio.create_task(consumer.commit({tp: 131 + AWAY.index(moment)}))
                await turns(100)
                assert not committing.done()
            await committing
            assert f"live={131 + AWAY.index(moment)}" in (await committed_with(place))[1]


async def test_with_lanes_a_stop_ends_the_wait(make_place):
    place = make_place()
    async with reading_behind_a_proxy(place, **MODE, **EAGER) as (proxy, consumer, _):
        with proxy.hold("ListOffsets") as held:
            await lose(proxy, consumer, "lost")
            await eventually(lambda: held.used_count)
            committing = asyncio.create_task(consumer.commit({place.tp(): 131}))
            await turns(100)
            await consumer.stop(timeout_ms=2_000)
            with pytest.raises((ConsumerStoppedError, CommitFailedError)):
                await committing
    assert await place.committed() == 70


# Without lanes an offset may be any: who names it says that all before it is processed.


@pytest.mark.parametrize(("how", "strategy"), WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize("moment", [*AWAY, "OffsetFetch"])
async def test_without_lanes_it_is_refused_while_the_partition_is_away_and_free_when_it_is_back(
    make_place, moment, how, strategy
):
    place = make_place()
    tp = place.tp()
    async with reading_behind_a_proxy(place, **strategy) as (proxy, consumer, reading):
        with proxy.hold(moment) as held:
            await lose(proxy, consumer, how)
            await eventually(lambda: held.used_count)
            committing = asyncio.create_task(consumer.commit({tp: 131}))
            if moment in AWAY:
                with pytest.raises(CommitFailedError) as caught:
                    await committing
                assert caught.value.not_owned == {tp}
                assert await place.committed() == 70
        if moment == "OffsetFetch":
            await committing
            assert await place.committed() == 131
        reading.offsets.clear()
        await reading.until(consumer, lambda: reading.has(131 if moment == "OffsetFetch" else 70, 150))
        first = reading.offsets[0][0]
        assert first in ((70, 131) if moment == "OffsetFetch" else (70,))
        told = (
            pytest.raises(CommitFailedError, match="delivered, and lost") if how == "lost" else contextlib.nullcontext()
        )
        with told:  # once
            await consumer.commit()
        assert await place.committed() == 150


# In the lanes: what is durable and what the lanes say is one truth.


async def test_a_part_of_a_range_that_a_seek_cut_off_is_done_with_the_rest_of_it(make_place):
    place, reading = make_place(), Reading()
    tp = place.tp()
    await leave_at(place, committed=70, end=120)
    async with place.consumer(**MODE, **MANUAL, max_poll_records=10) as consumer:
        await reading.until(consumer, lambda: reading.has(70, 90))
        await consumer.commit({tp: 75})  # behind what is processed
        await reading.until(consumer, lambda: reading.has(70, 95))
        await place.produce(range(120, 150))
        consumer.seek(tp, await consumer.position(tp), lane="live")
        await reading.until(consumer, lambda: reading.has(70, 150))
        await consumer.commit({tp: 150})
        assert (await committed_with(place))[0] == 75  # of the other lane it says what was said before
        await consumer.commit({tp: 120})
        assert not consumer.child_consumer_is_alive()
        assert await committed_with(place) == (150, "")


async def test_what_of_a_range_is_done_is_said_once_more_only_as_a_whole(make_place):
    place, reading = make_place(), Reading()
    tp = place.tp()
    await leave_at(place, committed=70, end=120)
    async with place.consumer(**MODE, **MANUAL) as consumer:
        await place.produce(range(120, 150))
        await reading.until(consumer, lambda: reading.has(70, 150))
        await consumer.commit({tp: 100})
        await consumer.commit({tp: 100})
        await consumer.commit({tp: 140})
        await consumer.commit({tp: 120})
        assert await committed_with(place) == (140, "")
        await consumer.commit({tp: 120})  # who heard no answer says it again
        for offset in (71, 100, 119):
            with pytest.raises(ValueError, match=rf"{offset} is next to process in no lane.*done already: \[70, 120\)"):
                await consumer.commit({tp: offset})
            with pytest.raises(ValueError, match="done already"):
                consumer.offsets_for_transaction({tp: offset})
        assert await committed_with(place) == (140, "")


async def test_a_range_that_ends_with_a_marker_is_done_with_its_last_record(make_place, unique_name):
    place, reading = make_place(), Reading()
    tp = place.tp()
    await leave_at(place, committed=0, end=0)
    async with producing(place.cluster.bootstrap_servers, transactional_id=unique_name("id")) as producer:
        await produce_in_a_transaction(place, producer, range(50))
        async with place.consumer(**MODE, **MANUAL) as consumer:
            assert consumer.lanes()[tp].ranges == ((0, 51),)
            await produce_in_a_transaction(place, producer, range(51, 101))
            await reading.until(consumer, lambda: reading.has(0, 50) and reading.has(51, 101))
            await consumer.commit({tp: 50})
            await consumer.commit({tp: 101})
            assert await committed_with(place) == (101, "")


async def produce_in_a_transaction(place, producer, values):
    """Its end takes an offset, too."""
    async with producer.transaction():
        for value in values:
            await producer.send(place.topic, str(value).encode(), partition=0)

    async def is_there():
        return (await other.end_offsets([place.tp()]))[place.tp()] == values[-1] + 2

    async with place.consumer(group_id=None) as other:
        await eventually(is_there)


async def test_a_seek_that_turns_out_impossible_when_the_lanes_are_known_is_reported_and_stops_nothing(make_place):
    place, reading = make_place(), Reading()
    tp = place.tp()
    async with reading_behind_a_proxy(place, **MODE, **EAGER) as (proxy, consumer, _):
        with proxy.hold("ListOffsets") as held:
            await lose(proxy, consumer, "lost")
            await eventually(lambda: held.used_count)
            consumer.seek(tp, 80, lane="live")
        await eventually(lambda: consumer.lanes())
        with pytest.raises(ValueError, match="the live lane began at 150"):
            await consumer.poll(5_000)
        await reading.until(consumer, lambda: reading.has(70, 150))
