"""Random transactions against a naive model: a reader of committed records never sees records of an aborted transaction
or of one under way, and offsets count only after their transaction is committed.
"""

from __future__ import annotations

from random import Random

import pytest

from aiogroup.embedded.machine.logs.direct import DirectLogs
from tests.support.effort import examples
from tests.support.transaction_machine import TransactionMachine

STEPS = 100
NAMES = ("a", "b", "c")
PARTITIONS = 2
TIMEOUT_MS = 10_000


class Life:
    """One transactional id, and what its transaction under way has written."""

    def __init__(self, machine, name):
        self.name = name
        self.producer = machine.producer(name)
        self.zombies = []
        self.added = set()
        self.records = []
        """(partition, place in the model's log)"""
        self.offsets = {}
        self.began_at_ms = None


class World:
    """The machine and the model: a list of [value, fate] for each partition, and what was committed."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.machine = TransactionMachine(nodes=2, seed=seed)
        self.machine.topic("t", PARTITIONS)
        self.logs = [[] for _ in range(PARTITIONS)]
        self.committed = {}
        self.writes_count = 0
        self.lives = [Life(self.machine, name) for name in NAMES]
        self.client = self.machine.client()
        self.other_client = self.machine.client(2)
        for life in self.lives:
            assert life.producer.init(TIMEOUT_MS) == "NONE"

    def step(self):
        self.random.choice(
            (
                self.write,
                self.write,
                self.offset,
                self.offset,
                self.offset,
                self.end,
                self.plain,
                self.again,
                self.zombie,
                self.wait,
            )
        )()
        self.look()

    # What happens.

    def begin(self, life):
        if life.began_at_ms is None:
            life.began_at_ms = self.machine.now_ms

    def leader(self, partition):
        return self.client if self.machine.cluster.topics.partition("t", partition).leader == 1 else self.other_client

    def write(self):
        life, partition = self.random.choice(self.lives), self.random.randrange(PARTITIONS)
        producer = life.producer
        self.writes_count += 1
        value = b"%d" % self.writes_count
        if partition not in life.added:
            assert self.send(producer, b"never", partition) == "INVALID_TXN_STATE"
            self.begin(life)
            assert producer.add("t", partition) == "NONE"
            life.added.add(partition)
        assert self.send(producer, value, partition) == "NONE"
        life.records.append((partition, len(self.logs[partition])))
        self.logs[partition].append([value, "open"])

    def send(self, producer, value, partition):
        coordinator, producer.client = producer.client, self.leader(partition)
        try:
            return producer.send(value, "t", partition)
        finally:
            producer.client = coordinator

    def plain(self):
        partition = self.random.randrange(PARTITIONS)
        self.writes_count += 1
        value = b"%d" % self.writes_count

        def act(cluster, now_ms):
            DirectLogs(cluster.topics, cluster.settings).produce("t", value, now_ms, partition=partition)

        self.machine.do(act)
        self.logs[partition].append([value, "committed"])

    def offset(self):
        life, partition = self.random.choice(self.lives), self.random.randrange(PARTITIONS)
        self.begin(life)
        assert life.producer.add_offsets() == "NONE"
        self.writes_count += 1
        assert life.producer.commit_offset(self.writes_count, partition=partition) == "NONE"
        life.offsets[partition] = self.writes_count

    def end(self):
        life, is_committed = self.random.choice(self.lives), self.random.random() < 0.5
        code = life.producer.end(is_committed)
        if life.began_at_ms is not None:
            assert code == "NONE"
            self.ended(life, is_committed)

    def ended(self, life, is_committed):
        for partition, place in life.records:
            self.logs[partition][place][1] = "committed" if is_committed else "aborted"
        if is_committed:
            for partition, number in life.offsets.items():
                # The numbers rise and serve as offsets too, so the last one written counts.
                self.committed[partition] = max(number, self.committed.get(partition, 0))
        life.records, life.offsets, life.began_at_ms = [], {}, None
        life.added.clear()

    def again(self):
        """Another process with the same id."""
        life = self.random.choice(self.lives)
        new = self.machine.producer(life.name)
        if life.began_at_ms is not None:
            assert new.init(TIMEOUT_MS) == "CONCURRENT_TRANSACTIONS"
            self.ended(life, False)
        assert new.init(TIMEOUT_MS) == "NONE"
        life.zombies.append(life.producer)
        life.producer = new

    def zombie(self):
        """A fenced producer goes on as before, and is refused."""
        life = self.random.choice(self.lives)
        if life.zombies:
            old, partition = self.random.choice(life.zombies), self.random.randrange(PARTITIONS)
            assert (old.add("t", partition), old.end(), old.add_offsets()) == ("PRODUCER_FENCED",) * 3
            assert old.commit_offset(1 << 40, partition=partition) == "INVALID_PRODUCER_EPOCH"
            assert self.send(old, b"zombie", partition) == "INVALID_PRODUCER_EPOCH"

    def wait(self):
        self.machine.pass_ms(self.random.choice((1, 500, 4_000)))
        for life in self.lives:
            if life.began_at_ms is not None and self.machine.now_ms > life.began_at_ms + TIMEOUT_MS:
                self.ended(life, False)
                assert life.producer.init(TIMEOUT_MS) == "NONE"

    # What is seen.

    def look(self):
        for partition, log in enumerate(self.logs):
            fates = [fate for _, fate in log]
            stable = fates.index("open") if "open" in fates else len(log)
            for is_committed in (True, False):
                wanted = [value for value, fate in (log[:stable] if is_committed else log) if fate != "aborted"]
                if not is_committed:
                    wanted = [value for value, _ in log]
                values, _ = self.machine.read("t", partition, is_committed=is_committed, client=self.leader(partition))
                assert values == wanted
                assert self.in_pieces(partition, is_committed=is_committed) == wanted
            is_pending = any(partition in life.offsets for life in self.lives)
            told = self.machine.committed(partition=partition)
            assert told == ("UNSTABLE_OFFSET_COMMIT" if is_pending else self.committed.get(partition, -1))
            assert self.machine.committed(partition=partition, stable=False) == self.committed.get(partition, -1)

    def in_pieces(self, partition, *, is_committed):
        """A reader whose answers hold few batches."""
        values, offset = [], 0
        while True:
            more, behind = self.machine.read(
                "t",
                partition,
                offset,
                is_committed=is_committed,
                client=self.leader(partition),
                max_bytes=self.random.choice((1, 90, 200, 500)),
            )
            values += more
            if behind == offset:
                return values
            offset = behind


@pytest.mark.parametrize("seed", range(examples(2)))
def test_readers_see_what_was_committed_and_nothing_else(seed):
    world = World(seed)
    for _ in range(STEPS):
        world.step()
