"""A minute of chaos: members are killed and brokers restart while records flow; none that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import time

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.support.group_members import until
from tests.support.member_process import MemberProcess

CHAOS_SECONDS = 60
MEMBERS_COUNT = 4
PARTITIONS_COUNT = 6
RECORDS_A_BURST = 25
"""Every 50 ms: 500 records a second."""
SETTINGS = {
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 500,
    "auto_commit_interval_ms": 200,
    "metadata_max_age_ms": 5_000,
    "request_timeout_ms": 5_000,
}


class Chaos:
    def __init__(self, cluster, topic, group, directory, seed):
        self.cluster = cluster
        self.topic = topic
        self.group = group
        self.random = random.Random(seed)
        self.acknowledged = set()
        self.refused_count = 0
        self.restarts = []
        self.members = []
        self.alive = []
        self._directory = directory

    def spawn_member(self):
        path = self._directory / f"member-{len(self.members)}.jsonl"
        batches = len(self.members) % 2 == 1
        member = MemberProcess(path, self.cluster, self.group, self.topic, **SETTINGS, batches=batches, work_ms=1)
        self.members.append(member)
        self.alive.append(member)

    async def produce(self, ends_at):
        """Only what the brokers acknowledged counts: acks=all, two in-sync replicas, no clever retries."""
        producer = AIOKafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, acks="all", linger_ms=5)
        await producer.start()
        try:
            while time.monotonic() < ends_at:
                for _ in range(RECORDS_A_BURST):
                    partition = self.random.randrange(PARTITIONS_COUNT)
                    sent = await producer.send(self.topic, b"x" * 100, partition=partition)
                    sent.add_done_callback(self._count)
                await asyncio.sleep(0.05)
            await producer.flush()
        finally:
            await producer.stop()

    def _count(self, sent):
        if sent.cancelled() or isinstance(sent.exception(), KafkaError):
            self.refused_count += 1
        else:
            self.acknowledged.add((sent.result().partition, sent.result().offset))

    async def kill_members(self, ends_at):
        while time.monotonic() < ends_at:
            await asyncio.sleep(self.random.uniform(2, 5))
            victim = self.alive.pop(self.random.randrange(len(self.alive)))
            assert victim.is_alive, f"a member ended by itself: {victim.errors()[-4_000:]}"
            victim.kill()
            self.spawn_member()

    async def restart_brokers(self, ends_at):
        """One after the other, in order or by SIGKILL; the next only when all three serve again."""
        while time.monotonic() < ends_at:
            await asyncio.sleep(self.random.uniform(2, 4))
            node = self.random.choice(self.cluster.nodes)
            end = self.random.choice((node.stop, node.kill))
            self.restarts.append(f"{end.__name__} {node.node_id}")
            await asyncio.to_thread(end)
            await asyncio.to_thread(node.start)
            await asyncio.to_thread(self.cluster.await_ready)

    def processed(self):
        """How often each record was processed, over all members."""
        counts = {}
        for member in self.members:
            for at in member.records():
                counts[at] = counts.get(at, 0) + 1
        return counts


def disorder(member):
    """Records handed out in a wrong order: within one ownership each offset is the next (nothing is compacted)."""
    wrong = []
    last = {}
    owned = set()
    for line in member.lines():
        if "assigned" in line:
            owned = set(line["assigned"])
            last.clear()
        elif "revoked" in line or "lost" in line:
            owned.clear()
        for partition, offset in line.get("got", ()):
            if partition not in owned:
                wrong.append(f"{partition}-{offset} without owning it")
            if last.get(partition, offset - 1) != offset - 1:
                wrong.append(f"{partition}-{offset} behind {partition}-{last[partition]}")
            last[partition] = offset
    return wrong


@pytest.fixture
def say(capsys):
    """Print, also when the test passes: the figures are what it is run for."""

    def out(text):
        with capsys.disabled():
            print(f"\nchaos: {text}", end="", flush=True)  # noqa: T201

    return out


@pytest.mark.long
async def test_no_acknowledged_record_is_lost(kafka_cluster_3, unique_name, tmp_path, say):
    seed = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(2**32)
    say(f"seed {seed} (CHAOS_SEED={seed} draws the same)")
    topic = unique_name("chaos")
    await asyncio.to_thread(kafka_cluster_3.create_topic, topic, PARTITIONS_COUNT, replication_factor=3)
    chaos = Chaos(kafka_cluster_3, topic, unique_name("group"), tmp_path, seed)
    try:
        for _ in range(MEMBERS_COUNT):
            chaos.spawn_member()
        ends_at = time.monotonic() + CHAOS_SECONDS
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(chaos.produce(ends_at))
            tasks.create_task(chaos.kill_members(ends_at))
            tasks.create_task(chaos.restart_brokers(ends_at))
        caught_up_from = time.monotonic()
        await _caught_up(chaos, say)
        took = time.monotonic() - caught_up_from
        await until(lambda: all(member.takes_signals for member in chaos.alive))
        for member in chaos.alive:
            member.stop()
        for member in chaos.alive:
            assert await asyncio.to_thread(member.wait, 60) == 0, member.errors()[-4_000:]
    finally:
        for member in chaos.alive:
            member.kill()
    counts = chaos.processed()
    lost = chaos.acknowledged - counts.keys()
    repeated = sum(count - 1 for count in counts.values())
    say(
        f"acknowledged {len(chaos.acknowledged)} (refused {chaos.refused_count}), processed "
        f"{sum(counts.values())}, repeated {repeated}, lost {len(lost)}; {len(chaos.members) - MEMBERS_COUNT} members "
        f"killed, brokers: {', '.join(chaos.restarts)}; caught up in {took:.1f} s"
    )
    assert not lost, sorted(lost)[:50]
    assert {member.path.name: wrong for member in chaos.members if (wrong := disorder(member))} == {}
    assert len(chaos.acknowledged) > 5_000
    assert len(chaos.members) >= MEMBERS_COUNT + 10
    assert len(chaos.restarts) >= 2


async def _caught_up(chaos, say):
    """Until all is processed, or nothing more comes for the time in which two rebalances would be over."""
    missing = None

    def all_processed():
        nonlocal missing
        missing = chaos.acknowledged - chaos.processed().keys()
        return not missing

    try:
        await until(all_processed, 45)
    except AssertionError:
        say(f"{len(missing)} still missing: {sorted(missing)[:20]}")
        for member in chaos.alive:
            say(f"{member.path.name} {member.assigned()} {member.lines()[-1:]} {member.errors()[-3_000:]}")
