"""Bytes a broker should never send, and deserializers that raise: typed errors, nothing before them lost."""

from __future__ import annotations

import contextlib
import itertools
import struct
import tracemalloc
import zlib

import pytest
from aiokafka.structs import TopicPartition
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiogroup._core.fetching.records.codecs import CodecError, inflate
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from aiogroup.errors import CorruptRecordError, RecordDeserializationError
from tests.fetching import wire_batches as w
from tests.support.effort import examples

TP = TopicPartition("orders", 3)


def decoder(data, fetch_offset=0, aborted=(), **kwargs):
    return PartitionDecoder(TP, data, fetch_offset, aborted, DecodeSettings(**kwargs), lambda record: None)


def poison(decoding, max_records=256):
    """What comes before the poison, and the poison, which stays."""
    good = []
    for _ in range(10_000):
        try:
            piece = decoding.next_slice(max_records)
        except RecordDeserializationError:
            break
        assert piece is not None, "no poison"
        good += piece
    with pytest.raises(RecordDeserializationError) as first:
        decoding.next_slice(max_records)
    with pytest.raises(RecordDeserializationError) as again:
        decoding.next_slice(max_records)
    assert str(again.value) == str(first.value)
    assert decoding.next_offset == first.value.offset
    assert not decoding.exhausted
    assert decoding.size_bytes == 0 or "deserializer raised" in str(first.value)  # what is behind damage is let go
    return [record.offset for record in good], first.value


def flipped(data, at):
    data = bytearray(data)
    data[at] ^= 0x40
    return bytes(data)


@pytest.mark.parametrize("max_records", [1, 3, 256])
@pytest.mark.parametrize("which", ["key", "value"])
def test_a_deserializer_that_raises(which, max_records):
    def refuse(data):
        if data == b"5":
            raise LookupError("no schema")
        return data.decode()

    sent = [w.Sent(n, b"%d" % n, b"%d" % n) for n in range(10)]
    data = w.batch(sent[:4]) + w.batch(sent[4:], codec=w.GZIP)
    good, error = poison(decoder(data, **{f"{which}_deserializer": refuse}), max_records)
    assert good == [0, 1, 2, 3, 4]
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 5)
    assert (error.key, error.value) == (b"5", b"5")
    assert (type(error.__cause__), error.__cause__.args) == (LookupError, ("no schema",))
    assert f"the {which} deserializer raised LookupError;" in str(error)
    assert "no schema" not in str(error), "its text often shows the record"
    assert isinstance(error, CorruptRecordError)


def test_a_checksum_is_checked_before_any_record_of_the_batch():
    data = w.built(10) + flipped(w.built(10, base=10), -3)
    good, error = poison(decoder(data))
    assert good == list(range(10))
    assert (error.offset, error.key, error.value) == (10, None, None)
    assert "checksum" in str(error)
    assert "ends at offset 19" in str(error)
    records = decoder(data, check_crcs=False).next_slice(100)
    assert len(records) == 20


def test_a_bad_batch_before_the_position_is_reported_at_the_position():
    assert poison(decoder(flipped(w.built(10), -3), 7))[1].offset == 7
    assert poison(decoder(flipped(w.built(10, base=20), -3), 7))[1].offset == 20


def test_control_and_aborted_batches_are_checked_too():
    assert poison(decoder(flipped(w.marker(0, 1, abort=True), -3)))[1].offset == 0
    data = flipped(w.batch([w.Sent(0)], attributes=w.TRANSACTIONAL, producer=1), -1)
    assert poison(decoder(data, aborted=[(1, 0)], read_committed=True))[1].offset == 0


def test_the_lookahead_keeps_the_error_for_the_next_call():
    decoding = decoder(w.built(3) + flipped(w.marker(3, 1, abort=True), -3))
    assert len(decoding.next_slice(3)) == 3
    assert poison(decoding)[1].offset == 3


GOOD = w.record_bytes(w.Sent(0, b"k", b"v"), 0, 0)
HUGE = w.varint(2**62)
TOP = w.varint(2**63 - 40)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (GOOD + b"\x00", 1),
        (GOOD, 2),
        (GOOD, 2**31 - 1),
        (GOOD, -1),
        (GOOD + w.varint(100) + b"\0\0\2\1\1\0", 2),
        (GOOD + w.varint(30) + b"\0\0\2" + HUGE + b"k", 2),
        (GOOD + w.varint(30) + b"\0\0\2" + TOP + b"k" * 40, 2),
        (GOOD + w.varint(30) + b"\0\0\2\1" + TOP + b"k" * 40, 2),
        (GOOD + w.varint(30) + b"\0\0\2\1\1" + HUGE, 2),
        (GOOD + w.varint(30) + b"\0\0\2\1\1" + w.varint(-5), 2),
        (GOOD + w.varint(30) + b"\0\0\2\1\1\2" + TOP, 2),
        (GOOD + w.varint(30) + b"\0\0\2\1\1\2\1\1", 2),
        (GOOD + w.varint(10) + b"\0\0\2\1\1\2\2\xff\1", 2),
        (GOOD + b"\xff" * 10, 2),
        (GOOD + b"\xff", 2),
        (GOOD + b"\x80" * 20, 2),
        (GOOD + w.record_bytes(w.Sent(-7), 0, 0), 2),
        (GOOD + w.record_bytes(w.Sent(2**40), 0, 0), 2),
        (b"", 1),
        (b"", 0x7FFFFFFF),
    ],
    ids=range(20),
)
def test_hostile_lengths_inside_a_batch_with_a_right_checksum(payload, count):
    for codec, own in itertools.product((w.PLAIN, w.ZSTD), (None, bytes)):
        packed = bytes(w.ENCODE[codec](payload)) if codec else payload
        data = w.batch([], base=0, last=5, payload=packed, codec=codec, count=count)
        good, error = poison(decoder(data + w.built(3, base=6), value_deserializer=own))
        assert good in ([], [0])
        assert error.offset == len(good)


@pytest.mark.parametrize(("payload", "count"), [(GOOD, 2), (GOOD + b"\x20junk", 1)], ids=["too few", "left over"])
def test_damage_behind_the_last_record_of_a_batch_costs_none_of_the_next(payload, count):
    decoding = decoder(w.batch([], base=0, last=0, payload=payload, count=count) + w.built(2, base=1))
    assert poison(decoding)[0] == [0]
    assert decoding.poison_end == 1


@pytest.mark.parametrize("delta", [4, 6, 70_000, 2**31 - 1])
@pytest.mark.parametrize("codec", [w.PLAIN, w.ZSTD])
def test_a_damaged_header_that_names_a_later_end_costs_none_of_the_next_batch(delta, codec):
    damaged = bytearray(w.built(3, base=3, codec=codec))
    struct.pack_into(">i", damaged, 23, delta)
    decoding = decoder(w.built(3, codec=codec) + bytes(damaged) + w.built(3, base=6, codec=codec))
    good, error = poison(decoding)
    assert (good, error.offset, decoding.poison_end) == ([0, 1, 2], 3, 6)
    assert "the batch ends at offset 5" in str(error)
    alone = decoder(bytes(damaged), 3)  # the next batch is in another answer
    assert poison(alone)[0] == []
    assert alone.poison_end == 6


@pytest.mark.parametrize("max_records", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("fetch_offset", [0, 2])
def test_what_stands_before_a_damaged_record_is_returned(max_records, fetch_offset):
    records = b"".join(w.record_bytes(w.Sent(n), 0, 0) for n in range(5))
    data = w.batch([], base=0, last=9, payload=records + b"\x20junk", count=10)
    good, error = poison(decoder(data, fetch_offset), max_records)
    assert (good, error.offset) == (list(range(fetch_offset, 5)), 5)
    assert "ends at offset 9" in str(error)


@pytest.mark.parametrize("length", [0, -1, 13, 48, 2**31 - 1, -(2**31)])
def test_hostile_batch_lengths(length):
    data = bytearray(w.built(3, base=3))
    struct.pack_into(">i", data, 8, length)
    good, error = poison(decoder(w.built(3) + bytes(data) + bytes(100)))
    assert (good, error.offset) == ([0, 1, 2], 3)


def test_hostile_headers():
    for edit in [(">q", 0, -5), (">i", 23, -1), (">b", 16, 3), (">b", 16, -1), (">h", 21, 5), (">h", 21, 7)]:
        data = bytearray(w.built(3))
        struct.pack_into(edit[0], data, edit[1], edit[2])
        assert poison(decoder(w.seal(data) if edit[1] > 20 else bytes(data), 1))[1].offset == 1, edit


def test_a_control_record_without_a_type():
    data = w.batch([w.Sent(0, b"")], attributes=w.CONTROL | w.TRANSACTIONAL, producer=1)
    assert poison(decoder(data, aborted=[(1, 0)], read_committed=True))[1].offset == 0
    data = w.batch([], base=0, last=0, attributes=w.CONTROL, producer=1, payload=b"\xff" * 9, count=1)
    assert poison(decoder(data, aborted=[(1, 0)], read_committed=True))[1].offset == 0
    assert decoder(data).next_slice(1) is None


@pytest.mark.parametrize("codec", [w.GZIP, w.SNAPPY, w.LZ4, w.ZSTD])
def test_a_bomb_raises_before_it_is_in_memory(codec):
    limit = 1 << 20
    payload = w.bomb(codec, 16 << 20)
    tracemalloc.start()
    try:
        data = w.built(3) + w.batch([], base=3, last=9, codec=codec, payload=payload, count=7)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        decoding = decoder(data, max_batch_bytes=max(limit, len(payload) + 100))
        limit = max(limit, len(payload) + 100)
        good, error = poison(decoding)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert (good, error.offset) == ([0, 1, 2], 3)
    assert "decompresses to more than" in str(error)
    assert peak < 2 * limit + len(payload)


@pytest.mark.parametrize("codec", [w.GZIP, w.SNAPPY, w.LZ4, w.ZSTD])
def test_the_limit_itself_fits(codec):
    packed = memoryview(w.bomb(codec, 1_000_000))
    assert bytes(inflate(codec, packed, 1_000_000)) == bytes(1_000_000)
    with pytest.raises(CodecError, match="more than max_batch_bytes=999999"):
        inflate(codec, packed, 999_999)


def test_snappy_blocks_share_one_limit():
    packed = memoryview(bytes(w.ENCODE[w.SNAPPY](bytes(200_000))))
    assert len(inflate(w.SNAPPY, packed, 200_000)) == 200_000
    with pytest.raises(CodecError, match="more than"):
        inflate(w.SNAPPY, packed, 199_999)


def test_snappy_that_lies_about_its_size_is_not_believed():
    with pytest.raises(CodecError, match="cannot hold"):
        inflate(w.SNAPPY, memoryview(b"\x80\x80\x80\x20abc"), 1 << 30)


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0\0", b"\0\0\0\7a", b"\xff\xff\xff\xfa"], ids=repr)
def test_snappy_blocks_cut_off_or_backwards(tail):
    packed = bytes(w.ENCODE[w.SNAPPY](b"a" * 50))
    with pytest.raises(CodecError, match="damaged"):
        inflate(w.SNAPPY, memoryview(packed + tail), 1 << 20)


def test_inflate_elsewhere_keeps_its_error_for_next_slice():
    decoding = decoder(w.batch([], base=0, last=9, codec=w.ZSTD, payload=b"junk" * 50), inflate_inline_bytes=10)
    assert decoding.needs_inflate()
    decoding.inflate()
    assert not decoding.needs_inflate()
    assert "damaged compressed bytes" in str(poison(decoding)[1])


INNER = w.message(0, None, b"v")


def old_frame(body):
    """A message of format 1 with these bytes behind the checksum, which is right."""
    return struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body


LAST_BYTES_UNUSED = old_frame(w.message(0, b"k", b"v")[16:] + b"?")
# A key of -8 bytes would make the decoder read the timestamp's end as the value's length, which fits.
BACKWARDS = old_frame(struct.pack(">bbqi", 1, 0, 4, -8))


@pytest.mark.parametrize(
    "data",
    [
        w.message(5, b"k", b"v", crc=1),
        LAST_BYTES_UNUSED,
        BACKWARDS,
        w.message(-5, b"k", b"v"),
        w.message(5, None, None, attributes=w.GZIP),
        w.message(5, None, b"junk", attributes=w.GZIP),
        w.message(5, None, b"junk", attributes=6),
        w.wrapper(5, b"", w.GZIP),
        w.wrapper(5, INNER[:-1], w.GZIP),
        w.wrapper(5, INNER[:8] + struct.pack(">i", -12) + INNER[12:], w.GZIP),
        w.wrapper(5, INNER[:8] + struct.pack(">i", 14) + INNER[12:26] + b"\0" * 9, w.GZIP),
        w.wrapper(5, w.wrapper(0, INNER, w.GZIP), w.GZIP),
        w.wrapper(5, w.message(0, None, b"v", magic=0), w.GZIP),
        w.wrapper(5, w.message(0, None, b"v", crc=3), w.GZIP),
        w.wrapper(5, w.message(2, None, b"v") + w.message(1, None, b"w") * 2, w.GZIP),
    ],
    ids=range(15),
)
def test_hostile_old_messages(data):
    good, error = poison(decoder(w.built(3) + data))
    assert (good, error.offset in (3, 5)) == ([0, 1, 2], True)


def survive(data, fetch_offset=0, **kwargs):
    """Read all there is; whatever the bytes: rising offsets, a position that never goes back, an end."""
    decoding = decoder(data, fetch_offset, [(1, 0), (2, 5)], max_batch_bytes=1 << 20, **kwargs)
    position = fetch_offset
    with contextlib.suppress(RecordDeserializationError):
        while (piece := decoding.next_slice(3)) is not None:
            assert piece
            assert position <= piece[0].offset <= piece[-1].offset < decoding.next_offset
            position = decoding.next_offset
    assert decoding.size_bytes == 0


SEEDS = [
    w.built(5) + w.built(5, base=5),
    w.built(5, codec=w.LZ4) + w.marker(5, 1, abort=True) + w.built(5, base=6, codec=w.SNAPPY),
    w.batch([w.Sent(0, b"k", None, 0, [("h", None)])], attributes=w.TRANSACTIONAL, producer=1),
    w.built(9, codec=w.GZIP) + w.built(5, base=9, codec=w.ZSTD),
    w.message(0, b"k", b"v", magic=0) + w.wrapper(4, INNER * 3, w.GZIP) + w.built(2, base=5),
    w.wrapper(2, b"".join(w.message(n, b"k", b"v") for n in range(3)), w.SNAPPY),
]
EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6)


@given(
    seed=st.sampled_from(SEEDS),
    edits=EDITS,
    cut=st.integers(0, 60),
    committed=st.booleans(),
    own=st.booleans(),
)
@settings(max_examples=examples(30), deadline=None)
def test_mutated_bytes_never_crash(seed, edits, cut, committed, own):
    data = bytearray(seed)
    for at, byte in edits:
        data[at % len(data)] = byte
    kwargs = {"check_crcs": False, "read_committed": committed, "value_deserializer": bytes if own else None}
    survive(bytes(data[: len(data) - cut]), **kwargs)


@given(payload=st.binary(max_size=80), count=st.integers(-2, 9), last=st.integers(0, 9))
@example(payload=b"\x0c\0\0\0\1\1\xff\xff\xff\xff\xff\xff\xff\xff\x7f", count=1, last=0)
@settings(max_examples=examples(30), deadline=None)
def test_random_records_in_a_valid_frame_never_crash(payload, count, last):
    survive(w.batch([], base=0, last=last, payload=GOOD + payload, count=count) + w.built(2, base=10))


@given(codec=st.integers(1, 5), packed=st.binary(max_size=60), prefix=st.integers(0, 20))
@settings(max_examples=examples(30), deadline=None)
def test_random_compressed_bytes_never_crash(codec, packed, prefix):
    real = w.bomb(codec, 100) if codec < 5 else b""
    with contextlib.suppress(CodecError):
        assert len(inflate(codec, memoryview(real[:prefix] + packed), 10_000)) <= 10_000


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63 - 5, 2**63 - 2**31 + 3])
@pytest.mark.parametrize("codec", [w.PLAIN, w.GZIP])
def test_offsets_after_which_no_position_is_are_damage(offset, codec):
    """The position behind it would be no number that Kafka can be told."""
    hostile = w.batch([w.Sent(offset - 3, value=b"v")], last=offset - 4 + 2**31, codec=codec)
    offsets, error = poison(decoder(w.built(2) + hostile))
    assert (offsets, error.offset) == ([0, 1], 2)


def test_old_offsets_after_which_no_position_is_are_damage():
    offsets, error = poison(decoder(w.message(4, None, b"v") + w.message(2**63 - 1, None, b"v")))
    assert (offsets, error.offset) == ([4], 5)


# Going on behind it.


def numbered(first, count, codec=0, **kwargs):
    """A batch whose keys are the offsets."""
    sent = [w.Sent(offset, key=b"%d" % offset, value=b"v") for offset in range(first, first + count)]
    return w.batch(sent, codec=codec, **kwargs)


def outcomes(decoding, max_records):
    """Every offset in order, as (offset, whether it was given), each poison skipped as soon as it is raised."""
    found = []
    while not decoding.exhausted:
        try:
            found += [(record.offset, True) for record in decoding.next_slice(max_records)]
        except RecordDeserializationError as error:
            found.append((error.offset, False))
            decoding.skip_to(decoding.poison_end)
    return found


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("max_records", [1, 3, 256])
@pytest.mark.parametrize("bad", [{0}, {9}, {3, 4, 5}, {9, 10}, {19}, set(range(20)), {0, 5, 10, 15}])
def test_what_stands_after_a_refused_record_is_kept(bad, max_records, codec):
    called = []

    def refuse(key):
        called.append(int(key))
        if called[-1] in bad:
            raise ValueError("bad")
        return key

    data = numbered(0, 10, codec) + numbered(10, 10, codec)
    decoding = decoder(data, key_deserializer=refuse)
    assert outcomes(decoding, max_records) == [(offset, offset not in bad) for offset in range(20)]
    assert called == list(range(20))  # once each: nothing is decoded again
    assert decoding.exhausted
    assert decoding.size_bytes == 0
    assert decoding.next_offset == 20


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 39), st.integers(1, 7)), max_size=12),
    st.sets(st.integers(0, 39), max_size=8),
    st.integers(0, 1),
)
def test_a_skip_forwards_is_a_fetch_from_there(steps, bad, codec):
    """Wherever it goes on, what comes is what a decoder of the same bytes gives that began there."""

    def refuse(key):
        if int(key) in bad:
            raise ValueError("bad")
        return key

    data = b"".join(numbered(base, 10, codec) for base in range(0, 40, 10))
    decoding = decoder(data, key_deserializer=refuse)
    for offset, count in steps:
        at = max(offset, decoding.next_offset)
        if not decoding.skip_to(offset):  # to a poison record itself
            assert at == decoding.poison_offset
            decoding.skip_to(at := at + 1)
        assert decoding.next_offset == at
        fresh = decoder(data, at, key_deserializer=refuse)
        results = []
        for each in (decoding, fresh):
            try:
                results.append([record.offset for record in each.next_slice(count) or []])
            except RecordDeserializationError as error:
                results.append(error.offset)
        assert results[0] == results[1]
        assert decoding.next_offset == fresh.next_offset


def test_damage_is_fetched_again_by_who_goes_on_after_it():
    decoding = decoder(w.built(3) + flipped(w.built(3, base=3), -3) + w.built(3, base=6))
    good, error = poison(decoding)
    assert (good, error.offset, decoding.poison_end) == ([0, 1, 2], 3, 6)
    assert not decoding.skip_to(6)


def test_damage_that_was_skipped_before_it_was_read_is_no_poison():
    decoding = decoder(w.built(3) + flipped(w.built(3, base=3), -3) + w.built(3, base=6))
    assert decoding.skip_to(7)
    assert [record.offset for record in decoding.next_slice(10)] == [7, 8]


def test_aborted_transactions_are_never_skipped_over():
    """Their markers would be: records of the same producer that were committed later would pass for aborted ones."""
    data = numbered(0, 3, attributes=w.TRANSACTIONAL, producer=1) + w.marker(3, 1, abort=True) + w.built(3, base=4)
    decoding = decoder(data, aborted=[(1, 0)], read_committed=True)
    assert not decoding.skip_to(5)
    assert decoder(data, read_committed=True).skip_to(5)
