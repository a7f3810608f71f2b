"""What meets a `start` that is not done: another start, a stop, its cancellation. None leaves a running consumer."""

from __future__ import annotations

import asyncio
import socket

import anyio
import pytest

from aiogroup import (
    ConnectionLostError,
    Consumer,
    ConsumerStoppedError,
    IllegalStateError,
    KafkaTimeoutError,
    StopReport,
)
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._runtime.net import link
from aiogroup.admin import list_members
from aiogroup.testing import Proxy
from tests.support.kafka import eventually, take, turns


def ours():
    """The tasks of all consumers of this loop."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("aiogroup")]


@pytest.mark.parametrize("turns_count", [1, 3, 30])
async def test_a_stop_in_the_middle_ends_it(make_place, turns_count):
    consumer = make_place().consumer()
    starting = asyncio.create_task(consumer.start())
    await turns(turns_count)
    assert await consumer.stop() == StopReport()
    with pytest.raises(ConsumerStoppedError):
        await asyncio.wait_for(starting, 1)
    assert ours() == []


@pytest.mark.parametrize("request_type", [MetadataRequest, JoinGroupRequest])
async def test_a_stop_ends_it_at_once_while_it_waits_for_an_answer(make_place, request_type):
    place = make_place()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.drop(request_type)
        consumer = place.consumer(bootstrap_servers=proxy.bootstrap_servers)
        starting = asyncio.create_task(consumer.start())
        await eventually(lambda: proxy.count(request_type))
        await consumer.stop(timeout_ms=2_000)
        with pytest.raises(ConsumerStoppedError):
            await asyncio.wait_for(starting, 1)
        assert ours() == []


async def test_a_second_start_at_the_same_time_is_refused(make_place):
    consumer = make_place().consumer()
    first, second = await asyncio.gather(consumer.start(), consumer.start(), return_exceptions=True)
    assert first is None
    assert isinstance(second, IllegalStateError)
    await consumer.stop()
    assert ours() == []


async def test_the_only_bootstrap_server_may_take_all_the_time_there_is(make_place):
    """With others behind it, it would be left for the next one after half of that."""
    place = make_place()
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.delay("Metadata", ms=1_300, times=1)
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, request_timeout_ms=2_000) as consumer:
            assert consumer.partitions_for_topic(place.topic) == {0}


async def test_nobody_at_the_bootstrap_servers_is_reported_by_what_was_given():
    consumer = Consumer("orders", bootstrap_servers="127.0.0.1:1", request_timeout_ms=1_000)
    with pytest.raises(ConnectionLostError, match=r"cannot connect to 127\.0\.0\.1:1 of bootstrap_servers: "):
        await consumer.start()


async def test_a_bootstrap_server_that_says_nothing_is_reported_with_the_time_that_was_waited(monkeypatch):
    monkeypatch.setattr(link, "CONNECT_TIMEOUT_MS", 200)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        waited = "(199|200) ms"  # a millisecond may pass between the call and the attempt
        with pytest.raises(KafkaTimeoutError, match=f"connecting to {address} of bootstrap_servers took .* {waited}"):
            await Consumer("orders", bootstrap_servers=address).start()


ONCE = {"Metadata": 1, "FindCoordinator": 1, "SyncGroup": 1, "OffsetFetch": 1}
CONNECTIONS = 6
"""To the bootstrap server; to the node for metadata, joining, heartbeats, commits and fetches."""


async def _loaded(place, group_id):
    """The coordinator has read its log from now on, and refuses nobody because of that."""
    async with place.consumer(group_id=group_id):
        pass


async def _asked_until_the_first_record(place, want_counts):
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        quiet = {"heartbeat_interval_ms": 2_000, "auto_commit_interval_ms": 60_000}  # only what a start asks is counted
        async with place.consumer(bootstrap_servers=proxy.bootstrap_servers, **quiet) as consumer:
            await take(consumer, 1)
            await eventually(lambda: proxy.count("ApiVersions") >= CONNECTIONS)
            return {name: proxy.count(name) for name in (*want_counts, "ApiVersions")}


async def test_nothing_is_asked_twice_on_the_way_to_the_first_record(make_place):
    place = make_place(partitions=4)
    await place.produce(range(3))
    await _loaded(place, place.group + "-first")
    by_policy = {**ONCE, "JoinGroup": 2, "ListOffsets": 1, "OffsetCommit": 1}
    assert await _asked_until_the_first_record(place, by_policy) == {**by_policy, "ApiVersions": CONNECTIONS}
    committed = {**ONCE, "JoinGroup": 2, "ListOffsets": 0}
    assert await _asked_until_the_first_record(place, committed) == {**committed, "ApiVersions": CONNECTIONS}


@pytest.mark.parametrize(("held", "connections_count"), [("FindCoordinator", 2), ("JoinGroup", 4), ("OffsetFetch", 6)])
async def test_what_is_needed_next_is_connected_while_an_answer_is_awaited(make_place, held, connections_count):
    place = make_place()
    await _loaded(place, place.group)
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        rule = proxy.hold(held)
        patient = {"request_timeout_ms": 60_000}  # or what is held would be asked for again, on another connection
        consumer = place.consumer(bootstrap_servers=proxy.bootstrap_servers, **patient)
        starting = asyncio.create_task(consumer.start())
        await eventually(lambda: proxy.count(held) and proxy.count("ApiVersions") == connections_count)
        rule.remove()
        await starting
        await consumer.stop()


async def test_a_scope_of_anyio_that_ends_it_lets_the_member_leave(make_place):
    """Such a scope cancels each await again until it is left, also those of the clean-up."""
    place, scope = make_place(), anyio.CancelScope()

    class Listener:
        async def on_partitions_assigned(self, assigned):
            scope.cancel()

    with scope:
        await place.consumer(listener=Listener()).start()
    assert scope.cancelled_caught
    assert await list_members(place.group, bootstrap_servers=place.cluster.bootstrap_servers) == ()
    assert ours() == []
