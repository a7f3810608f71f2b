"""States of a service on a broker, read from both probes under both policies. In virtual time tests/asgi has all.

A consumer is brought into each state by what a broker or the application does, and out of it again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from aiogroup import Consumer, ConsumerRebalanceListener
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup.asgi import Loop, Service
from aiogroup.testing import Proxy
from tests.support.asgi import probed
from tests.support.kafka import QUICK, Place, eventually

UNREADY_MS = 700
SESSION_MS = QUICK["session_timeout_ms"]
EAGER = {"partition_assignment_strategy": ("range",)}
LIMIT_S = 60


async def read(consumer):
    async for _ in consumer:
        pass


def consumer_of(place, policy, **settings):
    given = {**QUICK, "bootstrap_servers": place.cluster.bootstrap_servers, "metadata_max_age_ms": 1_000, **settings}
    return Consumer(place.topic, group_id=f"{place.group}-{policy}", **given)


class Both:
    """The same loop under both policies, each in a group of its own."""

    def __init__(self, place, body=read, **settings):
        self.services = [
            Service(
                ready=policy,
                unready_after_ms=UNREADY_MS,
                loop=Loop(lambda policy=policy: consumer_of(place, policy, **settings), body),
            )
            for policy in ("assigned", "flowing")
        ]

    @asynccontextmanager
    async def running(self):
        async with AsyncExitStack() as stack:
            for each in self.services:
                await stack.enter_async_context(each.running())
            yield self

    async def are(self, state, live, assigned, flowing, within_s=LIMIT_S):
        """Wait until both services have this state and answer so; for how many seconds it took."""
        wanted, began = [(state, live, assigned), (state, live, flowing)], time.monotonic()
        while (seen := [await probed(each) for each in self.services]) != wanted:
            assert time.monotonic() - began < within_s, f"{seen}, and not {wanted}"
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    def consumers(self):
        return [each["loop"].consumer for each in self.services]


async def test_starting_until_a_broker_answers_and_unreachable_while_it_does_not(cluster_1, unique_name):
    place = Place(cluster_1, unique_name("topic"), unique_name("group"))
    cluster_1.create_topic(place.topic)
    (node,) = cluster_1.nodes
    await asyncio.to_thread(node.stop)
    began = time.monotonic()
    async with Both(place).running() as both:
        assert time.monotonic() - began < 1, "the lifespan waits for nothing"
        await both.are("starting", 200, 503, 503)
        await eventually(lambda: time.monotonic() - began > 3 * UNREADY_MS / 1_000)
        assert await both.are("starting", 200, 503, 503) < 1
        await asyncio.to_thread(node.start)
        assert await both.are("ready", 200, 200, 200) < 8, "5 s, and what a new node takes"
        await asyncio.to_thread(node.pause)
        assert await both.are("unreachable", 200, 200, 200) <= SESSION_MS / 1_000 + 2
        await both.are("unreachable", 200, 200, 503)
        await asyncio.to_thread(node.resume)
        await both.are("ready", 200, 200, 200)


async def test_joining_and_rebalancing_while_another_member_takes_its_time(make_place):
    place, is_over = make_place(4), asyncio.Event()

    class Slow(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            if revoked:
                await is_over.wait()

        async def on_partitions_assigned(self, assigned):
            pass

    async with AsyncExitStack() as stack:
        older, newer = Both(place, **EAGER), Both(place, **EAGER)
        await stack.enter_async_context(older.running())
        await older.are("ready", 200, 200, 200)
        others = [consumer_of(place, policy, **EAGER) for policy in ("assigned", "flowing")]
        for each in others:
            each.subscribe([place.topic], listener=Slow())
            await stack.enter_async_context(each)
            await eventually(lambda each=each: each.assignment(), LIMIT_S)
        await older.are("ready", 200, 200, 200)
        await stack.enter_async_context(newer.running())
        await older.are("rebalancing", 200, 200, 503)
        await newer.are("joining", 200, 503, 503)
        is_over.set()
        await older.are("ready", 200, 200, 200)
        await newer.are("ready", 200, 200, 200)


async def test_parked_until_the_handler_returns_and_stopping_until_it_has_returned(make_place):
    place, gate, seen = make_place(), asyncio.Semaphore(0), []

    async def slow(consumer):
        async for record in consumer:
            seen.append(record.offset)
            await gate.acquire()

    def let_go_on():
        for _ in both.services:
            gate.release()

    await place.produce(["slow"])
    both = Both(place, slow, max_poll_interval_ms=2_000, session_timeout_ms=2_000)
    async with both.running():
        await both.are("parked", 200, 503, 503)
        let_go_on()
        await both.are("ready", 200, 200, 200)
        await eventually(lambda: seen == [0] * 4, LIMIT_S)  # it was not committed, and so is handed out again
        stopped = [asyncio.ensure_future(each.stop()) for each in both.consumers()]
        await both.are("stopping", 200, 503, 503)
        let_go_on()
        await both.are("stopped", 200, 503, 503)
        await asyncio.gather(*stopped)


async def test_failed_until_it_is_started_again_with_the_same_record(make_place):
    place, seen = make_place(), []

    async def poisoned(consumer):
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) <= 2:
                raise ValueError("cannot be charged")

    await place.produce(["poison"])
    async with Both(place, poisoned).running() as both:
        assert await both.are("failed", 200, 503, 503)
        failed = time.monotonic()
        await both.are("ready", 200, 200, 200)
        assert time.monotonic() - failed < 5, "1 s, and what joining takes"
        await eventually(lambda: seen == [0] * 4, LIMIT_S)
        assert [each["loop"].restarts_count for each in both.services] == [1, 1]


async def test_fenced_while_another_process_has_the_name(make_place):
    place = make_place()
    async with Both(place, group_instance_id="one").running() as older:
        await older.are("ready", 200, 200, 200)
        async with Both(place, group_instance_id="one").running() as newer:
            await older.are("fenced", 200, 503, 503)
            await newer.are("ready", 200, 200, 200)
            assert await older.are("fenced", 200, 503, 503) < 1
        await older.are("fenced", 200, 503, 503)
    await older.are("stopped", 200, 503, 503)


async def test_degraded_while_a_topic_does_not_exist(make_place, kafka_cluster):
    place = make_place()
    missing = f"{place.topic}-missing"
    async with Both(place).running() as both:
        await both.are("ready", 200, 200, 200)
        for each in both.consumers():
            each.subscribe([place.topic, missing])
        await both.are("degraded", 200, 200, 200)
        for each in both.consumers():
            each.subscribe([missing])
        await both.are("degraded", 200, 200, 503)
        await asyncio.to_thread(kafka_cluster.create_topic, missing)
        await both.are("ready", 200, 200, 200)


async def test_degraded_while_partitions_are_withheld_whose_beginning_cannot_be_committed(make_place):
    """Nothing of them is handed out meanwhile; the others flow."""
    place, refused = make_place(2), {0, 1}

    def refuse(exchange):
        def refusing(each):
            is_refused = each.partition_index in refused
            return dataclasses.replace(each, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if is_refused else each

        (topic,) = exchange.response.topics
        told = dataclasses.replace(topic, partitions=tuple(map(refusing, topic.partitions)))
        return dataclasses.replace(exchange.response, topics=(told,))

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        with proxy.rewrite(OffsetCommitRequest, refuse):
            # A commit of where a partition begins is tried for as long as a request may take.
            timeouts = {"request_timeout_ms": 1_500, "default_api_timeout_ms": 1_500}
            async with Both(place, bootstrap_servers=proxy.bootstrap_servers, **timeouts).running() as both:
                await both.are("degraded", 200, 200, 503)
                refused.remove(1)
                await both.are("degraded", 200, 200, 200)
                refused.clear()
                await both.are("ready", 200, 200, 200)


async def test_degraded_while_ranges_are_overdue_that_were_left_to_jobs(make_place):
    place, may_go_on = make_place(), asyncio.Event()

    async def reading(consumer):
        async for record in consumer:
            if record.lane == "catch-up":
                await may_go_on.wait()

    await place.produce(range(50))
    for policy in ("assigned", "flowing"):
        async with consumer_of(place, policy) as consumer:
            await consumer.commit({place.tp(): 10})
    mode = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1, "parallel_handoff": True}
    async with Both(place, reading, **mode, parallel_handoff_timeout_ms=1_000).running() as both:
        await both.are("degraded", 200, 200, 200)
        await eventually(lambda: all(each.health().since_ms > 2 * UNREADY_MS for each in both.consumers()))
        assert await both.are("degraded", 200, 200, 200) < 1
        may_go_on.set()
        await both.are("ready", 200, 200, 200)


async def test_catching_up_while_a_backlog_is_read(make_place):
    place, may_go_on = make_place(), asyncio.Event()

    async def reading(consumer):
        async for _ in consumer:
            await consumer.commit()
            if has_backlog:
                await may_go_on.wait()

    has_backlog = []
    both = Both(place, reading, enable_parallel_rebalance=True, parallel_min_backlog=1)
    await place.produce(["old"])
    async with both.running():
        await both.are("ready", 200, 200, 200)
    has_backlog.append(True)
    await place.produce(range(50))
    async with both.running():
        await both.are("catching_up", 200, 200, 200)
        may_go_on.set()
        await both.are("ready", 200, 200, 200)


@pytest.mark.parametrize("bad_in", range(3))
async def test_one_bad_record_does_not_keep_the_next_consumer_from_the_other_partitions(make_place, bad_in):
    place = make_place(3)
    for partition in range(3):
        await place.produce(["bad"] if partition == bad_in else ["good"], partition)
    processed, failures = set(), []

    async def charge(consumer):
        async for record in consumer:
            if record.partition == bad_in:
                failures.append(frozenset(processed))
                raise ValueError("cannot be charged")
            processed.add(record.partition)

    others = set(range(3)) - {bad_in}
    service = Service(billing=Loop(lambda: consumer_of(place, "one", auto_offset_reset="earliest"), charge))
    async with service.running():
        await eventually(lambda: len(failures) == 2, LIMIT_S)
    assert failures[1] == others
