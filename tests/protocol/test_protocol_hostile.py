"""Truncated, changed and absurd bytes raise ProtocolError, and allocate no more than they are long."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_golden import Row, by_message, java_rows

from aiogroup.errors import ProtocolError, UnsupportedVersionError
from tests.support.effort import FACTOR, examples

ROWS = [row for row in java_rows() if row.variant in {"full", "empty"}]
NEWEST = list({row.message: row for row in ROWS if row.variant == "full"}.values())


@pytest.mark.parametrize("rows", by_message(ROWS).values(), ids=by_message(ROWS))
def test_every_prefix_and_a_byte_too_much_are_refused(rows: list[Row]) -> None:
    for row in rows:
        view = memoryview(row.frame)
        for length in range(1 if row.is_blob else 0, len(row.frame)):
            assert _is_refused(row, view[:length]), f"{row.id}: the first {length} bytes"
        if row.is_blob:  # newer members append fields
            assert row.decode(row.frame + b"\0") == row.decode(row.frame)
        else:
            assert _is_refused(row, row.frame + b"\0"), row.id


@settings(max_examples=examples(20), deadline=None, database=None)
@given(row=st.sampled_from(ROWS), data=st.data())
def test_changed_bytes_raise_nothing_else(row: Row, data) -> None:
    frame = bytearray(row.frame)
    # The header's API key and version would only choose another message.
    first = 8 if row.is_request else 0
    for at in data.draw(st.lists(st.integers(first, len(frame) - 1), min_size=1, max_size=4)):
        frame[at] = data.draw(st.integers(0, 255))
    _decode_or_refuse(row, bytes(frame))


@settings(max_examples=examples(15), deadline=None, database=None)
@given(row=st.sampled_from(NEWEST), body=st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(row: Row, body: bytes) -> None:
    _decode_or_refuse(row, row.frame[:12] + body if row.is_request else body)
    _decode_or_refuse(row, body)


@pytest.mark.parametrize("row", NEWEST, ids=lambda row: row.id)
def test_absurd_lengths_allocate_nothing(row: Row) -> None:
    first = 8 if row.is_request else 0
    tracemalloc.start()
    try:
        for absurd in ("7fffffff", "ffffffff0f", "80000000", "ffffffffffffffffff7f"):
            patch = bytes.fromhex(absurd)
            for at in range(first, min(len(row.frame), 50 * FACTOR)):
                _decode_or_refuse(row, row.frame[:at] + patch + row.frame[at + len(patch) :])
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def _is_refused(row: Row, frame: bytes | memoryview) -> bool:
    try:
        row.decode(frame)
    except ProtocolError:
        return True
    return False


def _decode_or_refuse(row: Row, frame: bytes) -> None:
    expected = (ProtocolError, UnsupportedVersionError) if row.is_request else ProtocolError
    with contextlib.suppress(expected):
        row.decode(frame)
