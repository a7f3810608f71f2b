"""The smallest group of `benchmarks.scale` in virtual time and on real Kafka, with the same short time-outs."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter
from weakref import WeakSet

from aiokafka import AIOKafkaProducer

from aiogroup.devkafka import Cluster
from benchmarks.scaling import GROUP, MEMBER, QUICK, TOPIC, Case, count_requests, run, run_in_virtual_time

MEMBERS = 10
SCENARIOS = ("start", "rolling restart", "crash", "scale-up")
KINDS = tuple((is_static, protocol) for is_static in (False, True) for protocol in ("range", "cooperative-sticky"))
JITTERS_MS = (1, 3, 5)
"""How late messages are decides what comes first: with 1 ms a rolling restart with `cooperative-sticky` takes 30
rebalances, with 5 ms, as in the study, up to 35. What real Kafka takes must lie between these.
"""
COMPUTING_S = 0.05
"""What a rebalance may take longer on Kafka: computing takes no time in virtual time, and the broker and these ten
members, which share a loop, need 15 to 45 ms for one.
"""
STILL_S = 2.0
"""A group is stable when each member has been in the newest generation for so long."""


class Transport:
    """A client's connection: counts what it writes."""

    def __init__(self, transport, requests):
        self._transport = transport
        self._requests = requests

    def write(self, data):
        count_requests(bytes(data), self._requests)
        self._transport.write(data)

    def __getattr__(self, name):
        return getattr(self._transport, name)


class Loop(asyncio.SelectorEventLoop):
    """Knows which member's tasks and connections they are, so that a member can die."""

    def __init__(self):
        super().__init__()
        self.tasks_of = {}
        self.transports_of = {}
        self.dead = set()
        self.requests = Counter()

    def create_task(self, coroutine, *, context=None, **options):
        task = super().create_task(coroutine, context=context, **options)
        life = MEMBER.get() if context is None else context.get(MEMBER)
        if life is not None:
            self.tasks_of.setdefault(life, WeakSet()).add(task)
        return task

    async def create_connection(self, protocol_factory, *place, **options):
        life = MEMBER.get()
        if life in self.dead:
            await self.create_future()
        if life is None:
            return await super().create_connection(protocol_factory, *place, **options)

        def counted():
            protocol = protocol_factory()
            begin = protocol.connection_made
            protocol.connection_made = lambda transport: begin(Transport(transport, self.requests))
            return protocol

        transport, protocol = await super().create_connection(counted, *place, **options)
        self.transports_of.setdefault(life, []).append(transport)
        return Transport(transport, self.requests), protocol


class Network:
    """What `benchmarks.scaling` asks of a network."""

    def __init__(self, loop):
        self._loop = loop
        self.requests = loop.requests
        self.bytes_count = 0

    def kill(self, life):
        self._loop.dead.add(life)
        for transport in self._loop.transports_of.pop(life, ()):
            transport.abort()


class OnKafka:
    """The group's brokers: real ones, which stay; the group and the topic are this case's."""

    def __init__(self, case, cluster, loop):
        self._cluster = cluster
        self._partitions = case.partitions
        self._producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20)
        self._still_since = None
        self.network = Network(loop)
        self.bootstrap_servers = cluster.bootstrap_servers

    async def begin(self):
        await asyncio.to_thread(self._cluster.create_topic, TOPIC, self._partitions)
        await self._producer.start()

    def now_ms(self):
        return time.time() * 1000  # noqa: TID251 (records have the time of day)

    async def produce(self):
        for partition in range(self._partitions):
            await self._producer.send(TOPIC, b"record", partition=partition)

    def is_stable(self, world, count):
        living = [each for each in world.members.values() if not each.is_over]
        if len(living) != count or any(each.generation != world.generation for each in living):
            self._still_since = None
        elif self._still_since is None:
            self._still_since = world.loop.time()
        return self._still_since is not None and world.loop.time() - self._still_since > STILL_S

    async def end(self):
        await self._producer.stop()


def run_on_kafka(case):
    with asyncio.Runner(loop_factory=Loop) as runner:

        async def on_cluster():
            async with Cluster(properties={"group.initial.rebalance.delay.ms": "3000"}) as cluster:
                return await run(case, OnKafka(case, cluster, runner.get_loop()))

        return runner.run(on_cluster())


def is_between(real, virtual, tolerance):
    """Whether Kafka's figure lies within those of virtual time, or no further off than `tolerance`."""
    return min(virtual) - tolerance <= real <= max(virtual) + tolerance


def compare():
    """Prints both; 1 if the number of rebalances lies off by more than one, or standstill by more than a fifth, and by
    more than computing explains.
    """
    logging.disable(logging.CRITICAL)
    print(f"group {GROUP} of {MEMBERS}, time-outs: {dataclasses.asdict(QUICK)}")
    differ = 0
    for scenario in SCENARIOS:
        for is_static, protocol in KINDS:
            case = Case(scenario, MEMBERS, is_static, protocol, pace=QUICK)
            virtual = {each: run_in_virtual_time(dataclasses.replace(case, jitter_ms=each)) for each in JITTERS_MS}
            real = run_on_kafka(case)
            most_s = max(20.0, 0.2 * real.standstill_s, COMPUTING_S * case.partitions * real.rebalances)
            is_near = is_between(real.rebalances, [each.rebalances for each in virtual.values()], 1)
            is_near &= is_between(real.standstill_s, [each.standstill_s for each in virtual.values()], most_s)
            differ |= not is_near
            kind = "static" if is_static else "dynamic"
            print(f"{scenario}, {kind}, {protocol}: {'agree' if is_near else 'DIFFER'}")
            for name, cost in (*((f"{jitter} ms", cost) for jitter, cost in virtual.items()), ("Kafka", real)):
                print(
                    f"  {name:8}{cost.rebalances:4} rebalances, {cost.standstill_s:7.1f} partition-seconds, longest "
                    f"{cost.worst_s:5.1f} s, {cost.requests} requests ({cost.joins} JoinGroup), {cost.repeated} of "
                    f"{cost.records} repeated",
                    flush=True,
                )
    return int(differ)
