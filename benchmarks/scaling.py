"""A group of many members that lives through one event, in virtual time or real time, and what it cost them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from random import Random
from weakref import WeakSet

from aiogroup import Consumer, TopicPartition
from aiogroup._core.telemetry import events
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.groups.group import GroupState
from aiogroup.embedded.machine.logs.direct import DirectLogs
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.shell.virtual_loop import VirtualLoop
from aiogroup.embedded.shell.virtual_network import VirtualNetwork
from aiogroup.embedded.shell.virtual_time import virtual_time
from aiogroup.errors import AiogroupError
from benchmarks.scaling_shared import shared_metadata

TOPIC = "orders"
GROUP = "scale"
NODES = 2
MEMBER = ContextVar("member", default=None)
COORDINATOR_APIS = {8: "OffsetCommit", 9: "OffsetFetch", 10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat"} | {
    13: "LeaveGroup",
    14: "SyncGroup",
}
RETRANSMIT_MS = 200
"""The least time after which TCP sends a lost segment again (Linux); it doubles with each further loss."""
LOSS = 0.01
LOADING_MS = 2_000
EXPANSION_S = 60
EXPANDING = "scale-up, expansion"
PROPERTIES = {"group.initial.rebalance.delay.ms": "3000", "max.connections": str(2**31 - 1)}
"""The embedded broker's own default of 1,000 connections is not enough for 150 members."""
LIMIT_S = 3_600
BEGIN_MS = 1_800_000_000_000


@dataclass(frozen=True)
class Pace:
    """Seconds."""

    session_s: float = 45.0
    heartbeat_s: float = 3.0
    back_s: float = 10.0
    """From the end of a process until the next one begins."""
    wave_s: float = 30.0
    """From one wave of a rolling restart to the next one."""
    spread_s: float = 30.0
    """Over so long a time members of one kind begin."""
    quiet_s: float = 120.0
    """For so long a group is looked at in which nothing happens but what the scenario is about."""
    record_s: float = 10.0
    """Each partition gets a record so often."""


QUICK = Pace(session_s=6.0, heartbeat_s=1.0, back_s=2.0, wave_s=5.0, spread_s=5.0, quiet_s=15.0, record_s=1.0)
"""For a run beside real Kafka, whose minutes are minutes."""


@dataclass(frozen=True)
class Case:
    """One group and the event that it lives through."""

    scenario: str
    members: int
    is_static: bool = False
    protocol: str = "range"
    partitions_each: int = 10
    pace: Pace = field(default_factory=Pace)
    seed: int = 1
    jitter_ms: int = 5
    """A message takes 1 ms to this many."""

    @property
    def partitions(self) -> int:
        return self.members * self.partitions_each

    @property
    def wave(self) -> int:
        """A twentieth."""
        return max(1, self.members // 20)


@dataclass
class Cost:
    """What an event cost."""

    duration_s: float = 0.0
    rebalances: int = 0
    standstill_s: float = 0.0
    """Partition-seconds without an owner."""
    worst_s: float = 0.0
    """The longest time for which one partition had none."""
    age_p99_s: float = 0.0
    """From the moment at which a record was produced until its application had it."""
    repeated: int = 0
    records: int = 0
    requests: int = 0
    request_kb: float = 0.0
    joins: int = 0
    cpu_s: float = 0.0


class Loop(VirtualLoop):
    """Knows which member's tasks they are, so that a member can die."""

    def __init__(self, begin_ms):
        super().__init__(begin_ms)
        self.tasks_of = {}

    def create_task(self, coroutine, *, context=None, **options):
        task = super().create_task(coroutine, context=context, **options)
        life = MEMBER.get() if context is None else context.get(MEMBER)
        if life is not None:
            self.tasks_of.setdefault(life, WeakSet()).add(task)
        return task


def count_requests(data, counter):
    """Count the requests to a coordinator in bytes that a client wrote: whole requests, each with its size."""
    at = 0
    while at < len(data):
        if (api := COORDINATOR_APIS.get(int.from_bytes(data[at + 4 : at + 6], "big"))) is not None:
            counter[api] += 1
        at += 4 + int.from_bytes(data[at : at + 4], "big")


class Network(VirtualNetwork):
    """Counts what the coordinator gets, loses messages, and knows which member connects."""

    def __init__(self, cluster, loop, draw):
        super().__init__(cluster, loop, draw)
        self.requests = Counter()
        self.bytes_count = 0
        self.loss = 0.0
        self.dead = set()

    def client(self):
        return MEMBER.get()

    async def connect(self, protocol_factory, host, port):
        if self.client() in self.dead:
            await self.loop.create_future()
        return await super().connect(protocol_factory, host, port)

    def delay_ms(self):
        late_ms, again_ms = super().delay_ms(), RETRANSMIT_MS
        while self.loss and self.draw.random() < self.loss:
            late_ms, again_ms = late_ms + again_ms, 2 * again_ms
        return late_ms

    def send_up(self, line, data):
        count_requests(data, self.requests)
        if int.from_bytes(data[4:6], "big") in COORDINATOR_APIS:
            self.bytes_count += len(data)
        super().send_up(line, data)

    def send_down(self, line, answer):
        if line.key_of(answer) in COORDINATOR_APIS:
            self.bytes_count += len(answer)
        super().send_down(line, answer)

    def kill(self, name):
        self.dead.add(name)
        self.cut_all(client=name)


class InVirtualTime:
    """The group's brokers, embedded."""

    def __init__(self, case, loop):
        self.settings = Settings.of(PROPERTIES)
        self.cluster = Cluster(self.settings, Random(case.seed), nodes=NODES, **drafted(case))
        self.cluster.observers.all.clear()  # they keep the last exchanges, and nobody will ask for them
        self.network = Network(self.cluster, loop, Random(case.seed))
        self.network.jitter_ms = case.jitter_ms
        self.logs = DirectLogs(self.cluster.topics, self.settings)
        self.partitions = case.partitions

    async def begin(self):
        self.network.open()
        self._control(lambda now_ms: self.cluster.topics.create(TOPIC, self.partitions, now_ms))

    @property
    def bootstrap_servers(self):
        return self.network.addresses()

    def now_ms(self):
        return self.network.now_ms()

    def _control(self, act):
        self.network.control(act)
        self.network.flush()

    async def produce(self):
        """One record to each partition."""
        values = [b"record"] * self.partitions
        self._control(lambda now_ms: self.logs.produce_many(TOPIC, values, now_ms))

    def is_stable(self, world, count):
        """Whether the group is stable with so many members."""
        del world
        coordinator = self.cluster.coordinators.seat_of(GROUP).coordinator
        group = None if coordinator is None else coordinator.groups.get(GROUP)
        return group is not None and group.state is GroupState.STABLE and len(group.members) == count

    async def move_coordinator(self):
        node = self.cluster.coordinators.node_of(GROUP)
        other = next(each.node_id for each in self.cluster.nodes if each is not node)
        self._control(lambda now_ms: self.cluster.coordinators.move(GROUP, other, LOADING_MS, now_ms))

    async def end(self):
        """Figures of a group in which a broker refused something are not told.

        Raises:
            RuntimeError: there are such refusals.
        """
        self.network.close()
        if troubles := self.cluster.troubles.kept:
            raise RuntimeError(f"the broker refused: {troubles[0].refusal.name}, {troubles[0].what}")


def drafted(case):
    """KIP-345's draft 41, which alone has an expansion time-out."""
    return {"static_membership": "draft"} if case.scenario == EXPANDING else {}


class Member:
    """One process of the application, and its only life."""

    def __init__(self, world, number):
        case = world.case
        self.world = world
        self.name = f"m{number}"
        self.life = world.next_life()
        self.owned = set()
        self.generation = 0
        self.is_over = False
        self.context = copy_context()
        self.context.run(MEMBER.set, self.life)
        more = {"group_instance_id": self.name} if case.is_static else {}
        if drafted(case):
            more["expansion_timeout_ms"] = EXPANSION_S * 1000
        self.consumer = Consumer(
            TOPIC,
            bootstrap_servers=world.place.bootstrap_servers,
            group_id=GROUP,
            client_id=self.life,
            partition_assignment_strategy=case.protocol,
            auto_commit_interval_ms=5_000,
            session_timeout_ms=int(case.pace.session_s * 1000),
            heartbeat_interval_ms=int(case.pace.heartbeat_s * 1000),
            auto_offset_reset="earliest",
            fetch_max_wait_ms=5_000,  # fetches that wait are not what is measured, and are most of the work
            observers=[self],
            **more,
        )
        self.task = asyncio.get_running_loop().create_task(self._live(), context=self.context)

    async def _live(self):
        while True:  # a coordinator that does not answer may make a start fail
            try:
                await self.consumer.start()
                break
            except AiogroupError:
                return
        async for record in self.consumer:
            self.world.on_record(record)

    def on_event(self, event):
        if self.is_over:
            return
        if isinstance(event, events.RebalanceCompleted):
            self.generation = event.generation
            self.world.generation = max(self.world.generation, event.generation)
            self.world.owns(self, event.partitions)
        elif isinstance(event, events.PartitionsRevoked | events.PartitionsLost):
            self.world.gives_up(self, event.partitions)

    async def stop(self):
        await asyncio.get_running_loop().create_task(self.consumer.stop(), context=self.context)
        self.kill()

    def kill(self):
        """Nothing of it says or hears anything any more."""
        self.world.gives_up(self, tuple(self.owned))
        self.is_over = True
        self.world.place.network.kill(self.life)
        for task in asyncio.get_running_loop().tasks_of.pop(self.life, ()):
            task.cancel()


class World:
    """The group, and who owns what."""

    def __init__(self, case, place):
        self.case = case
        self.place = place
        self.loop = asyncio.get_running_loop()
        self.members = {}
        self.lives_count = 0
        self.owners = {}
        self.orphaned_at = {TopicPartition(TOPIC, each): self.loop.time() for each in range(case.partitions)}
        self.cost = Cost()
        self.seen = set()
        self.ages_s = []
        self.generation = 0

    def next_life(self):
        self.lives_count += 1
        return f"life-{self.lives_count}"

    # What members report.

    def owns(self, member, partitions):
        now = self.loop.time()
        self.gives_up(member, tuple(member.owned.difference(partitions)))
        for tp in partitions:
            member.owned.add(tp)
            self.owners.setdefault(tp, set()).add(member)
            if (since := self.orphaned_at.pop(tp, None)) is not None:
                self.cost.standstill_s += now - since
                self.cost.worst_s = max(self.cost.worst_s, now - since)

    def gives_up(self, member, partitions):
        for tp in partitions:
            member.owned.discard(tp)
            owners = self.owners.get(tp, set())
            owners.discard(member)
            if not owners:
                self.orphaned_at.setdefault(tp, self.loop.time())

    def on_record(self, record):
        place = record.partition, record.offset
        self.cost.records += 1
        self.ages_s.append(self.place.now_ms() / 1000 - record.timestamp / 1000)
        if place in self.seen:
            self.cost.repeated += 1
        self.seen.add(place)

    # What happens.

    def begin(self, number):
        self.members[number] = Member(self, number)

    async def begin_all(self, numbers):
        for number in numbers:
            self.begin(number)
            await asyncio.sleep(self.case.pace.spread_s / len(numbers))

    async def settled(self, count):
        """The group is stable with so many members, and each partition has an owner."""
        ends_at = self.loop.time() + LIMIT_S
        while True:
            if not self.orphaned_at and self.place.is_stable(self, count):
                return
            if self.loop.time() > ends_at:
                raise TimeoutError(f"{count} members: {len(self.orphaned_at)} partitions have no owner")
            await asyncio.sleep(0.1)

    async def produce(self):
        while True:
            await self.place.produce()
            await asyncio.sleep(self.case.pace.record_s)


async def run(case, place):
    """What the event of a case costs a group that has settled; for `start`, what it costs until it has."""
    await place.begin()
    world = World(case, place)
    producing = asyncio.get_running_loop().create_task(world.produce())
    numbers = range(case.members)
    try:
        if case.scenario != "start":
            await world.begin_all(numbers)
            await world.settled(case.members)
            await asyncio.sleep(2 * case.pace.record_s)
        world.cost = cost = Cost()
        world.ages_s.clear()
        generation = world.generation
        place.network.requests.clear()
        place.network.bytes_count = 0
        began_at, cpu_s = world.loop.time(), time.process_time()
        await SCENARIOS[case.scenario](world)
        cost.duration_s = world.loop.time() - began_at
        cost.cpu_s = time.process_time() - cpu_s
        cost.rebalances = world.generation - generation
        cost.age_p99_s = sorted(world.ages_s)[int(len(world.ages_s) * 0.99)] if world.ages_s else 0.0
        cost.requests = place.network.requests.total()
        cost.joins = place.network.requests["JoinGroup"]
        cost.request_kb = place.network.bytes_count / 1000
    finally:
        producing.cancel()
        for member in world.members.values():
            member.kill()
        await asyncio.sleep(1)  # until they know that they have no connections and no tasks
        await place.end()
    return cost


async def start(world):
    await world.begin_all(range(world.case.members))
    await world.settled(world.case.members)


async def rolling(world):
    """A twentieth at a time is stopped, and begins again."""
    case = world.case
    for first in range(0, case.members, case.wave):
        ends_at = world.loop.time() + case.pace.wave_s
        wave = range(first, min(first + case.wave, case.members))
        await asyncio.gather(*(world.members[number].stop() for number in wave))
        await asyncio.sleep(case.pace.back_s)
        for number in wave:
            world.begin(number)
        await asyncio.sleep(ends_at - world.loop.time())
    await world.settled(case.members)


async def crash(world):
    """A twentieth dies at once, and begins again."""
    case = world.case
    for number in range(case.wave):
        world.members[number].kill()
    await asyncio.sleep(case.pace.back_s)
    for number in range(case.wave):
        world.begin(number)
    await asyncio.sleep(case.pace.session_s + 2 * case.pace.heartbeat_s)  # until the dead are noticed
    await world.settled(case.members)


async def scale_up(world):
    case = world.case
    count = case.members + case.members // 2
    await world.begin_all(range(case.members, count))
    await asyncio.sleep(case.pace.heartbeat_s * 2)
    if case.scenario == EXPANDING:
        await asyncio.sleep(EXPANSION_S)
    await world.settled(count)


async def move(world):
    await world.place.move_coordinator()
    await asyncio.sleep(world.case.pace.quiet_s)
    await world.settled(world.case.members)


async def lossy(world):
    world.place.network.loss = LOSS
    await asyncio.sleep(world.case.pace.quiet_s)
    world.place.network.loss = 0.0
    await world.settled(world.case.members)


async def quiet(world):
    await asyncio.sleep(world.case.pace.quiet_s)


SCENARIOS = {
    "start": start,
    "rolling restart": rolling,
    "crash": crash,
    "scale-up": scale_up,
    EXPANDING: scale_up,
    "coordinator moves": move,
    "1 % lost": lossy,
    "quiet": quiet,
}


def run_in_virtual_time(case):
    """The cost of a case; its seed decides all of it but `cpu_s`."""
    with asyncio.Runner(loop_factory=lambda: Loop(BEGIN_MS)) as runner:
        loop = runner.get_loop()
        random.seed(case.seed)  # by which clients choose brokers and wait
        place = InVirtualTime(case, loop)
        with virtual_time(loop), shared_metadata(place.cluster):
            return runner.run(run(case, place))
