"""Random appends, fetches, moves and truncations against a naive model that reads everything again in every step."""

from __future__ import annotations

from random import Random

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup.embedded.machine.logs.batches import records_of
from tests.support.reading_machine import ReadingMachine, answer_of, parts, want

STEPS = 300
NAMES = ("s", "t")


class Model:
    """Each partition as a list of batches: (first offset, offset after the last one, bytes). Nothing else is kept."""

    def __init__(self):
        self.batches = []
        self.start = self.end = 0
        self.leader, self.epoch = 0, 0
        self.begins = {0: 0}

    def append(self, count, size):
        self.batches.append((self.end, self.end + count, size, self.epoch))
        self.end += count

    def error(self, node_id, version, offset, epoch):
        if epoch >= 0 and epoch != self.epoch:
            return E.FENCED_LEADER_EPOCH if epoch < self.epoch else E.UNKNOWN_LEADER_EPOCH
        if version < 11 and node_id != self.leader:
            return E.NOT_LEADER_OR_FOLLOWER
        return E.NONE if self.start <= offset <= self.end else E.OFFSET_OUT_OF_RANGE

    def available(self, offset):
        return sum(size for _, behind, size, _ in self.batches if behind > offset)

    def bytes_of(self, offset, most, is_first):
        """How many bytes are read from `offset` on."""
        there = self.available(offset)
        first = next((size for _, behind, size, _ in self.batches if behind > offset), 0)
        if is_first:
            most = max(most, first)
        return 0 if most < first else min(most, there)


class Pending:
    def __init__(self, exchange, asked, fields, until_ms):
        self.exchange, self.asked, self.fields, self.until_ms = exchange, asked, fields, until_ms
        self.is_new = True


class World:
    def __init__(self, seed):
        self.random = Random(seed)
        self.machine = ReadingMachine()
        for name in NAMES:
            self.machine.topic(name, 2)
        self.partitions = [each for name in NAMES for each in self.machine.topics.get(name).partitions]
        self.models = {each: Model() for each in self.partitions}
        self.pending = []

    def append(self):
        partition = self.random.choice(self.partitions)
        count = self.random.randint(1, 5)
        size = self.machine.append(partition, count, b"v" * self.random.randrange(90))
        self.models[partition].append(count, size)
        self.settle()

    def move(self):
        partition = self.random.choice(self.partitions)
        model = self.models[partition]
        model.leader = self.random.randrange(3)
        model.epoch += 1
        partition.elect(model.leader, self.machine.now_ms)
        self.settle()

    def cut_front(self):
        partition = self.random.choice(self.partitions)
        model = self.models[partition]
        model.start = max(model.start, self.random.randint(0, model.end))
        model.batches = [each for each in model.batches if each[1] > model.start]
        partition.log.delete_before(model.start)
        partition.changed(self.machine.now_ms)
        self.settle()

    def wait(self):
        self.machine.pass_ms(self.random.choice((1, 50, 200)))
        self.settle()

    def fetch(self):
        random = self.random
        version = random.choice((10, 11, 18))
        node_id = random.randrange(3)
        asked = []
        for partition in random.sample(self.partitions, random.randint(1, 4)):
            model = self.models[partition]
            offset = random.choice((model.end, random.randint(0, model.end + 1), model.start))
            epoch = random.choice((-1, -1, model.epoch, max(0, model.epoch - 1)))
            asked.append((partition, offset, random.choice((0, 100, 1 << 20)), epoch))
        fields = {
            "max_bytes": random.choice((1, 300, 1 << 20)),
            "min_bytes": random.choice((1, 1, 150, 2_000)),
            "max_wait_ms": random.choice((0, 100, 100)),
        }
        wanted = [want(p, offset, most, current_leader_epoch=epoch) for p, offset, most, epoch in asked]
        exchange = self.machine.fetch(*wanted, version=version, node_id=node_id, **fields)
        until_ms = self.machine.now_ms + fields["max_wait_ms"]
        self.pending.append(Pending(exchange, asked, {**fields, "version": version, "node_id": node_id}, until_ms))
        self.settle()

    def expected(self, pending):
        """The contents of the answer, and whether it is due at once."""
        fields = pending.fields
        room, is_first, told, is_due = fields["max_bytes"], True, [], False
        available = read = 0
        for partition, offset, most, epoch in pending.asked:
            model = self.models[partition]
            error = model.error(fields["node_id"], fields["version"], offset, epoch)
            size = 0 if error else model.bytes_of(offset, min(most, room), is_first)
            if size:
                is_first, room = False, max(0, room - size)
            is_due = is_due or bool(error)
            read += size
            available += 0 if error else min(most, model.available(offset))
            told.append((error, size))
        least = min(fields["min_bytes"], fields["max_bytes"])
        # When the request comes, the bytes that were read count. Later the available bytes count, up to each
        # partition's bound.
        is_enough = available >= least or (pending.is_new and read >= least)
        return told, is_due or is_enough or pending.until_ms <= self.machine.now_ms

    def settle(self):
        """Check that due fetches are answered and others wait, and that each answer is what the model reads."""
        waiting = []
        for each in self.pending:
            told, is_due = self.expected(each)
            assert (each.exchange.answered_at_ms is not None) is is_due, (each.asked, each.fields, told)
            if not is_due:
                each.is_new = False
                waiting.append(each)
                continue
            assert each.exchange.answered_at_ms <= self.machine.now_ms
            answer = parts(answer_of(each.exchange))
            found = [(part.error_code, len(part.records)) for part in answer.values()]
            assert found == told, (each.asked, each.fields)
            self.check_records(each, answer)
        self.pending = waiting
        filed = sum(len(partition.waiters) for partition in self.partitions)
        assert filed == sum(len(each.asked) for each in waiting)

    def check_records(self, pending, answer):
        for (partition, offset, _, _), part in zip(pending.asked, answer.values(), strict=True):
            if part.error_code or not part.records:
                continue
            first, behind, size, _ = next(each for each in self.models[partition].batches if each[1] > offset)
            if len(part.records) >= size:
                read = [record.offset for record in records_of(bytes(part.records[:size]))]
                assert read == list(range(first, behind))


@pytest.mark.parametrize("seed", range(30))
def test_random_sequences(seed):
    world = World(seed)
    acts = (world.append, world.append, world.append, world.fetch, world.fetch, world.fetch, world.wait, world.move)
    for step in range(STEPS):
        world.random.choice(acts)()
        if step % 40 == 39:
            world.cut_front()
