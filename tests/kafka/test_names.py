"""A broker's name has several addresses, of which some are dead; or its look-up hangs."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from aiogroup import ConnectionLostError, HealthStatus, KafkaTimeoutError
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._runtime.net.link import COMMIT, FETCH, HEARTBEAT, JOIN, METADATA, Link
from aiogroup._runtime.net.names import Names, open_socket
from aiogroup.config import ConsumerConfig
from aiogroup.testing import Proxy
from aiogroup.testing.addresses import teller_of
from tests.support.kafka import eventually, take

NAME = "kafka.test"
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
SILENT, REFUSING, LIVE = f"127.0.{WORKER}.2", f"127.0.{WORKER}.3", "127.0.0.1"
"""Workers that share a cluster do not share the addresses beside it."""
LATE_S = 30
KEEPS = ("IDLE", "INTVL", "CNT")


@pytest.fixture
def names(monkeypatch):
    """The addresses of names, which tests may fill, and the names that were looked up."""
    system, known, asked = socket.getaddrinfo, {}, []

    def look_up(host, port, *args, **kwargs):
        if host not in known:
            return system(host, port, *args, **kwargs)
        asked.append(host)
        found = known[host]() if callable(known[host]) else known[host]
        return [info for each in found for info in system(each, port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known, asked


@pytest.fixture
def dropping():
    """Make a port of an address drop packets: its queue of connections is full."""
    with ExitStack() as stack:

        def fill(address, port):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            full = stack.enter_context(socket.socket(family))
            full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            full.bind((address, port))
            full.listen(0)
            for _ in range(4):
                each = stack.enter_context(socket.socket(family))
                each.setblocking(False)
                each.connect_ex((address, port))

        yield fill


@pytest.fixture
def port(kafka_cluster):
    return int(kafka_cluster.bootstrap_servers.split(",")[0].rpartition(":")[2])


def _listening(address, port):
    """A socket that takes connections there; `None` while another test's are ending."""
    with suppress(OSError):
        return socket.create_server((address, port))


def link_to(port, **settings):
    return Link(ConsumerConfig(bootstrap_servers=f"{NAME}:{port}", **settings))


async def test_a_host_that_went_away_is_noticed_by_a_connection_that_only_waits(port):
    """As one whose JoinGroup is unanswered: nothing else is sent there that could fail."""
    (turn,) = await Names().turns(LIVE, port)
    transport = await open_socket(asyncio.Protocol, turn, LIVE, None)
    opened = transport.get_extra_info("socket")
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle, interval, count = (
        opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{each}")) for each in KEEPS
    )
    assert idle + interval * count < 45, "longer than a session"
    transport.abort()


@pytest.mark.parametrize("with_group", [True, False])
async def test_advertised_names_that_nobody_knows_are_no_broker_that_can_be_reached(names, make_place, with_group):
    place = make_place()

    def nobody_knows():
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    names[0][NAME] = nobody_knows
    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite(MetadataRequest, at_unknown_name)
        if with_group:  # which the consumer does not reach either: assigned partitions are read without its coordinator
            proxy.rewrite(FindCoordinatorRequest, at_unknown_name)
        group_id = place.group if with_group else None
        consumer = place.unsubscribed(bootstrap_servers=proxy.bootstrap_servers, group_id=group_id)
        consumer.assign([place.tp()])
        async with consumer:
            began_at = time.monotonic()
            await eventually(lambda: consumer.health().status is HealthStatus.UNREACHABLE)
            assert time.monotonic() - began_at < 5
            assert f"no leader can be connected: node 1 at {NAME}:9092" in consumer.health().why
            assert not consumer.health().is_ready
            proxy.clear()
            await eventually(lambda: consumer.health().status is HealthStatus.READY)


def at_unknown_name(exchange):
    teller = teller_of(exchange.header.api_key, exchange.header.api_version)
    nodes = teller.nodes(exchange.response)
    return teller.moved(exchange.response, NAME, {teller.id_of(each): 9092 for each in nodes})


async def test_the_first_address_drops_packets_and_the_second_is_used(names, dropping, port):
    dropping(SILENT, port)
    names[0][NAME] = [SILENT, LIVE]
    async with link_to(port) as link, asyncio.timeout(LATE_S):
        connection = await link.connect(-1, METADATA)
        assert connection.peer == (LIVE, port)
        began = time.monotonic()
        for channel in (JOIN, HEARTBEAT, COMMIT, FETCH):
            assert (await link.connect(-1, channel)).peer == (LIVE, port)
        assert time.monotonic() - began < 2, "the address that answered is the first one for all channels"
        names[0][NAME] = [SILENT, REFUSING]
        link.disconnect(-1, METADATA)
        with pytest.raises(ConnectionLostError, match=REFUSING):
            await link.connect(-1, METADATA)


async def test_an_attempt_that_is_given_up_early_leaves_another_address_for_the_next(names, dropping, port):
    """As where several servers are named: each has a part of the time-out only."""
    dropping(SILENT, port)
    names[0][NAME] = [SILENT, LIVE]
    async with link_to(port) as link, asyncio.timeout(LATE_S):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await link.connect(-1, METADATA)
        assert (await link.connect(-1, METADATA)).peer == (LIVE, port)


async def test_an_address_that_takes_connections_and_says_nothing_has_its_turn_only(names, port):
    names[0][NAME] = [SILENT, LIVE]
    silent = await eventually(lambda: _listening(SILENT, port))
    with silent:
        async with link_to(port, request_timeout_ms=4_000) as link, asyncio.timeout(LATE_S):
            assert (await link.connect(-1, METADATA)).peer == (LIVE, port)


async def test_of_many_addresses_those_that_are_left_have_their_turn_in_the_next_attempt(names, dropping, port):
    dead = [f"127.0.{WORKER}.{n}" for n in range(11, 15)]
    for each in dead:
        dropping(each, port)
    names[0][NAME] = [*dead, LIVE]
    async with link_to(port, request_timeout_ms=4_000) as link, asyncio.timeout(LATE_S):
        with pytest.raises(KafkaTimeoutError, match=dead[1]):
            await link.connect(-1, METADATA)
        for _ in range(3):
            try:
                connection = await link.connect(-1, METADATA)
                break
            except KafkaTimeoutError:
                pass
        assert connection.peer == (LIVE, port)


async def test_where_one_family_has_no_way_the_other_is_used_at_once(names, dropping, port):
    try:
        dropping("::1", port)
    except OSError:
        pytest.skip("this machine has no IPv6")
    names[0][NAME] = ["::1", LIVE]
    async with link_to(port) as link, asyncio.timeout(LATE_S):
        began = time.monotonic()
        assert (await link.connect(-1, METADATA)).peer == (LIVE, port)
        assert time.monotonic() - began < 2
        assert (await link.connect(-1, JOIN)).peer == (LIVE, port)


async def test_a_consumer_reads_by_a_name_of_which_one_address_is_dead(make_place, names, dropping, port):
    dropping(SILENT, port)
    names[0][NAME] = [SILENT, LIVE]
    place = make_place()
    await place.produce(range(2))
    async with asyncio.timeout(LATE_S), place.consumer(bootstrap_servers=f"{NAME}:{port}") as consumer:
        assert await take(consumer, 2) == ["0", "1"]


async def test_a_look_up_that_hangs_is_one_and_leaves_the_loops_threads_to_the_application(names, port):
    go_on = threading.Event()

    def hang():
        go_on.wait(LATE_S)
        return [LIVE]

    names[0][NAME] = hang
    async with link_to(port, request_timeout_ms=1_000) as link, asyncio.timeout(LATE_S):
        try:
            channels = (JOIN, HEARTBEAT, COMMIT, FETCH, *map(str, range(40)))
            asking = [asyncio.create_task(link.connect(-1, each)) for each in channels]
            began = time.monotonic()
            await asyncio.sleep(0)
            assert await asyncio.to_thread(lambda: 7) == 7
            assert time.monotonic() - began < 0.5
            with pytest.raises(KafkaTimeoutError, match=f"look-up of the name '{NAME}'"):
                await link.connect(-1, METADATA)
            assert {type(each) for each in await asyncio.gather(*asking, return_exceptions=True)} == {KafkaTimeoutError}
            assert names[1] == [NAME]
        finally:
            go_on.set()
        assert (await link.connect(-1, METADATA)).peer == (LIVE, port)


async def test_a_name_that_does_not_exist_is_told_by_what_the_system_says(names, port):
    def unknown():
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    names[0][NAME] = unknown
    async with link_to(port) as link:
        with pytest.raises(ConnectionLostError, match="Name or service not known"):
            await link.connect(-1, METADATA)
        names[0]["a" * 70] = []
    async with Link(ConsumerConfig(bootstrap_servers=f"{'a' * 70}.test:{port}")) as link:
        with pytest.raises(ConnectionLostError, match="is not the name of a host"):
            await link.connect(-1, METADATA)
