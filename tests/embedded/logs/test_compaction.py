"""Compaction and retention by call, against dictionaries of keys."""

from __future__ import annotations

from random import Random

import pytest

from aiogroup.embedded.machine.logs.batches import Record, build, header_of, records_of
from aiogroup.embedded.machine.logs.compaction import compact, expire
from aiogroup.embedded.machine.logs.direct import damaged
from aiogroup.embedded.machine.logs.log import Budget, Log
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.settings import Settings

NOW_MS = 1_800_000_000_000
SETTINGS = Settings.of({})


def partition_of(**config):
    budget = Budget()
    topics = Topics(lambda: None, lambda: Log(budget), lambda index, factor: (1,))
    config = {name.replace("_", "."): value for name, value in config.items()}
    (partition,) = topics.create("t", 1, 0, config=config).partitions
    return partition


def all_records(log):
    return [record for batch in log.batches() for record in records_of(batch)]


@pytest.mark.parametrize("with_tombstones", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_last_record_of_each_key_stays_at_its_offset(seed, with_tombstones):
    random = Random(seed)
    partition = partition_of(cleanup_policy="compact")
    log = partition.log
    for _ in range(60):
        records = [
            Record(place, NOW_MS + place, b"k%d" % random.randrange(40), random.choice((None, b"v" * 30)))
            for place in range(random.randrange(1, 9))
        ]
        log.append(build(records, codec=random.randrange(5), producer_id=random.randrange(-1, 3)), 0)
    before, end_offset = all_records(log), log.end_offset
    last_base = header_of(list(log.batches())[-1]).base_offset
    lasts = {record.key: record.offset for record in before}
    wanted = [
        record
        for record in before
        if record.offset >= last_base
        or (lasts[record.key] == record.offset and (record.value is not None or not with_tombstones))
    ]
    assert compact(partition, SETTINGS, NOW_MS, with_tombstones=with_tombstones) == len(before) - len(wanted) > 0
    assert all_records(log) == wanted
    assert (log.start_offset, log.end_offset) == (0, end_offset)
    assert log.budget.used_bytes == log.size_bytes == sum(map(len, log.batches()))
    for offset in range(end_offset):
        found = [record for batch in log.read(offset, 1) for record in records_of(batch)]
        later = [record for record in wanted if record.offset >= offset]
        assert [record for record in found if record.offset >= offset][:1] == later[:1] or found[-1].offset < offset
        assert header_of(log.read(offset, 1)[0]).last_offset >= offset
    assert compact(partition, SETTINGS, NOW_MS, with_tombstones=with_tombstones) == 0


def test_what_cannot_be_read_stays():
    partition = partition_of(cleanup_policy="compact")
    for batch in (build([Record(0, 1, b"k", b"1")]), damaged(count=True), build([Record(0, 1, b"k", b"2")])):
        partition.log.append(bytearray(batch), 0)
    poison = list(partition.log.batches())[1]
    assert compact(partition, SETTINGS, NOW_MS) == 1
    assert [header_of(each).base_offset for each in partition.log.batches()] == [1, 2]
    assert next(iter(partition.log.batches())) == poison


def test_only_a_compacted_topic_is_compacted_and_only_another_expires():
    with pytest.raises(BrokerRefusal, match=r"cleanup\.policy"):
        compact(partition_of(), SETTINGS, NOW_MS)
    with pytest.raises(BrokerRefusal, match="expire"):
        expire(partition_of(cleanup_policy="compact"), SETTINGS, NOW_MS)
    assert compact(partition_of(cleanup_policy="compact,delete"), SETTINGS, NOW_MS) == 0


@pytest.mark.parametrize(("age_ms", "removed_count"), [(2_999, 0), (3_000, 1), (3_999, 1), (4_000, 3)])
def test_what_is_young_is_not_compacted(age_ms, removed_count):
    partition = partition_of(cleanup_policy="compact", min_compaction_lag_ms="2000")
    for at_ms in (0, 1_000, 2_000, 0):
        partition.log.append(build([Record(0, NOW_MS + at_ms, b"k", b"v")]), 0)
    assert compact(partition, SETTINGS, NOW_MS + age_ms) == removed_count


@pytest.mark.parametrize("forget", [compact, expire])
def test_producers_that_were_silent_for_long_are_forgotten(forget):
    settings = Settings.of({"producer.id.expiration.ms": "1000"})
    partition = partition_of(cleanup_policy="compact,delete", retention_ms="-1")
    log = partition.log
    for producer_id, at_ms, is_open in ((1, 0, False), (2, 1, False), (3, 0, True)):
        batch = build([Record(0, NOW_MS + at_ms, b"k", b"v")], producer_id=producer_id, is_transactional=is_open)
        log.append(batch, 0)
    forget(partition, settings, NOW_MS + 999)
    assert list(log.producers.by_id) == [1, 2, 3]
    forget(partition, settings, NOW_MS + 1_000)
    assert list(log.producers.by_id) == [2, 3], "and not who has a transaction under way"


def filled(**config):
    partition = partition_of(**config)
    for at_ms in (0, 1_000, 500, 2_000):
        partition.log.append(build([Record(place, NOW_MS + at_ms, None, b"v") for place in range(2)]), 0)
    return partition


@pytest.mark.parametrize(
    ("retention_ms", "later_ms", "start_offset"),
    [("1000", 1_000, 0), ("1000", 1_001, 2), ("1000", 2_001, 6), ("1000", 3_001, 8), ("-1", 1 << 40, 0)],
)
def test_old_batches_go_from_the_begin_on(retention_ms, later_ms, start_offset):
    partition = filled(retention_ms=retention_ms)
    assert expire(partition, SETTINGS, NOW_MS + later_ms) == start_offset == partition.log.start_offset
    assert partition.log.end_offset == 8


def test_too_many_bytes_go_by_whole_batches():
    size_bytes = filled().log.size_bytes // 4
    for kept_bytes, start_offset in ((4 * size_bytes, 0), (3 * size_bytes + 1, 0), (3 * size_bytes, 2), (0, 8)):
        partition = filled(retention_bytes=str(kept_bytes))
        assert expire(partition, SETTINGS, NOW_MS) == start_offset
        assert partition.log.size_bytes == size_bytes * (4 - start_offset // 2)
