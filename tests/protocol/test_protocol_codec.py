"""Kafka's primitive types at their limits."""

from __future__ import annotations

import struct
import tracemalloc
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup.errors import ProtocolError
from tests.support.effort import examples

LIMITS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uvarint": (0, (1 << 32) - 1),
}


def _written(method: str, *values) -> bytes:
    writer = Writer()
    getattr(writer, method)(*values)
    return bytes(writer.data)


def _read(method: str, data: bytes):
    reader = Reader(data)
    value = getattr(reader, method)()
    reader.end()
    return value


@pytest.mark.parametrize("method", LIMITS)
@settings(max_examples=examples(4), deadline=None)
@given(data=st.data())
def test_numbers_come_back_and_their_neighbours_are_refused(method: str, data) -> None:
    lowest, highest = LIMITS[method]
    for value in (lowest, highest, data.draw(st.integers(lowest, highest))):
        raw = _written(method, value)
        assert _read(method, raw) == value
        for length in range(len(raw)):
            with pytest.raises(ProtocolError):
                _read(method, raw[:length])
    for value in (lowest - 1, highest + 1):
        with pytest.raises(ValueError):
            _written(method, value)


@pytest.mark.parametrize(
    ("method", "value", "raw"),
    [
        # As in Java's ByteUtilsTest.
        ("uvarint", 300, "ac02"),
        ("float64", 1.5, "3ff8000000000000"),
        ("boolean", True, "01"),
        ("uuid", UUID(int=1), "00000000000000000000000000000001"),
        ("string", "é", "0002c3a9"),
        ("nullable_string", None, "ffff"),
        ("compact_string", "é", "03c3a9"),
        ("compact_nullable_string", None, "00"),
        ("bytes_", b"x", "0000000178"),
        ("nullable_bytes", None, "ffffffff"),
        ("compact_bytes", b"x", "0278"),
        ("compact_nullable_bytes", None, "00"),
    ],
)
def test_bytes_of_each_type(method: str, value, raw: str) -> None:
    assert _written(method, value).hex() == raw
    assert _read(method, bytes.fromhex(raw)) == value


@pytest.mark.parametrize("raw", ["ffffffff1f", "ffffffffffff01", "80808080808000", "8080808080808080808001"])
def test_varints_that_are_too_long_or_too_large(raw: str) -> None:
    for method in ("uvarint",):
        with pytest.raises(ProtocolError, match="varint"):
            _read(method, bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("string", "ffff"),
        ("string", "fffe"),
        ("string", "0001ff"),
        ("nullable_string", "8000"),
        ("compact_string", "00"),
        ("bytes_", "ffffffff"),
        ("compact_bytes", "00"),
        ("records", "ffffffff"),
        ("compact_records", "00"),
        ("nullable_bytes", "80000000"),
    ],
)
def test_nulls_and_lengths_that_may_not_be(method: str, raw: str) -> None:
    with pytest.raises(ProtocolError):
        _read(method, bytes.fromhex(raw))


def test_strings_have_at_most_32767_bytes() -> None:
    for method in ("string", "compact_string"):
        assert _read(method, _written(method, "x" * 32767)) == "x" * 32767
        with pytest.raises(ValueError, match="32767"):
            _written(method, "é" * 16384)


def test_records_are_a_slice_of_the_frame() -> None:
    frame = _written("bytes_", b"x" * 1_000_000)
    tracemalloc.start()
    try:
        records = _read("records", frame)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert records.obj is frame


@pytest.mark.parametrize("raw", ["7fffffff", "7ffffffe", "00000005"])
def test_counts_are_compared_with_what_is_left(raw: str) -> None:
    reader = Reader(bytes.fromhex(raw) + bytes(4))
    with pytest.raises(ProtocolError, match="array of"):
        reader.check_count(reader.int32(), 1)


def test_unknown_tags_are_skipped_and_known_ones_read() -> None:
    writer = Writer()
    writer.tags({3: b"\x07", 5: b"abc", 9: struct.pack(">i", 8)})
    reader = Reader(bytes(writer.data))
    assert reader.tags({9: Reader.int32, 3: Reader.int8}) == {9: 8, 3: 7}
    reader.end()


@pytest.mark.parametrize(
    "raw",
    [
        "01" + "03" + "02" + "0708",  # the field is longer than its type
        "02" + "0301" + "07" + "0301" + "07",  # twice the same tag
        "02" + "0401" + "07" + "0301" + "07",  # not in order
        "01" + "03" + "05" + "07",  # the field is longer than the frame
        "ffffffff0f",
    ],
)
def test_tags_that_may_not_be(raw: str) -> None:
    with pytest.raises(ProtocolError):
        Reader(bytes.fromhex(raw)).tags({3: Reader.int8})
