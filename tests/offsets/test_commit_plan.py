"""What `commit` takes, what it refuses before anything is sent, and what it sends."""

from __future__ import annotations

import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from aiogroup._core.offsets.commit_plan import CommitEntry, Committed, entries_of
from aiogroup._core.offsets.named_offsets import read_offsets
from tests.support.records import assigned

TP = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (5, (5, "")),
        ((5, "note"), (5, "note")),
        (OffsetAndMetadata(0, "note"), (0, "note")),
        ((2**63 - 1, "x" * 4096), (2**63 - 1, "x" * 4096)),
    ],
)
def test_offset_pair_and_aiokafkas_value_are_taken(given, read):
    assert read_offsets({TP: given}) == {TP: OffsetAndMetadata(*read)}


@pytest.mark.parametrize("offsets", [{}, [], [(TP, 5)], "orders", None, 5])
def test_what_is_no_mapping_of_offsets_is_refused(offsets):
    with pytest.raises(ValueError, match="non-empty mapping"):
        read_offsets(offsets)


@pytest.mark.parametrize(
    "given", [None, "5", 5.0, True, (True, ""), (), (5,), (5, "a", "b"), (5, None), (5, b"note"), [5, "note"], object()]
)
def test_what_is_no_offset_is_refused(given):
    with pytest.raises((TypeError, ValueError), match="orders"):
        read_offsets({TP: given})


@pytest.mark.parametrize("given", [-1, (-1, ""), 2**63])
def test_offset_out_of_range_is_refused_with_the_range(given):
    with pytest.raises(ValueError, match=r"must lie between 0 and 9223372036854775807"):
        read_offsets({TP: given})


@pytest.mark.parametrize("metadata", ["x" * 4097, "\u00e9" * 2049])
def test_metadata_above_4096_bytes_is_refused(metadata):
    with pytest.raises(ValueError, match="4096 bytes"):
        read_offsets({TP: (5, metadata)})


@pytest.mark.parametrize("key", [("orders", 0), "orders", 0, None])
def test_what_is_no_partition_is_refused(key):
    with pytest.raises(TypeError, match="TopicPartition"):
        read_offsets({key: 5})


def test_one_bad_entry_refuses_the_whole_commit():
    with pytest.raises(ValueError, match="-1"):
        read_offsets({TP: 5, TopicPartition("orders", 1): -1})


# What is sent where no offsets are named.


def partition(*, processed=0, delivered=0, committed=None, was_reset=False):
    """One that began at 0, from which so much was delivered and processed."""
    _, (made,) = assigned(0)
    made.start_at(0, was_reset=was_reset)
    made.ledger.deliver(range(delivered), delivered)
    made.ledger.process_below(processed)
    made.committed = None if committed is None else Committed(committed, "text")
    return made


@pytest.mark.parametrize(
    ("of", "how", "sent"),
    [
        ({"processed": 3, "delivered": 5}, {}, 3),
        ({"processed": 3, "delivered": 5}, {"delivered": True}, 5),
        ({"processed": 3, "delivered": 5, "committed": 3}, {}, None),  # durable
        ({"processed": 3, "delivered": 5, "committed": 3}, {"again": True}, 3),
        ({"processed": 3, "delivered": 5, "committed": 3}, {"delivered": True}, 5),
        ({"processed": 5, "delivered": 5, "committed": 5}, {"delivered": True, "unmoved": True}, None),
        ({}, {}, None),  # nothing came of it, and nobody ever committed it
        ({}, {"again": True}, None),
        ({}, {"unmoved": True}, 0),
        ({"was_reset": True}, {}, 0),  # by policy: a restart would look up another one
        ({"committed": 7}, {}, 0),  # a seek went back
    ],
)
def test_what_a_commit_sends_of_a_partition(of, how, sent):
    made = partition(**of)
    expected = {} if sent is None else {made.tp: sent}
    assert {tp: each.offset for tp, each in entries_of([made], **how).items()} == expected


def test_what_is_sent_again_keeps_its_metadata():
    made = partition(processed=3, delivered=3, committed=3)
    assert [each.metadata for each in entries_of([made], again=True).values()] == ["text"]
    made.ledger.deliver(range(3, 4), 4)
    made.ledger.process_all()
    assert [each.metadata for each in entries_of([made], again=True).values()] == [""]


def test_a_partition_without_a_position_sends_nothing():
    made = partition(processed=3, delivered=3)
    made.stick(ValueError())
    assert entries_of([made], delivered=True, unmoved=True, again=True) == {}


def test_two_lanes_say_themselves_what_is_sent():
    class Lanes:
        def entry(self, *, delivered=False, unmoved=False, again=False):
            return None if delivered else CommitEntry(3, "again" if again else "", 1)

    made = partition()
    made.lanes = Lanes()
    assert entries_of([made], again=True) == {made.tp: CommitEntry(3, "again", 1)}
    assert entries_of([made], delivered=True, unmoved=True) == {}
