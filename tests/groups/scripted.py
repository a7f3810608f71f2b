"""A group whose members do what a test tells them: the brokers and the network of the simulation, without its faults.

Every message takes `WAY_MS`, so a test may ask at which millisecond something happened.
"""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from aiogroup.embedded.machine.groups.group import GroupSettings
from aiogroup.protocol.framing import decode_request
from aiogroup.protocol.schema import Request
from tests.simulation.brokers import Brokers
from tests.simulation.loop import START_SECONDS, Process
from tests.simulation.network import Network, Transport
from tests.support import group_members
from tests.support.group_members import shared_out, until

TOPIC = "orders"
SESSION_MS, BEAT_MS, POLL_MS = 6_000, 1_000, 20_000
WAY_MS = 1
TICKS_MS = 3
"""Everybody counts in whole milliseconds, and cuts off the rest."""
SETTINGS = {
    "bootstrap_servers": ["node0:9092"],
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
    line: Transport


class _Network(Network):
    """Keeps what members write, in its order."""

    def __init__(self, *args):
        super().__init__(*args)
        self.jitter_ms = WAY_MS
        self.sent = []

    def send_up(self, transport, data):
        super().send_up(transport, data)
        request = decode_request(data[4:])[1]
        at_ms, arrived_ms = ms(self.loop.time()), ms(transport.up_at)
        self.sent.append(Sent(at_ms, arrived_ms, transport.process.name, request, transport))


class _Brokers(Brokers):
    """Do what they are asked; over a line that is `mute`, or with what is `withheld`, they do not answer.

    Topics that are `hidden` are in no answer to Metadata. Their names come last, since ids go by the order of names.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.hidden = set()
        self.mute = set()
        self.withheld = ()  # types of answers

    def _metadata(self, request):
        topics = self.topics
        self.topics = {name: logs for name, logs in topics.items() if name not in self.hidden}
        try:
            return super()._metadata(request)
        finally:
            self.topics = topics

    def _answer(self, ticket, response):
        if ticket[0] in self.mute or isinstance(response, self.withheld):
            ticket[0].requests.pop(0)
        else:
            super()._answer(ticket, response)


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

    def __init__(self, loop):
        self.loop = loop
        self.members = []
        self.generations = []  # (instant, number, ids of the members)
        self.expired = []  # (instant, member id)
        self.troubles = []
        self._starting = []
        rng = random.Random(0)
        self.brokers = _Brokers(loop, rng, 2, lambda *_: None, GroupSettings(initial_rebalance_delay_ms=0))
        self.brokers.checker = self
        self.network = loop.network = self.brokers.network = _Network(loop, rng, self.brokers, lambda *_: None)
        self.brokers.add_partitions(TOPIC, 2)
        loop.set_exception_handler(lambda _loop, context: self.troubles.append(context))

    # What the brokers tell.

    def on_write(self, *_):
        pass

    before_request = on_request = on_write

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
        await shared_out(len(self.brokers.topics[TOPIC]), *members, seconds=60)

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
