"""What `commit` takes, and what it refuses before anything is sent."""

from __future__ import annotations

import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from aiogroup.offsets.commit_plan import read_offsets

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
