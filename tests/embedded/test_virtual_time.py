"""The embedded broker in virtual time: its clock, connections in memory, real clients on them, and error messages."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import random
import re
import subprocess
import sys
import threading
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from anyio import CancelScope, to_thread

from aiogroup import Consumer
from aiogroup._runtime.loop.clock import wall_ms
from aiogroup.embedded import (
    Broker,
    BrokerRefusal,
    StuckError,
    VirtualLoop,
    VirtualTimeError,
    caught_up,
    run_virtual,
    stable,
    virtual_time,
)
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.shell.virtual_loop import Clock
from aiogroup.embedded.shell.virtual_network import VirtualNetwork
from aiogroup.errors import ConnectionLostError, KafkaTimeoutError
from tests.support.sources import ROOT

LIMIT_S = 600
"""The limit, in seconds of the virtual clock."""
BEGIN_MS = 1_750_000_000_000


def settings(broker, **more):
    return {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest", **more}


class Worker:
    """An application: handles each record for `handling_s` seconds."""

    def __init__(self, broker, handling_s=0.0, **more):
        self._broker = broker
        self._handling_s = handling_s
        self.handled = []
        self.consumer = Consumer("orders", group_id="billing", **settings(broker, **more))
        self._task = None

    async def __aenter__(self):
        await self.consumer.start()
        self._task = asyncio.get_running_loop().create_task(self._handle())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await self.consumer.stop()

    async def _handle(self):
        async for record in self.consumer:
            await self._broker.clock.pass_s(self._handling_s)
            self.handled.append(record.offset)


# Time.


def test_the_time_of_day_passes_as_the_virtual_clock_does():
    """`by_duration:`, the age of records and an event log depend on it."""

    async def work():
        async with Broker() as broker:
            before_ms = wall_ms()
            await broker.clock.pass_s(3_600)
            return wall_ms() - before_ms

    assert run_virtual(work()) == 3_600_000


def test_a_stalled_handler_gives_its_partitions_up_after_301_seconds_in_no_time():
    async def program():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            async with Worker(broker, handling_s=400) as worker:
                broker.produce("orders", b"slow")
                await broker.clock.pass_s(299)
                assert worker.consumer.assignment()
                await broker.clock.pass_s(2)
                assert broker.group("billing").members == ()
                assert not worker.consumer.assignment()
                assert worker.consumer.health().why == "no request for records within max_poll_interval_ms"
            assert broker.troubles == []

    began = time.monotonic()
    run_virtual(program())
    assert time.monotonic() - began < 300, "however slow the machine is, nothing waited for the real time to pass"


def test_the_clock_begins_near_the_time_of_day_and_moves_by_itself():
    async def program():
        async with Broker() as broker:
            clock = broker.clock
            assert abs(clock.now_ms - time.time() * 1000) < 60_000
            before = clock.now_ms
            await clock.pass_s(7_200)
            assert clock.now_ms - before == 7_200_000
            for wrong in (-1, float("nan"), float("inf"), "1", None, True):
                with pytest.raises(VirtualTimeError, match="a number of seconds"):
                    await clock.pass_s(wrong)
            broker.create_topic("orders")
            broker.produce("orders", b"late")
            (record,) = broker.records("orders")
            assert record.timestamp_ms == clock.now_ms

    run_virtual(program())


def test_the_clock_is_not_there_in_real_time():
    with Broker() as broker, pytest.raises(BrokerRefusal, match="real time"):
        _ = broker.clock


# Clients.


def test_clients_of_aiokafka():
    """A producer, both consumers and the administration client, over minutes in which nothing happens."""

    async def program():
        async with Broker(nodes=3, seed=1) as broker, asyncio.timeout(LIMIT_S):
            admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
            await admin.start()
            await admin.create_topics([NewTopic("orders", 2, 3)])
            await admin.close()
            wanted = {b"%d" % number for number in range(20)}
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            theirs = AIOKafkaConsumer("orders", group_id="theirs", **settings(broker))
            await theirs.start()
            for number in range(10):
                await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
            seen_by_theirs = {(await theirs.getone()).value for _ in range(10)}
            await broker.clock.pass_s(200)
            for number in range(10, 20):
                await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
            seen_by_theirs |= {(await theirs.getone()).value for _ in range(10)}
            await theirs.stop()
            await producer.stop()
            async with Consumer("orders", group_id="ours", **settings(broker)) as ours:
                batch = await ours.getmany(timeout_ms=5_000, max_records=20)
                seen_by_ours = {bytes(record.value) for record in batch.all()}
            assert (seen_by_theirs, seen_by_ours) == (wanted, wanted)
            assert broker.troubles == []

    run_virtual(program())


def test_a_heartbeat_of_aiokafka_goes_by_the_virtual_clock():
    async def program():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            consumer = AIOKafkaConsumer("orders", group_id="theirs", session_timeout_ms=6_000, **settings(broker))
            await consumer.start()
            for _ in range(20):
                await broker.clock.pass_s(10)
                assert consumer.assignment()
            await consumer.stop()

    run_virtual(program())


def test_an_answer_longer_than_any_buffer_comes_whole():
    async def program():
        async with Broker() as broker:
            broker.create_topic("orders")
            values = [bytes([number]) * 900_000 for number in range(4)]
            broker.produce_many("orders", values)
            async with Consumer("orders", group_id="ours", **settings(broker)) as consumer:
                assert [bytes((await anext(consumer)).value) for _ in values] == values

    run_virtual(program())


def test_a_node_that_dies_breaks_connections_and_comes_back_at_its_address():
    async def program():
        async with Broker(nodes=2, seed=1) as broker:
            broker.create_topic("orders", replication_factor=2)
            async with Worker(broker) as worker:
                broker.produce("orders", b"before")
                await broker.clock.pass_s(1)
                for node in broker.nodes:
                    node.kill()
                with pytest.raises(ConnectionRefusedError):
                    await connected(broker.nodes[0])
                await broker.clock.pass_s(20)
                for node in broker.nodes:
                    node.start()
                await broker.clock.pass_s(20)
                broker.produce("orders", b"after")
                await broker.clock.pass_s(5)
                assert worker.handled == [0, 1]

    run_virtual(program())


async def connected(node):
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, *node.address().split(":")[:1], node.port)
    return transport


def test_a_client_that_stops_reading_gets_nothing_until_it_reads_on():
    class Reading(asyncio.Protocol):
        def __init__(self):
            self.data = b""

        def data_received(self, data):
            self.data += data

    async def program():
        async with Broker() as broker:
            (node,) = broker.nodes
            line, protocol = await asyncio.get_running_loop().create_connection(
                Reading, node.address().partition(":")[0], node.port
            )
            line.pause_reading()
            line.write(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))  # ApiVersions, version 0
            await broker.clock.pass_s(1)
            assert protocol.data == b""
            line.resume_reading()
            await broker.clock.pass_s(1)
            assert protocol.data[4:8] == b"\0\0\0\7"
            line.close()

    run_virtual(program())


def test_two_brokers_have_addresses_of_their_own():
    async def program():
        async with Broker(nodes=2) as one, Broker() as other:
            assert len({*one.bootstrap_servers.split(","), other.bootstrap_servers}) == 3
            one.create_topic("orders")
            other.create_topic("bills")
            async with Consumer(bootstrap_servers=other.bootstrap_servers) as consumer:
                assert await consumer.topics() == {"bills"}

    run_virtual(program())


# Faults of the network.


API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff")
KEY = 18


class Answered(asyncio.Protocol):
    """Notes the millisecond at which its connection got an answer, and how the connection ended."""

    def __init__(self):
        self.at_ms = []
        self.error = "none yet"

    def data_received(self, _data):
        self.at_ms.append(asyncio.get_running_loop().now_ms() - BEGIN_MS)

    def connection_lost(self, error):
        self.error = error


def on_a_network(program):
    """Run `program(network, line, protocol)` with one open connection to one of two nodes."""

    async def run():
        cluster = Cluster(Settings.of({}), random.Random(1), nodes=2)
        network = VirtualNetwork(cluster, asyncio.get_running_loop(), random.Random(1))
        network.open()
        address = network.addresses().split(",")[0].split(":")
        line, protocol = await network.connect(Answered, address[0], int(address[1]))
        await program(network, line, protocol)
        network.close()

    run_virtual(run(), begin_ms=BEGIN_MS)


@pytest.mark.parametrize("is_up", [True, False])
def test_what_is_held_comes_late_and_what_is_written_behind_it_too(is_up):
    async def program(network, line, protocol):
        told = []
        network.hold(None, KEY, 500, lambda: told.append(network.now_ms() - BEGIN_MS), is_up=is_up)
        line.write(API_VERSIONS)
        line.write(API_VERSIONS)
        await Clock(network.loop).pass_s(1)
        assert (protocol.at_ms, told) == ([503, 503], [2 if is_up else 3])

    on_a_network(program)


def test_what_is_blocked_comes_when_the_block_is_over_and_other_nodes_are_not_blocked():
    async def program(network, line, protocol):
        network.block(None, 2, 9_000)
        line.write(API_VERSIONS)
        await Clock(network.loop).pass_s(1)
        assert protocol.at_ms == [3]
        network.block(None, 1, 3_000)
        line.write(API_VERSIONS)
        await Clock(network.loop).pass_s(3)
        network.heal()
        await Clock(network.loop).pass_s(1)
        assert protocol.at_ms == [3, 4_002]

    on_a_network(program)


def test_a_cut_is_learned_by_both_ends_and_nothing_arrives_any_more():
    async def program(network, line, protocol):
        line.write(API_VERSIONS)
        network.cut_all(node_id=2)
        assert network.lines
        network.cut_all(node_id=1)
        assert not network.lines
        assert line.connection.is_closed
        await Clock(network.loop).pass_s(1)
        assert isinstance(protocol.error, ConnectionResetError)
        assert protocol.at_ms == []

    on_a_network(program)


# Determinism.


class Recording(VirtualNetwork):
    """Records every byte with its direction and instant."""

    def __init__(self, *args):
        super().__init__(*args)
        self.digest = hashlib.sha256()

    def send_up(self, line, data):
        self.digest.update(b"up %d %f " % (line.connection.number, self.loop.time()) + data)
        super().send_up(line, data)

    def send_down(self, line, answer):
        self.digest.update(b"down %d %f " % (line.connection.number, self.loop.time()) + answer)
        super().send_down(line, answer)


def exchanges(seed):
    """A digest of all that two consumers of a group and three nodes send each other in half a minute."""

    async def program():
        loop = asyncio.get_running_loop()
        rng = random.Random(seed)
        cluster = Cluster(Settings.of({"auto.create.topics.enable": "true"}), rng, nodes=3)
        network = Recording(cluster, loop, rng)
        network.jitter_ms = 20
        network.open()
        network.control(lambda now_ms: cluster.topics.create("orders", 6, now_ms))
        servers = network.addresses().replace(" ", "")
        consumers = [
            Consumer(
                "orders",
                group_id="billing",
                bootstrap_servers=servers,
                session_timeout_ms=6_000,
                fetch_max_wait_ms=2_000,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(each.start() for each in consumers))
        for _ in range(3):
            await Clock(loop).pass_s(10)
            network.cut_all(node_id=rng.randrange(1, 4))
        await asyncio.gather(*(each.stop() for each in consumers))
        network.close()
        return network.digest.hexdigest()

    return run_virtual(program(), seed=seed, begin_ms=BEGIN_MS)


def test_the_same_seed_gives_the_same_exchanges_byte_by_byte_whatever_the_hash_seed():
    told = {exchanges(7)}
    program = "from tests.embedded.test_virtual_time import exchanges; print(exchanges(7))"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        told.add(run.stdout.strip())
    assert len(told) == 1
    assert exchanges(8) not in told


LONG = 1_000_000
"""Adding up this many numbers takes several turns of a cursor."""


def loop_turns_while_reading(numbers, records_of):
    """How often the loop ran while records were read. For each record `numbers` numbers are added up."""

    async def read():
        turns = 0

        def count_turn():
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(count_turn)

        async with Broker(seed=1) as broker:
            broker.create_topic("orders", partitions=1)
            broker.produce_many("orders", [b"%d" % number for number in range(12)])
            async with Consumer("orders", **settings(broker)) as consumer:
                records = records_of(consumer)
                await anext(records)
                count_turn()
                for _ in range(11):
                    await anext(records)
                    sum(range(numbers))
        return turns

    return run_virtual(read())


@pytest.mark.parametrize("records_of", [aiter, Consumer.merged], ids=["async for", "merged"])
def test_turns_do_not_end_by_the_real_clock(records_of):
    """Otherwise turns would end earlier on a busy machine, and two things of the same instant could change places."""
    assert loop_turns_while_reading(LONG, records_of) == loop_turns_while_reading(0, records_of)


def test_objects_keep_the_hash_with_which_they_were_put_into_a_set():
    async def program():
        before = CancelScope()
        kept = {before}
        with virtual_time(asyncio.get_running_loop()):
            during = CancelScope()
            kept.add(during)
            assert {before, during} == kept
            assert hash(during) < 10 < hash(before)
        assert {before, during} == kept
        assert hash(CancelScope()) > 10

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(program())


# Error messages.


def test_a_task_that_waits_for_nothing_is_named():
    async def waits_for_ever():
        await asyncio.Event().wait()

    async def program():
        waiting = asyncio.get_running_loop().create_task(waits_for_ever(), name="the one that hangs")
        await waiting

    with pytest.raises(StuckError, match=r"the one that hangs: (?s:.*)Event\.wait"):
        run_virtual(program())


def test_a_task_that_spins_is_named():
    async def program():
        for _ in range(1_000_000):
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match=r"100,000 turns(?s:.*)program"):
        run_virtual(program())


def test_another_address_is_told_to_the_client_and_in_the_troubles():
    async def program():
        async with Broker() as broker:
            for _ in range(2):
                with pytest.raises(VirtualTimeError, match=re.escape(f"({broker.bootstrap_servers})")):
                    await asyncio.open_connection("127.0.0.1", 5_432)
            (trouble,) = broker.troubles
            assert "127.0.0.1:5432 cannot be reached in virtual time" in str(trouble)

    run_virtual(program())


def test_the_consumer_passes_on_what_virtual_time_says():
    async def program():
        async with Broker():
            consumer = Consumer("orders", bootstrap_servers="127.0.0.1:5432", default_api_timeout_ms=1_000)
            with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:5432 cannot be reached in virtual time"):
                await consumer.start()

    run_virtual(program())


async def test_run_virtual_in_a_running_loop_is_refused():
    async def program():
        """It is closed without being run."""

    work = program()
    with pytest.raises(VirtualTimeError, match="an event loop runs in this thread already"):
        run_virtual(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_without_a_broker_every_address_is_refused():
    with pytest.raises(VirtualTimeError, match="none runs"):
        run_virtual(asyncio.open_connection("127.0.0.1", 5_432))


def test_tls_is_refused():
    async def program():
        async with Broker() as broker:
            (node,) = broker.nodes
            with pytest.raises(VirtualTimeError, match="no TLS"):
                await asyncio.open_connection(node.address().partition(":")[0], node.port, ssl=True)

    run_virtual(program())


def test_servers_and_processes_are_refused():
    async def program():
        with pytest.raises(VirtualTimeError, match="create_server"):
            await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        with pytest.raises(VirtualTimeError, match="subprocess_exec"):
            await asyncio.create_subprocess_exec("true")

    run_virtual(program())


def test_a_heartbeat_thread_is_refused():
    """The thread has another loop, and no resolver knows the broker's address."""

    async def program():
        async with Broker() as broker:
            broker.create_topic("orders")
            with pytest.raises(VirtualTimeError, match="heartbeat_thread"):
                await Consumer("orders", group_id="ours", heartbeat_thread=True, **settings(broker)).start()

    run_virtual(program())


def test_a_broker_in_a_thread_is_refused():
    async def program():
        with pytest.raises(BrokerRefusal, match="async with"), Broker():
            pass

    run_virtual(program())


def test_conditions_are_waited_for_by_the_virtual_clock():
    async def program():
        async with Broker() as broker:
            broker.create_topic("orders")
            async with Worker(broker, handling_s=5):
                broker.produce("orders", b"one")
                await broker.until(caught_up("billing"), timeout_s=60)
                began_ms = broker.clock.now_ms
                with pytest.raises(TimeoutError, match="stable"):
                    await broker.until(stable("billing", members=2), timeout_s=3)
                assert broker.clock.now_ms - began_ms == pytest.approx(3_000, abs=10)

    run_virtual(program())


def test_another_thread_may_not_call():
    async def program():
        async with Broker() as broker:
            with pytest.raises(BrokerRefusal, match="only the loop's own thread"):
                await asyncio.to_thread(broker.create_topic, "orders")

    run_virtual(program())


def test_a_client_that_finds_no_broker_gives_up_by_the_virtual_clock():
    async def program():
        async with Broker() as broker:
            broker.nodes[0].pause()
            began_ms = broker.clock.now_ms
            with pytest.raises(KafkaTimeoutError):
                await Consumer(request_timeout_ms=20_000, **settings(broker)).start()
            assert broker.clock.now_ms - began_ms >= 10_000

    run_virtual(program())


# Threads.


def test_a_job_of_the_executor_holds_the_clock():
    async def program():
        loop, gate = asyncio.get_running_loop(), threading.Event()
        began = loop.time()
        timer = loop.create_task(Clock(loop).pass_s(3_600))
        job = loop.run_in_executor(None, gate.wait, 10)
        for _ in range(10):
            await asyncio.sleep(0)
        threading.Timer(0.05, gate.set).start()
        assert await job
        assert loop.time() == began
        assert await asyncio.to_thread(sum, [1, 2]) == 3
        assert loop.time() == began
        await timer
        assert loop.time() == pytest.approx(began + 3_600)

    run_virtual(program())


def test_a_job_that_raises_does_not_hold_the_clock_any_longer():
    async def program():
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match="'x'"):
            await loop.run_in_executor(None, int, "x")
        await Clock(loop).pass_s(10)

    run_virtual(program())


def test_a_thread_of_anyio_is_waited_for_while_nothing_is_due():
    async def program():
        return await to_thread.run_sync(sum, [1, 2])

    assert run_virtual(program()) == 3


def test_randomness_comes_from_the_seed_and_is_restored():
    async def program():
        return random.random()

    random.seed(5)
    wanted = random.random()
    random.seed(5)
    assert run_virtual(program(), seed=1) == run_virtual(program(), seed=1) != run_virtual(program(), seed=2)
    assert random.random() == wanted


def test_a_broker_that_is_closed_while_somebody_connects_refuses():
    async def connect():
        loop = asyncio.get_running_loop()
        async with Broker() as broker:
            host, port = broker.bootstrap_servers.split(":")
            connecting = asyncio.create_task(loop.create_connection(asyncio.Protocol, host, int(port)))
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError, match="closed"):
            await connecting

    run_virtual(connect())
