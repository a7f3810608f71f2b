"""One simulation: everything that happens follows from the seed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import warnings
from dataclasses import dataclass, replace
from unittest import mock

from aiokafka.structs import TopicPartition

from aiogroup._runtime.telemetry.log import Log
from aiogroup.embedded import virtual_time
from tests.simulation.aims import Aims
from tests.simulation.brokers import Brokers
from tests.simulation.checker import Checker
from tests.simulation.loop import START_SECONDS, SimLoop
from tests.simulation.member import STYLES, Member, sleep_ms

STRATEGIES = (("range",), ("roundrobin",), ("range", "roundrobin"), ("sticky",), ("cooperative-sticky",))
"""One more name for each strategy that comes."""
TOPIC = "orders"
NODES = 3
FETCH_BYTES = 400
"""A few batches: a backlog takes several fetches."""
ALL_NODES = range(1, NODES + 1)
FAULTS_MS = 25_000
PROFILES = {
    "calm": ("restart", "grow"),
    "quick": ("restart", "restart", "grow"),
    "network": ("cut", "block", "weather", "restart"),
    "members": ("freeze", "crash", "restart", "zombie"),
    "brokers": ("move", "ambush", "bounce", "lead", "restart", "grow"),
    "all": (
        "cut",
        "block",
        "weather",
        "freeze",
        "crash",
        "restart",
        "zombie",
        "move",
        "ambush",
        "bounce",
        "lead",
        "grow",
    ),
}

AIMED = {
    "late": ("overtake", "overtake", "late", "grow"),
    "aimed": ("overtake", "late", "outlive", "leave_out", "take_name", "restart"),
    "outlived": ("outlive",),
}
"""Every tenth seed."""
LANES = {"lanes": ("outlive", "outlive", "outlive", "freeze", "crash", "restart", "lead", "move")}
"""Two lanes read (KIP-333), and the application commits by name: the seeds from `LANES_FROM` on."""
LANES_FROM = 1_000_000
UNHEARD = {"unheard": ("mute",)}
"""One seed in fifty."""
RECREATED = {"recreated": ("recreate", "recreate", "recreate", "restart", "cut", "crash", "ambush", "grow")}
"""One seed in thirty."""
LATEST = {"latest": ("grow", "grow", "expire", "expire", "restart", "crash", "freeze", "lead")}
"""Who has no offset begins at the end, retention passes what is committed, and still all of it is read: the seeds from
`LATEST_FROM` on.
"""
LATEST_FROM = 2_000_000
STATIC = ("aimed", "outlived")  # who comes back gets what it had
AIMED_STYLES = (*STYLES, "batches", "batches")
CALM = ("calm", "quick", "late")
JITTERS_MS = (1, 20, 150)
WAY_MS = 1_000
"""How long an answer may be on its way, which counts from when it came: the weather is worse, but then others are."""


@dataclass(frozen=True)
class Habits:
    work_ms: int = 0
    stall_ms: int = 0
    stall_share: float = 0.0
    callback_ms: int = 0
    breaks: bool = False
    cancels: bool = False
    fidgets: bool = False

    def settled(self):
        return replace(
            self, work_ms=min(self.work_ms, 20), stall_ms=0, callback_ms=min(self.callback_ms, 200), fidgets=False
        )


def beginning(seed):
    """The first choices of every simulation: (randomness, jitter, profile)."""
    rng = random.Random(seed)
    jitter_ms, profile = rng.choice(JITTERS_MS), rng.choice(tuple(PROFILES))
    if seed >= LATEST_FROM:
        return rng, jitter_ms, "latest"
    if seed >= LANES_FROM:
        return rng, jitter_ms, "lanes"
    if seed % 50 == 48:
        return rng, jitter_ms, "unheard"
    if seed % 30 == 14:
        return rng, jitter_ms, "recreated"
    return rng, jitter_ms, tuple(AIMED)[seed // 10 % len(AIMED)] if seed % 10 == 9 else profile


class World(Aims):
    def __init__(self, seed, loop):
        self.seed = seed
        self.rng, jitter_ms, self.profile = beginning(seed)
        self.loop = loop
        self.trace = []
        self.topic = TOPIC
        self.members = []
        self.tasks = set()
        self.checker = Checker(loop, self.tell)
        self.brokers = Brokers(loop, self.rng, NODES, self.tell)
        self.brokers.set_checker(self.checker)
        self.checker.place, self.checker.name_of = self.brokers.place, self.brokers.name_of
        self.network = self.brokers.network
        self.network.jitter_ms = jitter_ms
        loop.set_exception_handler(self._on_loop_error)
        self.strategy = self.rng.choice(STRATEGIES)
        self.is_static = self.rng.random() < 0.35 or self.profile in STATIC
        self.checker.is_calm = self.profile in CALM
        if self.profile in RECREATED:
            self.checker.is_exact = False
        self.late_ms = 2_000 if self.profile == "late" else 0
        self.settings = self._settings()
        self.checker.keeps = self.strategy == ("cooperative-sticky",)
        self.checker.both_give_ms = (
            self.settings["session_timeout_ms"] + self.settings["heartbeat_interval_ms"] + WAY_MS
        )
        self.names = itertools.count(1)
        self.shared_names = set()  # two processes had it at a time: one of them is to be fenced
        self.faults_end_at = START_SECONDS + FAULTS_MS / 1000

    def tell(self, who, what):
        self.trace.append((self.loop.time(), who, what))

    def _on_loop_error(self, _loop, context):
        self.checker.fail(f"the loop was told: {context.get('message')} {context.get('exception')!r}")

    def _settings(self):
        rng = self.rng
        settings = {
            "bootstrap_servers": self.brokers.servers,
            "group_id": "billing",
            "partition_assignment_strategy": self.strategy,
            "session_timeout_ms": rng.choice((6_000, 8_000)),
            "heartbeat_interval_ms": rng.choice((1_000, 2_000)),
            "max_poll_interval_ms": rng.choice((8_000, 12_000)),
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": rng.choice((500, 2_000)),
            "request_timeout_ms": rng.choice((4_000, 8_000)),
            "default_api_timeout_ms": rng.choice((6_000, 30_000)),
            "metadata_max_age_ms": 4_000,
            "fetch_max_wait_ms": 1_500,
            "max_partition_fetch_bytes": FETCH_BYTES,
            "retry_backoff_max_ms": 1_000,
        }
        match self.profile:
            case "late":  # what is late comes in time
                return settings | {"auto_commit_interval_ms": 3_000, "request_timeout_ms": 8_000}
            case "aimed":  # the group waits less than its members take
                return settings | {"rebalance_timeout_ms": 3_000, "default_api_timeout_ms": 30_000}
            case "latest":
                return settings | {"auto_offset_reset": "latest"}
            case "outlived":
                self.strategy = settings["partition_assignment_strategy"] = ("range",)
                return settings | {"default_api_timeout_ms": 30_000}
            case "lanes":
                return settings | {"enable_parallel_rebalance": True, "parallel_min_backlog": 1}
        return settings

    # Members.

    def add_member(self, instance_id=None):
        rng = self.rng
        style = rng.choice(AIMED_STYLES if self.profile in STATIC else STYLES)
        settings = dict(self.settings)
        if self.profile in LANES:
            style = "lanes"
        if self.profile in LATEST and style == "batches":  # it commits where it begins only once it has read something
            style = "iterate"
        settings["enable_auto_commit"] = style not in ("batches", "lanes")
        settings["auto_ack"] = style != "acks"
        poll_ms = settings["max_poll_interval_ms"]
        habits = Habits(
            work_ms=rng.choice((0, 5, 50)),
            stall_ms=rng.choice((0, 0, 0, poll_ms - 1_000, poll_ms * 2)),
            stall_share=0.02,
            callback_ms=rng.choice((0, 0, 300, poll_ms - 500)),
            breaks=rng.random() < 0.3,
            cancels=rng.random() < 0.5,
            fidgets=rng.random() < 0.3,
        )
        if self.profile in ("quick", "late", "outlived", "unheard"):  # nobody may notice anything
            habits = replace(habits.settled(), fidgets=habits.fidgets)
        if self.profile in LANES:
            habits = replace(habits.settled(), work_ms=50, breaks=False)
        number = next(self.names)
        member = Member(self, f"m{number}", instance_id=instance_id, style=style, habits=habits, settings=settings)
        member.tell(f"begins: {instance_id or 'dynamic'}, {style}, {habits}")
        self.members.append(member)
        return member

    @property
    def alive(self):
        """Who reads, or would if it could."""
        return [each for each in self.members if not each.is_dead and not each.is_stopping and not each.task.done()]

    def spawn(self, work):
        task = self.loop.create_task(work)
        self.track(task)
        return task

    def track(self, task):
        """Wait for the task before the end. Members call this too, and a process that is halted runs no callbacks."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard, context=self.network.outside)

    # Faults.

    async def make_faults(self):
        rng = self.rng
        kinds = (PROFILES | AIMED | UNHEARD | LANES | RECREATED | LATEST)[self.profile]
        until = self.faults_end_at
        while self.loop.time() < until and not self.checker.violations:
            await sleep_ms(rng.randrange(200, 4_000))
            if self.loop.time() < until:
                getattr(self, f"_{rng.choice(kinds)}")()

    def _member(self):
        running = [each for each in self.alive if each.is_running and not each.process.is_halted]
        return self.rng.choice(running) if running else None

    def _cut(self):
        if lines := self.network.open_lines:
            line = self.rng.choice(lines)
            self.tell("network", f"cuts {line.client.name} - node {line.node.node_id}")
            self.network.cut(line)

    def _block(self):
        if (member := self._member()) is not None:
            nodes = self.rng.choice((list(ALL_NODES), [self.rng.choice(ALL_NODES)]))
            duration_ms = self.rng.choice((300, 2_000, 7_000, 15_000))
            self.tell("network", f"blocks {member.process.name} - nodes {nodes} for {duration_ms} ms")
            self.network.block_nodes(member.process, nodes, duration_ms)
            if self.rng.random() < 0.5:
                self.network.cut_all(client=member.process)

    def _weather(self):
        self.network.weather = self.rng.choice((0.0, 0.05, 0.3))
        self.network.late_ms = self.rng.choice((20, 200, 3_000))
        self.tell("network", f"{self.network.weather:.0%} of messages late by up to {self.network.late_ms} ms")

    def _freeze(self):
        if (member := self._member()) is not None:
            self.spawn(self._frozen(member, self.rng.choice((500, 3_000, 7_000, 20_000))))

    async def _frozen(self, member, duration_ms):
        member.tell(f"freezes for {duration_ms} ms")
        process = member.process
        process.is_halted = True
        began_at = self.loop.time()
        await sleep_ms(duration_ms)
        process.frozen_ms += (self.loop.time() - began_at) * 1000
        if not member.is_dead:
            member.tell("thaws")
            self.checker.thawed_at[process.name] = self.loop.time()
            self.loop.thaw(process)

    def _zombie(self):
        """A static member freezes, another process takes its name, and it comes back."""
        if (member := self._member()) is None or member.instance_id is None:
            self._freeze()
            return
        self.spawn(self._frozen(member, self.rng.choice((1_000, 9_000))))
        self.shared_names.add(member.instance_id)
        self.add_member(member.instance_id)

    def _crash(self):
        if (member := self._member()) is None:
            return
        member.tell("dies")
        member.is_dead = True
        member.process.is_halted = True
        if self.rng.random() < 0.7:
            self.network.cut_all(client=member.process)
        self.spawn(self._come_back(member, self.rng.choice((100, 3_000, 10_000))))

    async def _come_back(self, member, after_ms):
        await sleep_ms(after_ms)
        if not any(each.instance_id == member.instance_id for each in self.alive if each.instance_id):
            self.add_member(member.instance_id)

    def _restart(self):
        if (member := self._member()) is None:
            return
        self.spawn(self._restarted(member, self.rng.choice((0, 500, 5_000))))

    async def _restarted(self, member, after_ms):
        await self.stop_member(member)
        await self._come_back(member, after_ms)

    async def stop_member(self, member):
        task = self.loop.create_task(member.stop(), context=member.process.context.copy())
        self.tasks.add(task)
        try:
            report = await task
        finally:
            self.tasks.discard(task)
        for tp, count in report.in_hand.items():
            reached = member.ownerships.reached[tp]
            self.checker.may_repeat |= {(tp, offset) for offset in range(reached - count, reached)}
        for tp, offset in report.not_committed.items():
            self.checker.may_repeat |= {(tp, each) for each in range(self.checker.committed.get(tp, 0), offset)}
        if member.instance_id is None and not any(each.startswith("LeaveGroup") for each in report.problems):
            self.checker.excused.discard(member.process.name)  # it has left: nobody is there to be expired
        if self.checker.is_calm and not member.is_slow:
            self._check_calm_stop(member, report)

    def _check_calm_stop(self, member, report):
        excused = set()
        if (join := "a join that was running: not done in time") in report.problems:  # it waits for somebody else
            excused.add(join)
        # Nor does a commit end before that join does, and its application holds the batch until it ends.
        if member.style == "batches" and (excused or member.commit_ended_at >= member.hand_over_ends_at):
            excused.add("hand-over: not done in time")
        problems = [each for each in report.problems if each not in excused]
        if member.given_up and not excused:
            problems.append(f"gave up {sorted(member.given_up)}")
        if report.in_hand and not excused and member.style in ("iterate", "batches"):
            problems.append(f"did not wait for what was in hand: {report.in_hand}")
        if problems:
            self.checker.fail(f"{member.process.name} stopped with {problems}, and nothing was wrong")

    def _move(self):
        self._elect(self.rng.choice((0, 100, 2_000)))

    def _elect(self, loading_ms):
        """Another coordinator. One that is elected where it is keeps all that it knows (CoordinatorRuntime, ACTIVE)."""
        others = [node for node in self.brokers.up if node != self.brokers.coordinator_node]
        if others:
            self.brokers.move_coordinator(self.rng.choice(others), loading_ms)

    def _ambush(self):
        """When a generation begins or its assignment is handed in: the worst moments there are."""
        rng = self.rng
        loading_ms = rng.choice((50, 1_000))
        self.brokers.ambushes[rng.choice(("generation", "assignment"))] = rng.choice(
            (lambda: self._elect(loading_ms), self.network.cut_all, self._freeze)
        )
        if rng.random() < 0.5:
            self._restart()

    def _bounce(self):
        node = self.rng.choice(self.brokers.up)
        self.brokers.take_down(node, self.rng.choice((100, 1_500)))
        self.loop.call_later(self.rng.choice((500, 4_000, 9_000)) / 1000, self.brokers.bring_up, node)

    def _lead(self):
        partition = self.rng.randrange(len(self.brokers.ends(TOPIC)))
        self.brokers.move_leader(TOPIC, partition, self.rng.choice(self.brokers.up))

    def _recreate(self):
        """For some it was gone in between; others see the new topic only. It may have fewer partitions than before."""
        if TOPIC in self.brokers.gone:
            return
        count, rng = len(self.brokers.ends(TOPIC)), self.rng
        partitions = rng.choice((count, count, max(1, count - 1)))
        after_ms = rng.choice((0, 0, 20, 3_000))
        self.brokers.delete_topic(TOPIC, partitions, after_ms)
        if rng.random() < 0.7:
            self.loop.call_later((after_ms + 5) / 1000, self._fill)
        if rng.random() < 0.5:
            self._ask_for_round(self._member())
        if rng.random() < 0.3:
            self._crash()

    def _fill(self):
        """More than was committed of the old one: an offset of that would be believed."""
        if TOPIC not in self.brokers.gone:
            for number in range(len(self.brokers.ends(TOPIC))):
                self.brokers.append(TOPIC, number, 40)

    def _expire(self):
        """Retention removes records that are processed, and may be committed or not, with some that nobody has read."""
        number = self.rng.randrange(len(self.brokers.ends(TOPIC)))
        tp, end = TopicPartition(TOPIC, number), self.brokers.ends(TOPIC)[number]
        to_offset = self.rng.randint(self.checker.gap_free[tp], end)
        self.brokers.expire(tp, to_offset)
        self.checker.on_expired_records(tp, to_offset)
        for member in self.members:
            member.ownerships.moved_if_owned(tp)

    def _grow(self):
        if TOPIC in self.brokers.gone:
            return
        if len(self.brokers.ends(TOPIC)) < 6:
            self.brokers.add_partitions(TOPIC, 1)
            self.tell("brokers", f"{TOPIC} has {len(self.brokers.ends(TOPIC))} partitions")

    async def produce(self):
        rng = self.rng
        while self.loop.time() < self.faults_end_at:
            await sleep_ms(rng.randrange(20, 1_200))
            self.append()

    def append(self):
        if TOPIC in self.brokers.gone:
            return
        partition = self.rng.randrange(len(self.brokers.ends(TOPIC)))
        self.brokers.append(TOPIC, partition, self.rng.randrange(1, 30 if self.profile in LANES else 6))

    # The whole of it.

    async def run(self):
        rng = self.rng
        least = 2 if self.profile in AIMED or self.profile in UNHEARD else 1
        self.brokers.add_partitions(TOPIC, max(least, rng.randrange(1, 5)))
        if self.profile not in LATEST:
            self._begin_to_produce()
        names = [f"s{number}" if self.is_static else None for number in range(max(least, rng.randrange(1, 4)))]
        for name in names:
            self.add_member(name)
            await sleep_ms(rng.choice((0, 100, 2_500)))
        if self.profile in LATEST:
            await self._until(self._why_not_begun, 60_000)
            self._begin_to_produce()
        await self.make_faults()
        while self.tasks and not self.checker.violations:  # who is to come back does
            await asyncio.wait(self.tasks)
        if not self.checker.violations:
            await self.settle()
        if not self.checker.violations:
            for member in self.alive:
                await self.stop_member(member)
            await self._until(self._who_still_reads, 30_000)

    def _begin_to_produce(self):
        for _ in range(3):
            self.append()
        self.spawn(self.produce())

    def _why_not_begun(self):
        count = len(self.brokers.ends(TOPIC))
        return self._why_not_stable() or ("" if len(self.checker.committed) == count else "nothing is committed yet")

    async def settle(self):
        """The faults are over: within a bound everybody is stable, and everything is read."""
        self.tell("world", "the faults are over")
        self.network.heal()
        for node in ALL_NODES:
            self.brokers.bring_up(node)
        if not self.alive:
            self.add_member()
        for member in self.alive:
            member.settle()
        bound_ms = 20_000 + 2 * self.settings["max_poll_interval_ms"] + 2 * self.settings["session_timeout_ms"]
        await self._until(self._why_not_stable, bound_ms + 15_000)
        for _ in range(3):
            self.append()
        await self._until(self._why_not_read, bound_ms)

    async def _until(self, why_not, bound_ms):
        until = self.loop.time() + bound_ms / 1000
        while (why := why_not()) and not self.checker.violations:
            if self.loop.time() >= until:
                self.checker.fail(f"{bound_ms} ms after the faults: {why}")
                return
            for member in self.members:
                member.settle()
            await sleep_ms(250)

    def _why_not_stable(self):
        members = self.alive
        if not members:
            self.add_member()
            return "nobody is there"
        for each in members:
            if any(other is not each and other.owner == each.owner for other in members):
                return f"{each.process.name} goes on, and another has its name {each.owner}"
            if not each.is_running or not each.consumer.health().is_ready:
                return f"{each.process.name} is not ready"
        if TOPIC in self.brokers.gone:
            return "the topic is gone"
        held = sorted(tp for each in members for tp in each.consumer.assignment())
        wanted = [TopicPartition(TOPIC, number) for number in range(len(self.brokers.ends(TOPIC)))]
        return "" if held == wanted else f"{held} are held, not {wanted}"

    def _why_not_read(self):
        if not self.alive:  # who seemed stable was a zombie
            self.add_member()
        for number, end in enumerate(self.brokers.ends(TOPIC)):
            reached = self.checker.gap_free[TopicPartition(TOPIC, number)]
            if reached < end:
                return f"{TOPIC}-{number} is processed up to {reached}, it ends at {end}"
        return ""

    def _who_still_reads(self):
        """What was in hand may be worked at for a while; then the application is told that it is over."""
        reading = [each.process.name for each in self.members if not each.is_dead and not each.task.done()]
        return f"{reading} still read after stop" if reading else ""

    async def bury(self):
        """End every task; what the dead and the frozen still wanted to do happens unseen."""
        self.checker.is_over = True
        self.network.blocked_until.clear()
        for member in self.members:
            member.is_dead = True
            self.loop.thaw(member.process)
        for line in self.network.open_lines:
            line.is_cut = True
        own = asyncio.current_task()
        for _ in range(50):
            others = [each for each in asyncio.all_tasks() if each is not own]
            if not others:
                return
            for each in sorted(others, key=hash):
                each.cancel()
            await asyncio.wait(others, timeout=1)
        self.checker.is_over = False
        self.checker.fail(f"tasks that do not end: {others}")


@contextlib.contextmanager
def _reproducible(loop):
    """No clock but the loop's, no randomness but the seed's, no order by places in memory."""
    state = random.getstate()
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context
        patch(virtual_time(loop))
        patch(mock.patch.object(Log, "on_event"))
        patch(warnings.catch_warnings())
        warnings.simplefilter("ignore", ResourceWarning)
        stack.callback(random.setstate, state)
        yield


def simulate(seed):
    """Run one; the world has its trace and its violations."""
    loop = SimLoop()
    with _reproducible(loop):
        random.seed(seed)
        world = World(seed, loop)
        runner = loop.create_task(world.run())
        try:
            loop.run_until_complete(_bounded(runner))
        except Exception as error:  # noqa: BLE001 (a simulation that does not end is a finding)
            world.checker.fail(f"{error!r}")
        for trouble in world.brokers.cluster.troubles.kept:
            world.checker.fail(str(trouble))
        loop.set_exception_handler(lambda *_: None)
        with contextlib.suppress(Exception):
            loop.run_until_complete(world.bury())
        loop.close()
    return world


async def _bounded(runner):
    await asyncio.wait_for(runner, 600)
