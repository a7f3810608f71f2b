"""Reading and writing records without a client."""

from __future__ import annotations

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from aiogroup.embedded.machine.logs.batches import Record, build, header_of, records_of
from aiogroup.embedded.machine.logs.direct import DirectLogs, damaged
from aiogroup.embedded.machine.logs.log import Budget, Log
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.settings import Settings

NOW_MS = 1_800_000_000_000


@pytest.fixture
def topics():
    budget, made = Budget(1_000_000), iter(range(99))
    return Topics(lambda: next(made), lambda: Log(budget), lambda index, factor: (1,))


@pytest.fixture
def direct(topics):
    return DirectLogs(topics, Settings.of({}))


def test_a_record_comes_back_with_all_that_it_has(topics, direct):
    topics.create("t", 2, 0)
    topics.partition("t", 1).elect(1, 0)
    assert direct.produce("t", b"a", NOW_MS) == 0
    headers = [("h", b"1"), ("h", None)]
    assert direct.produce("t", None, NOW_MS, key=b"k", partition=1, headers=headers, timestamp_ms=5) == 0
    first, second = direct.records("t")
    assert (first.partition, first.offset, first.key, first.value, first.timestamp_ms) == (0, 0, None, b"a", NOW_MS)
    assert (second.partition, second.key, second.value, second.timestamp_ms) == (1, b"k", None, 5)
    assert second.headers == (("h", b"1"), ("h", None))
    assert (second.leader_epoch, second.producer_id, second.sequence, second.is_control) == (1, -1, -1, False)
    assert [each.value for each in direct.records("t", 1)] == [None]


def test_many_records_go_to_the_partitions_in_turn_and_into_batches(topics, direct):
    topics.create("t", 3, 0)
    first = direct.produce_many("t", (b"%d" % number for number in range(4)), NOW_MS)
    assert first == [(0, 0), (1, 0), (2, 0), (0, 1)]
    second = direct.produce_many("t", (b"%d" % number for number in range(4, 3_000)), NOW_MS)
    assert second[:2] == [(1, 1), (2, 1)]
    places = {(each.partition, each.offset): each.value for each in direct.records("t")}
    assert [places[place] for place in first + second] == [b"%d" % number for number in range(3_000)]
    sizes = [len(batch) for batch in topics.partition("t", 0).log.batches()]
    assert len(sizes) > 1
    assert max(sizes) < 17_000
    assert direct.produce_many("t", [b"x", b"y"], NOW_MS, partition=2) == [(2, 1_000), (2, 1_001)]


def test_a_topic_says_why_it_does_not_take_a_record(topics, direct):
    topics.create("t", 1, 0, config={"cleanup.policy": "compact", "max.message.bytes": "100"})
    with pytest.raises(BrokerRefusal, match="without key"):
        direct.produce("t", b"a", NOW_MS)
    with pytest.raises(BrokerRefusal, match="MESSAGE_TOO_LARGE"):
        direct.produce("t", b"a" * 100, NOW_MS, key=b"k")
    with pytest.raises(BrokerRefusal, match="out of range"):
        direct.produce("t", b"a", NOW_MS, key=b"k", timestamp_ms=NOW_MS << 1)
    with pytest.raises(BrokerRefusal, match="create_topic"):
        direct.produce("none", b"a", NOW_MS)
    with pytest.raises(BrokerRefusal, match="1 partitions"):
        direct.produce("t", b"a", NOW_MS, key=b"k", partition=1)
    assert list(direct.records("t")) == []


def test_a_full_broker_says_so_to_whoever_fills_it(topics, direct):
    topics.create("t", 1, 0)
    with pytest.raises(BrokerRefusal, match="max_bytes"):
        direct.produce_many("t", [b"x" * 10_000] * 200, NOW_MS)
    kept = len(list(direct.records("t")))
    assert 0 < kept < 200
    with pytest.raises(BrokerRefusal, match="max_bytes"):
        direct.append("t", 0, build([Record(0, 0, None, b"x" * 20_000)]), NOW_MS)


def test_appended_bytes_stay_as_they_are_but_for_their_place(topics, direct):
    topics.create("t", 1, 0)
    direct.produce("t", b"before", NOW_MS)
    poison = damaged(crc=True)
    told = []

    class Waiter:
        def on_append(self, partition, size_bytes, now_ms):
            told.append((size_bytes, now_ms))

    topics.partition("t", 0).waiters[1] = Waiter()
    assert direct.append("t", 0, poison, NOW_MS) == 1
    assert told == [(len(poison), NOW_MS)]
    assert direct.produce("t", b"behind", NOW_MS) == 2
    (stored,) = topics.partition("t", 0).log.read(1, 1)
    assert stored[16:] == poison[16:]
    assert header_of(stored).base_offset == 1
    with pytest.raises(BrokerRefusal, match="header"):
        direct.append("t", 0, b"short", NOW_MS)


def test_each_damage_is_what_it_says():
    whole = damaged(values=[b"a", b"b"])
    assert DefaultRecordBatch(whole).validate_crc()
    assert [each.value for each in records_of(whole)] == [b"a", b"b"]
    assert not DefaultRecordBatch(damaged(crc=True)).validate_crc()
    for damage in ("length", "count", "codec"):
        batch = damaged(**{damage: True})
        assert DefaultRecordBatch(batch).validate_crc(), damage
    assert header_of(damaged(length=True)).length > len(damaged()) - 12
    with pytest.raises(CorruptRecordException):
        list(DefaultRecordBatch(damaged(count=True)))
    assert header_of(damaged(codec=True)).codec == 5


def test_an_unreadable_batch_has_no_records_and_hides_no_others(topics, direct):
    topics.create("t", 1, 0)
    direct.produce("t", b"before", NOW_MS)
    for batch in (damaged(count=True), damaged(codec=True)):
        direct.append("t", 0, batch, NOW_MS)
    direct.produce("t", b"behind", NOW_MS)
    assert [(each.offset, each.value) for each in direct.records("t")] == [(0, b"before"), (3, b"behind")]


def test_the_sequence_of_an_idempotent_producer_is_told_and_goes_over_the_greatest_number(topics, direct):
    topics.create("t", 1, 0)
    records = [Record(place, 0, None, b"x") for place in range(3)]
    batch = build(records, producer_id=7, producer_epoch=2, base_sequence=0x7FFFFFFE)
    direct.append("t", 0, batch, NOW_MS)
    assert [each.sequence for each in direct.records("t")] == [0x7FFFFFFE, 0x7FFFFFFF, 0]
    assert {(each.producer_id, each.producer_epoch) for each in direct.records("t")} == {(7, 2)}
    topics.partition("t", 0).log.delete_before(2)
    assert [each.offset for each in direct.records("t")] == [2]
