"""A group whose members do what a test tells them: the brokers and the network of the simulation, without its faults.

Every message takes `WAY_MS`, so a test may ask at which millisecond something happened.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import NamedTuple

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.framing import decode_request
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.shell.virtual_network import VirtualLine
from tests.simulation.brokers import GROUP, Brokers
from tests.simulation.loop import START_SECONDS, Process
from tests.simulation.network import Network
from tests.support import group_members
from tests.support.group_members import shared_out, until

TOPIC = "orders"
SESSION_MS, BEAT_MS, POLL_MS = 6_000, 1_000, 20_000
WAY_MS = 1
TICKS_MS = 3
"""Everybody counts in whole milliseconds, and cuts off the rest."""
SETTINGS = {
    "bootstrap_servers": ["node1.virtual.invalid:9092"],
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": BEAT_MS,
    "max_poll_interval_ms": POLL_MS,
    "enable_auto_commit": False,
    "fetch_max_wait_ms": 5_000,
    "request_timeout_ms": 60_000,
}


LIMIT_S = 600
"""Of the virtual clock: a call that waits for ever would never see the end of it."""


class Sent(NamedTuple):
    at_ms: int
    arrived_ms: int
    who: str
    request: Request
    line: VirtualLine


class _Network(Network):
    """Keeps what members write, in its order. Over a line that is `mute`, or to what is `withheld`, come no answers.
    A node may move, and then something else happens at its former address.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.jitter_ms = WAY_MS
        self.sent = []
        self.mute = set()
        self.withheld = ()  # types of requests
        self._refusing, self._silent = set(), set()  # addresses

    def move(self, node_id, former, told_after_ms=0):
        """The node is at another address from now on, which all nodes tell after a while. Whoever turns to the `former`
        one is "refused", its packets are "dropped", it reaches "another" node, or this one still: "open".
        """
        node, others = self.cluster.nodes[node_id], [each for each in self.cluster.nodes if each.node_id != node_id]
        before, now = (node.host, node.port), (f"moved.{node.host}", node.port + 50)
        self._nodes[now] = node

        def tell():
            node.host, node.port = now

        self.loop.call_later(told_after_ms / 1000, tell, context=self.outside)
        match former:
            case "refused":
                self._refusing.add(before)
            case "dropped":
                self._silent.add(before)
            case "another":
                self._nodes[before] = others[0]
        for line in list(self.lines.values()):
            if line.node is node and former == "dropped":
                self._deaf.add(line)
            elif line.node is node and former != "open":
                self.cut(line)

    async def connect(self, protocol_factory, host, port):
        if (host, port) in self._refusing:
            raise ConnectionRefusedError(111, f"nobody is at {host}:{port} any more")
        if (host, port) in self._silent:
            await asyncio.Event().wait()
        return await super().connect(protocol_factory, host, port)

    def send_up(self, line, data):
        super().send_up(line, data)
        request = decode_request(data[4:])[1]
        at_ms, arrived_ms = ms(self.loop.time()), ms(line.up_at)
        self.sent.append(Sent(at_ms, arrived_ms, line.client.name, request, line))

    def send_down(self, line, answer):
        if line not in self.mute and line.key_of(answer) not in [each.API_KEY for each in self.withheld]:
            super().send_down(line, answer)


class _Brokers(Brokers):
    """Do what they are asked. Topics that are `hidden` are in no answer to Metadata."""

    network_type = _Network

    def __init__(self, *args, **properties):
        super().__init__(*args, **properties)
        self.hidden = set()
        self.cluster.rules.rewrite(MetadataRequest, self._without_hidden)

    def _without_hidden(self, exchange):
        if not self.hidden:
            return None
        is_of_all = exchange.request.topics is None
        topics = tuple(
            MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=each.name)
            if each.name in self.hidden
            else each
            for each in exchange.response.topics
            if each.name not in self.hidden or not is_of_all
        )
        return replace(exchange.response, topics=topics)

    def remake(self, topic):
        """Deleted and created again at once, without records."""
        count = len(self.ends(topic))
        self.do(lambda now_ms: self.cluster.topics.delete(self.cluster.topics.get(topic), now_ms))
        self.add_partitions(topic, count)

    def books(self):
        """What the coordinator keeps of the group."""
        return self.coordinator.groups[GROUP]

    def remove(self, member_id):
        """The coordinator drops a member."""
        books = self.books()
        self.do(lambda now_ms: books.remove(books.members[member_id], now_ms))


class Member(group_members.Member):
    """In a process of its own, which may freeze or die. What the application calls, it calls by `do`."""

    def __init__(self, group, name, *, reads=True, topics=(TOPIC,), **settings):
        self.process = Process(name)
        self.name = name
        self._group = group
        self._reads = reads
        super().__init__(None, "billing", *topics, **{**SETTINGS, **settings})

    async def do(self, work):
        task = self._group.loop.create_task(work, context=self.process.context.copy())
        async with asyncio.timeout(LIMIT_S):
            return await task

    def call(self, name, *given):
        """What the consumer does at once: its tasks are born in its process, too."""
        return self.process.context.copy().run(getattr(self.consumer, name), *given)

    async def start(self):
        await self.do(super().start() if self._reads else self.consumer.start())
        return self

    async def stop(self, **options):
        return await self.do(super().stop(**options))

    async def commit(self, offsets=None):
        await self.do(self.consumer.commit(offsets))

    async def freeze(self, duration_ms):
        """Its loop is blocked: nothing of it runs, the others go on."""
        self.process.is_halted = True
        await sleep_ms(duration_ms)
        self.thaw()

    def die(self):
        """At once, and no connection is closed."""
        self.process.is_halted = True

    def thaw(self):
        self._group.loop.thaw(self.process)

    def at_ms(self, kind, since=0):
        """When it was told the first of these."""
        return ms(self.when(kind, since))

    @property
    def generation(self):
        return self.consumer.group_metadata().generation


class Group:
    """Two partitions; who joins an empty group need not wait for others."""

    def __init__(self, loop, nodes=2, **properties):
        self.loop = loop
        self.members = []
        self.generations = []  # (instant, number, ids of the members)
        self.expired = []  # (instant, member id)
        self.troubles = []
        self._starting = []
        rng = random.Random(0)
        properties = {"group.initial.rebalance.delay.ms": "0", **properties}
        self.brokers = _Brokers(loop, rng, nodes, lambda *_: None, **properties)
        self.brokers.set_checker(self)
        self.network = self.brokers.network
        self.brokers.add_partitions(TOPIC, 2)
        loop.set_exception_handler(lambda _loop, context: self.troubles.append(context))

    # What the brokers tell.

    def on_write(self, *_):
        pass

    before_request = on_request = on_answers = on_blind_answer = on_write

    def on_generation(self, group):
        if group.generation:
            self.generations.append((self.now_ms, group.generation, [each.member_id for each in group.members]))

    def on_expired(self, member_id):
        self.expired.append((self.now_ms, member_id))

    # What a test does.

    @property
    def now_ms(self):
        return ms(self.loop.time())

    def member(self, name, **settings):
        made = Member(self, name, **settings)
        self.members.append(made)
        return made

    async def joined(self, *names, **settings):
        """Start members one after the other; return when all partitions are theirs and the group is at rest."""
        members = [await self.member(name, **settings).start() for name in names]
        await self.shared_out(*members)
        return members

    def newcomer(self, name, **settings):
        """Start a member that has to wait for the others, and do not wait."""
        made = self.member(name, **settings)
        self._starting.append(self.loop.create_task(made.start()))
        return made

    async def shared_out(self, *members):
        await shared_out(len(self.brokers.ends(TOPIC)), *members, seconds=60)

    def produce(self, *partitions):
        for partition in partitions:
            self.brokers.append(TOPIC, partition, 1)

    async def holding(self, member):
        """The member's application has a record in hand and does not finish it. Returns it, and since when."""
        member.hold()
        self.produce(*member.partitions)
        await until(lambda: member.in_hand is not None, what=member.tail)
        return member.in_hand, member.at_ms("record", len(member.log) - 1)

    def sent(self, kind, who=None, *, since_ms=0):
        """What was sent, in order; by `who`, if named."""
        return [
            each
            for each in self.network.sent
            if isinstance(each.request, kind) and each.at_ms >= since_ms and who in (None, each.who)
        ]

    async def end(self):
        await asyncio.gather(*self._starting)
        for member in reversed(self.members):
            member.thaw()
            await member.stop()
        assert self.troubles == []


async def sleep_ms(duration_ms):
    await asyncio.sleep(duration_ms / 1000)


def ms(seconds):
    return round((seconds - START_SECONDS) * 1000)
