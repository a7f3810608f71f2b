"""What nobody checks on its way: names that are no text, odd lengths, cut batches. C and Python agree on all of it."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aiogroup._core.native.wire import RawRecords
from tests.fetching import wire_batches as w
from tests.native.test_native import HEADER, KINDS, reader, told
from tests.support.effort import examples

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def record(delta, rest):
    body = b"\x00" + w.varint(0) + w.varint(delta) + rest
    return w.varint(len(body)) + body


def batch_of(*records):
    return w.batch([w.Sent(number) for number in range(len(records))], payload=b"".join(records))


@kinds
def test_a_header_name_that_is_no_text_is_replaced(kind):
    headers = w.varint(1) + w.sized(b"caf\xe9") + w.sized(b"x")
    sent = batch_of(*(record(delta, w.sized(b"k") + w.sized(b"v") + headers) for delta in range(3)))
    reading = reader(kind, sent)
    records = reading.read(1, 0) + reading.read(5, 0)
    reading.finish()
    assert [(each.offset, each.headers) for each in records] == [(i, (("caf\ufffd", b"x"),)) for i in range(3)]


@kinds
def test_memory_is_taken_for_what_the_bytes_can_hold_not_for_what_the_header_promises(kind):
    promised = 2**31 - 1
    sent = w.batch([w.Sent(0), w.Sent(1)], last=promised - 1, count=promised)
    reading = reader(kind, sent)
    assert reading.left == promised
    tracemalloc.start()
    try:
        records = reading.read(reading.left, 0)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [each.offset for each in records] == [0, 1]
    assert peak_bytes < 100_000
    with pytest.raises(ValueError, match=r"size|cut off"):
        reading.read(reading.left, 0)


@kinds
def test_any_negative_length_means_none(kind):
    headers = w.varint(1) + w.sized(b"h") + w.varint(-7)
    (read,) = reader(kind, batch_of(record(0, w.varint(-2) + w.varint(-(2**31)) + headers))).read(1, 0)
    assert (read.key, read.value, read.headers) == (None, None, (("h", None),))


@kinds
@pytest.mark.parametrize("size", [-1, -(2**63)])
def test_a_header_must_have_a_name(kind, size):
    with pytest.raises(ValueError, match="name"):
        reader(kind, batch_of(record(0, b"\0\0" + w.varint(1) + w.varint(size) + b"\0"))).read(1, 0)


@kinds
def test_a_record_cannot_end_after_its_batch(kind):
    whole = batch_of(record(0, b"\0\0\x80\0"))  # no headers, in two bytes: what lies behind the cut looks the same
    assert len(reader(kind, whole).read(1, 0)) == 1
    with pytest.raises(ValueError, match="size"):
        reader(kind, whole[:-1]).read(1, 0)


@kinds
@pytest.mark.parametrize("hostile", [2**31 - 1, 2**62, 2**63 - 1, 2**63 - 100])
@pytest.mark.parametrize("before", ["", "00", "0000", "000002"], ids=["key", "value", "headers", "name"])
def test_hostile_numbers_take_neither_time_nor_memory(kind, hostile, before):
    sent = batch_of(record(0, bytes.fromhex(before) + w.varint(hostile) + bytes(40)))
    with pytest.raises(ValueError, match=r"length|headers|name"):
        reader(kind, sent).read(1, 0)


@kinds
def test_what_lies_below_the_position_need_not_be_whole(kind):
    sent = batch_of(record(0, w.varint(99)), *(record(delta, b"\1\1\0") for delta in (1, 2)))
    reading = reader(kind, sent)
    assert [each.offset for each in reading.read(5, 1)] == [1, 2]
    reading.finish()


@kinds
def test_offsets_rise_from_the_batch_s_own(kind):
    sent = bytearray(w.batch([w.Sent(5), w.Sent(6)]))
    sent[HEADER + 3] = 1  # the first record's delta: -1
    with pytest.raises(ValueError, match="order"):
        reader(kind, bytes(sent)).read(5, 0)


NUMBERS = [w.varint(each) for each in (-1, -9, 0, 1, 2, 3, 63, 64, 2**31, 2**62, -(2**63))] + [
    b"\xff" * 10,
    b"\x80" * 9,
]


def has_long_attributes(batch):
    """aiokafka takes a record's attributes for a number instead of a byte. Kafka leaves them at 0."""
    raws = RawRecords(memoryview(batch), 0)
    with suppress(ValueError):
        while True:
            if batch[HEADER + raws.skip()] >= 0x80:
                return True
    return False


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_c_and_python_agree_on_any_damage(data):
    good = w.batch(
        (
            w.Sent(9 + i, b"k" * (i % 2) or None, b"value" * i, 5 - i, [("h", b"x"), ("", None)][: i % 3])
            for i in range(6)
        ),
        attributes=data.draw(st.sampled_from([0, w.LOG_APPEND_TIME])),
    )
    at = data.draw(st.integers(HEADER, len(good) - 1))
    patch = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from(NUMBERS)))
    bad = good[:at] + patch + good[at + data.draw(st.integers(0, 4)) :]
    assume(not has_long_attributes(bad))
    seen = []
    for kind in KINDS:
        reading, records, outcome = reader(kind, bad), [], "left"
        try:
            while reading.left > 0:
                records += told(reading.read(2, 10))
            outcome = "unfinished"
            reading.finish()
            outcome = "fine"
        except ValueError:
            pass
        seen.append((records, reading.left, outcome))
    assert all(each == seen[0] for each in seen)
