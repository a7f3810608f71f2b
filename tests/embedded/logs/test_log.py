"""The log against a list of records: after any operations both give the same answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from aiogroup.embedded.machine.logs.batches import Record, UnreadableBatchError, build, header_of, records_of
from aiogroup.embedded.machine.logs.log import Budget, Log

CODECS = (0, 0, 1, 2, 3, 4)


@dataclass
class Model:
    """Records in a list, with the batch and the epoch of each."""

    records: list[tuple[Record, int, int]] = field(default_factory=list)
    """(record, number of its batch, epoch)"""
    start: int = 0
    end: int = 0

    def append(self, records: list[Record], number: int, epoch: int) -> None:
        self.records += [(moved(each, self.end), number, epoch) for each in records]
        self.end += len(records)

    def truncate(self, to_offset: int) -> None:
        self.records = [each for each in self.records if each[0].offset < to_offset]
        self.end = min(self.end, to_offset)
        self.start = min(self.start, to_offset)

    def delete_before(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.end))
        kept = {number for record, number, _ in self.records if record.offset >= self.start}
        self.records = [each for each in self.records if each[1] in kept]

    def read(self, offset: int, until: int) -> list[Record]:
        """The records of the batches from the one with `offset` on that begin before `until`."""
        bases: dict[int, int] = {}
        for record, number, _ in self.records:
            bases.setdefault(number, record.offset)
        numbers = {number for record, number, _ in self.records if record.offset >= offset and bases[number] < until}
        return [record for record, number, _ in self.records if number in numbers]

    def by_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        for record, _, epoch in self.records:
            if record.timestamp_ms >= timestamp_ms and record.offset >= self.start:
                return record.offset, record.timestamp_ms, epoch
        return None


def moved(record: Record, by: int) -> Record:
    return Record(record.offset + by, record.timestamp_ms, record.key, record.value, record.headers)


def some_records(random: Random, around_ms: int) -> list[Record]:
    return [
        Record(offset, around_ms + random.randrange(-30, 30), b"k%d" % offset, random.randbytes(random.randrange(200)))
        for offset in range(random.randrange(1, 9))
    ]


@pytest.mark.parametrize("seed", range(8))
def test_random_operations_agree_with_a_list_of_records(seed: int) -> None:
    random = Random(seed)
    budget, model, epoch, around_ms = Budget(), Model(), 0, 1_000_000
    log = Log(budget)
    log.begin_epoch(epoch)
    for number in range(200):
        what = random.random()
        if what < 0.6:
            records = some_records(random, around_ms)
            around_ms += random.randrange(-20, 40)
            assert log.append(build(records, codec=random.choice(CODECS)), epoch) == model.end
            model.append(records, number, epoch)
        elif what < 0.65:
            to_offset = model.end - random.randrange(20)
            if to_offset >= 0:
                log.truncate(to_offset)
                model.truncate(to_offset)
                epoch += 1
                log.begin_epoch(epoch)
        elif what < 0.7:
            offset = random.randint(model.start, model.end)
            log.delete_before(offset)
            model.delete_before(offset)
        check(log, model, random, around_ms)
        assert budget.used_bytes == log.size_bytes == sum(map(len, log.batches()))


def check(log: Log, model: Model, random: Random, around_ms: int) -> None:
    assert (log.start_offset, log.end_offset) == (model.start, model.end)
    if model.end > model.start:
        offset = random.randrange(model.start, model.end)
        until = random.randint(offset, model.end) if random.random() < 0.5 else None
        wanted = model.read(offset, model.end if until is None else until)
        batches = log.read(offset, 1 << 30, until_offset=until)
        assert [record for batch in batches for record in records_of(batch)] == wanted
        assert log.readable_bytes(offset, 1 << 30, until_offset=until) == sum(map(len, batches))
        limit = random.randrange(1, 2_000)
        fits = log.read(offset, limit, until_offset=until)
        assert fits == batches[: len(fits)]
        assert len(fits) <= 1 or sum(map(len, fits)) <= limit
        assert len(fits) == len(batches) or (fits and sum(map(len, batches[: len(fits) + 1])) > limit)
        assert log.readable_bytes(offset, limit, until_offset=until) == min(sum(map(len, batches)), limit)
    time_ms = around_ms + random.randrange(-200, 60)
    assert log.offset_by_time(time_ms) == model.by_time(time_ms)
    for record, _, epoch in model.records[-3:]:
        if record.offset >= model.start:
            assert log.epoch_at(record.offset) == epoch
    greatest = max((record.timestamp_ms for record, _, _ in model.records), default=None)
    assert log.offset_of_max_timestamp() == (None if greatest is None else model.by_time(greatest))


def test_a_log_without_room_in_the_first_batch_gives_that_batch_alone() -> None:
    log = Log()
    for _ in range(3):
        log.append(build([Record(0, 1, None, b"x" * 500)]), 0)
    assert [header_of(each).base_offset for each in log.read(1, 10)] == [1]
    assert log.read(3, 10) == []


def test_reading_copies_nothing() -> None:
    log = Log()
    batch = build([Record(0, 1, None, b"x")])
    log.append(batch, 7)
    (view,) = log.read(0, 100)
    assert view.obj is batch
    assert view.readonly
    assert header_of(view).leader_epoch == 7


def test_the_ends_of_epochs_are_those_of_kafka() -> None:
    """LeaderEpochFileCache.endOffsetFor, case by case."""
    log = Log()
    log.begin_epoch(2)
    log.append(build([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")]), 2)
    log.begin_epoch(4)  # a leader that wrote nothing leaves no trace
    log.begin_epoch(5)
    log.append(build([Record(0, 1, None, b"c")]), 5)
    assert log.end_of_epoch(-1) == (-1, -1)
    assert log.end_of_epoch(1) == (1, 0)
    assert log.end_of_epoch(2) == log.end_of_epoch(3) == log.end_of_epoch(4) == (2, 2)
    assert log.end_of_epoch(5) == (5, 3)
    assert log.end_of_epoch(6) == (-1, -1)
    log.delete_before(1)
    assert log.end_of_epoch(1) == (1, 1)
    log.delete_before(2)
    assert log.end_of_epoch(4) == (4, 2)


def test_a_truncation_forgets_the_epochs_that_began_behind_it() -> None:
    log = Log()
    for epoch in range(3):
        log.begin_epoch(epoch)
        log.append(build([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")]), epoch)
    log.truncate(4)
    assert log.end_of_epoch(2) == (-1, -1)
    assert log.end_of_epoch(1) == (1, 4)
    log.truncate(3)
    assert log.end_of_epoch(1) == (1, 3)
    log.truncate(0)
    assert log.end_of_epoch(0) == (-1, -1)
    log.begin_epoch(6)
    assert log.end_of_epoch(5) == (5, 0)


def test_records_of_a_time_are_found_inside_of_a_batch_whose_beginning_was_deleted() -> None:
    log = Log()
    log.append(build([Record(0, 50, None, b"a"), Record(1, 10, None, b"b"), Record(2, 50, None, b"c")], codec=1), 0)
    log.delete_before(1)
    assert log.offset_by_time(20) == (2, 50, 0)
    assert log.start_offset == 1
    assert [header_of(each).base_offset for each in log.read(1, 10)] == [0]


def test_a_damaged_batch_is_told_by_its_name() -> None:
    log = Log()
    batch = build([Record(0, 50, None, b"a" * 100)])
    batch[61] = 0xFF
    log.append(batch, 0)
    with pytest.raises(UnreadableBatchError):
        log.offset_by_time(20)


def test_a_topic_that_is_gone_gives_its_memory_back() -> None:
    budget = Budget()
    logs = [Log(budget), Log(budget)]
    for each in logs:
        each.append(build([Record(0, 50, None, b"a" * 100)]), 0)
    half = budget.used_bytes // 2
    assert not Budget(half * 2 - 1).has_room(half * 2)
    logs[0].forget()
    assert budget.used_bytes == half == logs[1].size_bytes
