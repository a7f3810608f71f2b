"""Each state of a consumer is brought about and read from both probes under both policies. In virtual time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual, stable
from tests.support.asgi import get, logged, probed

SESSION_MS = 10_000
SETTINGS = {
    "group_id": "billing",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": SESSION_MS,
    "request_timeout_ms": 5_000,
    "fetch_max_wait_ms": 500,
    "max_poll_interval_ms": 60_000,
    "metadata_max_age_ms": 2_000,
}
LIMIT_S = 200


class Place:
    """A broker, and one loop under both policies: two services, each with a consumer of a group of its own."""

    def __init__(self, broker, body, **settings):
        self.broker = broker
        self._settings = settings
        self.assigned, self.flowing = (
            Service(ready=ready, stop_timeout_ms=5_000, loop=Loop(lambda ready=ready: self.consumer_of(ready), body))
            for ready in ("assigned", "flowing")
        )

    def consumer_of(self, group_id):
        given = {**SETTINGS, "group_id": group_id, **self._settings}
        return Consumer("orders", bootstrap_servers=self.broker.bootstrap_servers, **given)

    async def answers(self):
        """The state, and the codes of /livez, of /readyz if "assigned", and of /readyz if "flowing"."""
        state, live, assigned = await probed(self.assigned)
        same, same_live, flowing = await probed(self.flowing)
        assert (same, same_live) == (state, live)
        return state, live, assigned, flowing

    async def until(self, state):
        services = (self.assigned, self.flowing)
        await self.broker.until(lambda: all(each["loop"].health().status == state for each in services), LIMIT_S)
        return await self.answers()

    async def stay(self, seconds):
        await self.broker.clock.pass_s(seconds)
        return await self.answers()


def plays(script, body=None, **settings):
    """Run `script(place)` with both services running."""

    async def play():
        async with Broker(seed=1) as broker, AsyncExitStack() as stack:
            broker.create_topic("orders")
            place = Place(broker, body or read, **settings)
            for each in (place.assigned, place.flowing):
                await stack.enter_async_context(each.running())
            await script(place)

    run_virtual(play())


async def read(consumer):
    async for _ in consumer:
        pass


@pytest.mark.parametrize("outage_s", [60, 75, 130, 600])
def test_starting_for_as_long_as_no_broker_answers_and_ready_within_5_s_of_the_first(outage_s):
    async def play():
        async with Broker(seed=1) as broker, AsyncExitStack() as stack:
            broker.create_topic("orders")
            broker.nodes[0].stop()
            place = Place(broker, read)
            began_at_ms = broker.clock.now_ms
            with logged() as entries:
                for each in (place.assigned, place.flowing):
                    await stack.enter_async_context(each.running())
                assert broker.clock.now_ms == began_at_ms, "the lifespan waits for nothing"
                assert await place.answers() == ("starting", 200, 503, 503)
                assert place.assigned["loop"].lags() == {}
                assert place.assigned["loop"].health().why == "start() waits for the brokers"
                assert await place.stay(outage_s) == ("starting", 200, 503, 503)
                assert place.assigned["loop"].health().why.startswith("no broker has answered yet: ")
                since_ms = (await get(place.assigned, "/livez")).body["since_ms"]
                assert since_ms == pytest.approx(outage_s * 1_000, abs=1_000)
            told = [fields["attempts_count"] for name, fields in entries if name == "no_broker_yet"]
            assert told[:2] == [1, 1], "one for each of the two services; then one a minute"
            assert len(told) <= 2 + outage_s // 30
            broker.nodes[0].start()
            up_at_ms = broker.clock.now_ms
            assert await place.until("ready") == ("ready", 200, 200, 200)
            assert broker.clock.now_ms - up_at_ms <= 5_000

    run_virtual(play())


def test_joining_until_the_first_assignment_then_ready():
    async def script(place):
        with place.broker.delay("SyncGroup", ms=8_000):
            assert await place.until("joining") == ("joining", 200, 503, 503)
            assert await place.stay(3) == ("joining", 200, 503, 503)
        assert await place.until("ready") == ("ready", 200, 200, 200)
        assert await place.stay(600) == ("ready", 200, 200, 200)
        (lag,) = place.assigned["loop"].lags().values()
        assert lag == 0

    plays(script)


def test_an_empty_assignment_is_one():
    async def script(place):
        assert await place.until("ready") == ("ready", 200, 200, 200)
        settings = {**SETTINGS, "group_id": "assigned", "bootstrap_servers": place.broker.bootstrap_servers}
        more = [Service(loop=Loop(lambda: Consumer("orders", **settings), read)) for _ in range(2)]
        with logged() as entries:
            async with more[0].running(), more[1].running():
                await place.broker.until(stable("assigned", members=3))
                for each in more:
                    await place.broker.until(lambda each=each: each["loop"].health().status == "ready", LIMIT_S)
                empty = [each for each in (*more, place.assigned) if not each["loop"].consumer.assignment()]
                assert [await probed(each) for each in empty] == [("ready", 200, 200)] * 2
        told = [fields["consumer"] for name, fields in entries if name == "no_partition_assigned"]
        assert told in (["loop"], ["loop"] * 2), "of the two that began, at least one had nothing at first"

    plays(script)


def test_unreachable_is_alive_and_under_flowing_not_ready_after_30_s():
    async def script(place):
        await place.until("ready")
        place.broker.pause()
        paused_at_ms = place.broker.clock.now_ms
        assert await place.until("unreachable") == ("unreachable", 200, 200, 200)
        assert place.broker.clock.now_ms - paused_at_ms <= SESSION_MS + 1_000
        assert await place.stay(28) == ("unreachable", 200, 200, 200)
        assert await place.stay(3) == ("unreachable", 200, 200, 503)
        place.broker.resume()
        assert await place.until("ready") == ("ready", 200, 200, 200)

    plays(script)


def test_unreachable_is_not_ready_before_the_first_assignment():
    async def script(place):
        with place.broker.drop("FindCoordinator"):
            assert await place.until("unreachable") == ("unreachable", 200, 503, 503)
        assert await place.until("ready") == ("ready", 200, 200, 200)
        place.broker.pause()
        assert await place.until("unreachable") == ("unreachable", 200, 200, 200)
        place.broker.resume()
        assert await place.until("ready") == ("ready", 200, 200, 200)

    plays(script)


def test_rebalancing_is_ready_and_under_flowing_not_after_30_s():
    async def script(place):
        await place.until("ready")
        with place.broker.delay("SyncGroup", ms=50_000):
            for each in (place.assigned, place.flowing):
                await each["loop"].consumer.enforce_rebalance()
            assert await place.until("rebalancing") == ("rebalancing", 200, 200, 200)
            assert await place.stay(29) == ("rebalancing", 200, 200, 200)
            assert await place.stay(2) == ("rebalancing", 200, 200, 503)
        assert await place.until("ready") == ("ready", 200, 200, 200)

    plays(script, request_timeout_ms=90_000)


def test_paused_is_alive_and_under_flowing_not_ready_after_30_s():
    async def script(place):
        await place.until("ready")
        place.broker.produce("orders", b"while it is down")
        assert await place.until("paused") == ("paused", 200, 200, 200)
        body = (await get(place.assigned, "/readyz")).body
        assert body["why"] == "the application has paused the consumer"
        assert await place.stay(29) == ("paused", 200, 200, 200)
        assert await place.stay(2) == ("paused", 200, 200, 503)
        assert await place.stay(200) == ("paused", 200, 200, 503), "the poll interval is 60 s"
        assert (await get(place.assigned, "/readyz")).body["since_ms"] == pytest.approx(231_000, abs=1_000)
        up.set()
        assert await place.until("ready") == ("ready", 200, 200, 200)

    async def waits(consumer):
        async for _ in consumer:
            async with consumer.paused():
                await up.wait()

    up = asyncio.Event()
    plays(script, waits)


def test_degraded_by_the_application_names_what_is_down():
    async def script(place):
        await place.until("ready")
        place.broker.produce("orders", b"while it is down")
        assert await place.until("degraded") == ("degraded", 200, 200, 200)
        loop = place.assigned["loop"]
        assert loop.health().why == "degraded by the application: database; the application has paused all partitions"
        assert loop.consumer.health().status == "paused"
        assert await place.stay(29) == ("degraded", 200, 200, 200)
        assert await place.stay(2) == ("degraded", 200, 200, 503)
        up.set()
        assert await place.until("ready") == ("ready", 200, 200, 200)

    async def waits(consumer):
        async for _ in consumer:
            loop = next(each for each in services() if each.consumer is consumer)
            with loop.degraded("database"):
                async with consumer.paused():
                    await up.wait()

    def services():
        return [each["loop"] for each in places[0]]

    up, places = asyncio.Event(), []

    async def begins(place):
        places.append((place.assigned, place.flowing))
        await script(place)

    plays(begins, waits)


def test_degraded_without_a_pause_flows():
    async def script(place):
        await place.until("ready")
        with place.flowing["loop"].degraded("cache"), place.assigned["loop"].degraded("cache"):
            assert await place.stay(100) == ("degraded", 200, 200, 200)
            assert place.flowing["loop"].health().why == "degraded by the application: cache; reads"
        assert await place.answers() == ("ready", 200, 200, 200)

    plays(script)


def test_parked_is_not_ready_and_dead_after_60_s_until_the_handler_returns():
    async def script(place):
        clocks.append(place.broker.clock)
        await place.until("ready")
        place.broker.produce("orders", b"slow")
        assert await place.until("parked") == ("parked", 200, 503, 503)
        assert await place.stay(58) == ("parked", 200, 503, 503)
        assert await place.stay(3) == ("parked", 503, 503, 503)
        assert await place.until("ready") == ("ready", 200, 200, 200)

    async def slow(consumer):
        async for _ in consumer:
            await clocks[0].pass_s(150)

    clocks = []
    plays(script, slow, max_poll_interval_ms=20_000)


def test_failed_while_a_handler_hangs_is_dead_after_60_s():
    """No new consumer can be made before the handler returns."""

    async def script(place):
        await place.until("ready")
        place.broker.produce("orders", b"slow")
        await place.stay(1)
        with place.broker.error("Heartbeat", "GROUP_AUTHORIZATION_FAILED", times=None):
            assert await place.until("failed") == ("failed", 200, 503, 503)
            assert await place.stay(58) == ("failed", 200, 503, 503)
            assert await place.stay(3) == ("failed", 503, 503, 503)

    async def hangs(consumer):
        async for _ in consumer:
            await asyncio.Event().wait()

    plays(script, hangs)


def test_fenced_is_alive_and_not_ready_until_the_service_ends():
    async def script(place):
        await place.until("ready")
        others = [
            Service(loop=Loop(lambda ready=ready: place.consumer_of(ready), read)) for ready in ("assigned", "flowing")
        ]
        async with others[0].running(), others[1].running():
            assert await place.until("fenced") == ("fenced", 200, 503, 503)
            assert await place.stay(301) == ("fenced", 200, 503, 503)
            assert [await probed(each) for each in others] == [("ready", 200, 200)] * 2
        assert await place.stay(60) == ("fenced", 200, 503, 503), "it does not take the name back, either"

    plays(script, group_instance_id="one")


def test_failed_is_not_ready_and_dead_from_the_fifth_end_on_until_a_consumer_lives():
    async def script(place):
        for gap_s in (1, 2, 4, 8):
            assert await place.until("failed") == ("failed", 200, 503, 503)
            await place.stay(gap_s)
            await place.broker.until(lambda: not are_failed(place), LIMIT_S)
        assert await place.until("failed") == ("failed", 503, 503, 503)
        assert await place.stay(10) == ("failed", 503, 503, 503)
        is_broken.clear()
        assert await place.until("ready") == ("ready", 200, 200, 200)
        assert await place.stay(600) == ("ready", 200, 200, 200)

    def are_failed(place):
        return any(each["loop"].health().status == "failed" for each in (place.assigned, place.flowing))

    async def broken(consumer):
        if is_broken:
            raise ValueError
        await read(consumer)

    is_broken = [True]
    plays(script, broken)


def test_degraded_is_ready_but_not_flowing_if_every_partition_is():
    async def script(place):
        assert await place.until("ready") == ("ready", 200, 200, 200)
        for each in (place.assigned, place.flowing):
            each["loop"].consumer.subscribe(["orders", "ordres"])
        assert await place.until("degraded") == ("degraded", 200, 200, 200)
        assert await place.stay(60) == ("degraded", 200, 200, 200)
        for each in (place.assigned, place.flowing):
            each["loop"].consumer.subscribe(["ordres"])
        assert await place.until("degraded") == ("degraded", 200, 200, 200)
        assert await place.stay(60) == ("degraded", 200, 200, 503)
        place.broker.create_topic("ordres")
        assert await place.until("ready") == ("ready", 200, 200, 200)

    plays(script)


def test_degraded_while_every_partition_is_withheld():
    """For minutes no commit tells where they begin: nothing is handed out, and a restart would not help."""

    async def play():
        async with Broker(seed=1) as broker, AsyncExitStack() as stack:
            broker.create_topic("orders")
            place = Place(broker, read)
            with broker.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None):
                for each in (place.assigned, place.flowing):
                    await stack.enter_async_context(each.running())
                assert await place.until("degraded") == ("degraded", 200, 200, 200)
                assert await place.stay(28) == ("degraded", 200, 200, 200)
                assert await place.stay(3) == ("degraded", 200, 200, 503)
                assert await place.stay(60) == ("degraded", 200, 200, 503)
            assert await place.until("ready") == ("ready", 200, 200, 200)

    run_virtual(play())


def test_degraded_is_ready_while_ranges_left_to_jobs_are_overdue():
    async def lazy(consumer):
        async for record in consumer:
            while record.lane == "catch-up" and is_held:
                await clocks[0].pass_s(1)

    clocks, is_held = [], [True]

    async def play():
        async with Broker(seed=1) as broker:
            clocks.append(broker.clock)
            broker.create_topic("orders")
            broker.produce_many("orders", [b"old"] * 10)
            mode = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1, "parallel_handoff": True}
            place = Place(broker, lazy, **mode, parallel_handoff_timeout_ms=60_000, max_poll_interval_ms=600_000)
            async with place.assigned.running(), place.flowing.running():
                assert await place.until("catching_up") == ("catching_up", 200, 200, 200)
                assert await place.stay(55) == ("catching_up", 200, 200, 200)
                assert await place.until("degraded") == ("degraded", 200, 200, 200)
                assert await place.stay(60) == ("degraded", 200, 200, 200)
                is_held.clear()
                assert await place.until("ready") == ("ready", 200, 200, 200)

    run_virtual(play())


def test_catching_up_is_ready():
    async def slow(consumer):
        async for _ in consumer:
            await consumer.commit()
            await clocks[0].pass_s(0.05)

    clocks = []

    async def play():
        async with Broker(seed=1) as broker:
            clocks.append(broker.clock)
            broker.create_topic("orders")
            place = Place(broker, slow, enable_parallel_rebalance=True, parallel_min_backlog=1)
            for backlog_count in (0, 200):
                broker.produce_many("orders", [b"old"] * (backlog_count or 10))
                async with place.assigned.running(), place.flowing.running():
                    if backlog_count:
                        assert await place.until("catching_up") == ("catching_up", 200, 200, 200)
                    assert await place.until("ready") == ("ready", 200, 200, 200)

    run_virtual(play())


def test_stopping_is_alive_and_not_ready_until_the_body_has_ended():
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            broker.produce("orders", b"slow")
            seen = []

            async def slow(consumer):
                async for _ in consumer:
                    seen.append(await probed(service))
                    await broker.clock.pass_s(1)
                    seen.append(await probed(service))
                    assert service["loop"].lags() == {}
                await broker.clock.pass_s(1)
                assert consumer.health().status == "stopped"
                seen.append(await probed(service))

            settings = {**SETTINGS, "bootstrap_servers": broker.bootstrap_servers}
            service = Service(loop=Loop(lambda: Consumer("orders", **settings), slow))
            async with service.running():
                await broker.until(lambda: seen, LIMIT_S)
            seen.append(await probed(service))
            stopping = ("stopping", 200, 503)
            assert seen == [("ready", 200, 200), stopping, stopping, ("stopped", 200, 503)]
            assert broker.committed("billing")["orders", 0] == 1
            assert broker.group("billing").members == ()

    run_virtual(play())
