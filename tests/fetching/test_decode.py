"""Records out of one partition's bytes: codecs, formats, offsets, transactions."""

from __future__ import annotations

import pickle
import random
import tracemalloc
from functools import partial

import cramjam
import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core import native
from aiogroup._core.fetching.range_cursor import BoundedDecoder
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from aiogroup.errors import RecordDeserializationError
from tests.fetching import wire_batches as w

TP = TopicPartition("orders", 3)


def decoder(data, fetch_offset=0, aborted=(), **settings):
    return PartitionDecoder(TP, data, fetch_offset, aborted, DecodeSettings(**settings), lambda record: None)


def drain(decoding, max_records=256):
    """All that comes, and the position behind it."""
    records = []
    while (piece := decoding.next_slice(max_records)) is not None:
        assert 0 < len(piece) <= max_records
        records += piece
    assert decoding.exhausted
    assert decoding.size_bytes == 0
    return records


def offsets(records):
    return [record.offset for record in records]


@pytest.mark.parametrize("as_view", [False, True])
@pytest.mark.parametrize("codec", range(5))
def test_every_codec_gives_the_same_records(codec, as_view):
    data = w.built(300, base=50, codec=codec) + w.built(10, base=350, codec=codec)
    records = drain(decoder(memoryview(b"??" + data)[2:] if as_view else data, 50))
    assert offsets(records) == list(range(50, 360))
    first = records[0]
    assert (first.tp, first.key, first.value) == (TP, b"k0", b"v" * 100)
    assert (first.timestamp, first.timestamp_type, first.headers) == (1000, 0, (("h", b"x"),))
    assert pickle.loads(pickle.dumps(first)) == first


def test_raw_snappy_is_read_as_well_as_xerials():
    inner = w.record_bytes(w.Sent(0, value=b"a" * 500), 0, 0)
    raw = bytes(cramjam.snappy.compress_raw(inner))
    data = w.batch([w.Sent(0)], codec=w.SNAPPY, payload=raw)
    assert drain(decoder(data))[0].value == b"a" * 500


def test_null_and_empty_parts_stay_apart():
    sent = [
        w.Sent(0, None, None, 5),
        w.Sent(1, b"", b"", 6, [("", b""), ("é", None), ("é", b"2")]),
        w.Sent(2, b"k", None, -1),
    ]
    got = drain(decoder(w.batch(sent)))
    assert [(r.key, r.value, r.timestamp) for r in got] == [(None, None, 5), (b"", b"", 6), (b"k", None, -1)]
    assert got[1].headers == (("", b""), ("é", None), ("é", b"2"))


def test_log_append_time_is_the_batchs():
    data = w.batch([w.Sent(0, timestamp=5), w.Sent(1, timestamp=6)], attributes=w.LOG_APPEND_TIME, max_timestamp=99)
    assert [(r.timestamp, r.timestamp_type) for r in drain(decoder(data))] == [(99, 1), (99, 1)]


def test_records_before_the_position_are_dropped():
    assert offsets(drain(decoder(w.built(10) + w.built(10, base=10), 7))) == list(range(7, 20))
    assert offsets(drain(decoder(w.built(10) + w.built(10, base=10), 10))) == list(range(10, 20))


def test_a_batch_before_the_position_is_not_even_decoded():
    broken = w.batch([], base=0, last=2, payload=b"junk", count=3)
    assert offsets(drain(decoder(broken + w.built(3, base=3), 3))) == [3, 4, 5]


def test_the_position_is_after_what_was_returned_and_what_nobody_gets():
    data = (
        w.batch([w.Sent(12), w.Sent(14)], base=10, last=19)
        + w.marker(20, 1, abort=False)
        + w.batch([], base=21, last=29)
        + w.batch([w.Sent(30), w.Sent(31)])
        + w.marker(32, 1, abort=True)
    )
    decoding = decoder(data, 10)
    assert decoding.next_offset == 10
    assert offsets(decoding.next_slice(1)) == [12]
    assert decoding.next_offset == 13
    assert offsets(decoding.next_slice(1)) == [14]
    assert decoding.next_offset == 30
    assert not decoding.exhausted
    assert offsets(decoding.next_slice(256)) == [30, 31]
    assert decoding.next_offset == 33
    assert decoding.exhausted
    assert decoding.next_slice(256) is None


def test_nothing_deliverable_still_moves_the_position():
    decoding = decoder(w.marker(5, 1, abort=False), 5)
    assert decoding.next_slice(10) is None
    assert decoding.next_offset == 6


def test_a_slice_spans_small_batches_but_not_beyond_its_size():
    decoding = decoder(b"".join(w.built(1, base=n) for n in range(10)))
    assert offsets(decoding.next_slice(7)) == list(range(7))
    assert offsets(decoding.next_slice(7)) == [7, 8, 9]
    with pytest.raises(ValueError, match="max_records"):
        decoding.next_slice(0)


def test_formats_may_change_within_an_answer():
    data = (
        w.message(0, b"k", b"zero", magic=0)
        + w.message(1, None, b"one", timestamp=7)
        + w.batch([w.Sent(2, value=b"two")])
        + w.message(3, b"", None, timestamp=9, attributes=w.LOG_APPEND_TIME)
    )
    got = drain(decoder(data))
    assert [(r.offset, r.key, r.value, r.timestamp, r.timestamp_type) for r in got] == [
        (0, b"k", b"zero", -1, 0),
        (1, None, b"one", 7, 0),
        (2, None, b"two", 0, 0),
        (3, b"", None, 9, 1),
    ]
    assert got[0].headers == ()


@pytest.mark.parametrize("ratio", [1, 2.2, 3, 3.9, 12])
@pytest.mark.parametrize("codec", [w.GZIP, w.SNAPPY, w.LZ4, w.ZSTD])
def test_the_memory_of_a_decompressed_batch_is_counted_as_it_is(codec, ratio):
    noise = random.Random(codec).randbytes(200_000)
    decoding = decoder(w.built(1, codec=codec, value=noise + bytes(int(len(noise) * (ratio - 1)))))
    tracemalloc.start()
    try:
        decoding.inflate()
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held_bytes <= 1.13 * decoding.inflated_bytes + 4_096  # a bytearray that grows has an eighth to spare


@pytest.mark.parametrize("codec", [w.GZIP, w.SNAPPY, w.LZ4, w.ZSTD])
def test_a_small_batch_that_holds_much_asks_to_be_inflated_elsewhere(codec):
    """Repeated text of 60 MB is a few kB, and takes a tenth of a second."""
    small, bomb = w.built(5, codec=codec), w.built(1, base=5, codec=codec, value=bytes(1_000_000))
    assert len(bomb) < 64 * 1024
    decoding = decoder(small + bomb + w.built(5, base=6))
    assert not decoding.needs_inflate()
    assert len(decoding.next_slice(256)) == 5
    assert decoding.needs_inflate()
    assert decoding.inflated_bytes < 1_000_000
    decoding.inflate()
    assert not decoding.needs_inflate()
    assert offsets(drain(decoding)) == list(range(5, 11))


def test_a_small_batch_that_is_damaged_is_poison_when_it_was_inflated_elsewhere():
    damaged = bytearray(w.built(5, codec=w.GZIP))
    damaged[-20:] = bytes(20)
    decoding = decoder(bytes(damaged), check_crcs=False)
    assert decoding.needs_inflate()
    decoding.inflate()
    assert not decoding.needs_inflate()
    with pytest.raises(RecordDeserializationError):
        decoding.next_slice(256)


def test_big_batches_ask_to_be_inflated_elsewhere():
    small, big = w.built(5, codec=w.GZIP), w.built(2000, base=5, codec=w.ZSTD)
    decoding = decoder(small + big + w.built(5, base=2005), inflate_inline_bytes=len(big) - 62)
    assert not decoding.needs_inflate()
    assert len(decoding.next_slice(256)) == 5
    assert decoding.needs_inflate()
    before = decoding.size_bytes
    decoding.inflate()
    assert not decoding.needs_inflate()
    assert decoding.size_bytes > before + 2000 * 100
    assert offsets(drain(decoding)) == list(range(5, 2010))
    decoding.inflate()
    assert len(drain(decoder(small + big, inflate_inline_bytes=0))) == 2005


def test_deserializers_see_bytes_and_never_null():
    seen = []

    def key(data):
        seen.append(data)
        return data.decode()

    data = w.batch([w.Sent(0, b"k", b"3"), w.Sent(1, None, b"4"), w.Sent(2, b"q", None)])
    got = drain(decoder(data, key_deserializer=key, value_deserializer=int), 2)
    assert [(r.key, r.value) for r in got] == [("k", 3), (None, 4), ("q", None)]
    assert seen == [b"k", b"q"]


def test_acknowledge_reaches_the_consumer():
    acked = []
    decoding = PartitionDecoder(TP, w.built(2), 0, (), DecodeSettings(), acked.append)
    records = decoding.next_slice(2)
    records[1].ack()
    assert acked == [records[1]]


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_in_a_deserializer_loses_no_record(late):
    interrupts = [KeyboardInterrupt]

    def value(data):
        if data == b"6" and interrupts:
            raise interrupts.pop()
        return int(data)

    sent = [w.Sent(n, value=b"%d" % n) for n in range(10)]
    decoding = decoder(w.batch(sent[:4]) + w.batch(sent[4:]), value_deserializer=value)
    if late:
        assert offsets(decoding.next_slice(5)) == [0, 1, 2, 3, 4]
    with pytest.raises(KeyboardInterrupt):
        decoding.next_slice(8)
    assert not decoding.exhausted
    assert offsets(drain(decoding, 3)) == list(range(5 if late else 0, 10))


# What is read at once.


@pytest.mark.skipif(not native.IS_COMPILED, reason="in Python nothing is read at once")
@pytest.mark.parametrize("fetch_offset", [50, 52, 57])
def test_a_short_plain_piece_is_read_at_once_as_slice_by_slice(fetch_offset):
    data = w.built(5, base=50) + w.batch([w.Sent(55), w.Sent(57)], base=55, last=59)
    at_once, slowly = decoder(data, fetch_offset), decoder(data, fetch_offset)
    records = at_once.read_at_once(256)
    assert offsets(records) == offsets(drain(slowly))
    assert records == drain(decoder(data, fetch_offset))
    assert at_once.next_offset == slowly.next_offset == 60
    assert at_once.slice_bytes == len(data)
    assert (at_once.exhausted, at_once.size_bytes, at_once.next_slice(256)) == (True, 0, None)
    assert at_once.read_at_once(256) == []


def begun(data):
    decoding = decoder(data)
    decoding.next_slice(1)
    return decoding


@pytest.mark.parametrize(
    ("decoding", "count"),  # at most 100 are wanted
    [
        (decoder(w.built(3), value_deserializer=bytes), 3),
        (decoder(w.built(3), aborted=[(9, 0)], read_committed=True), 3),
        (decoder(w.built(90, value=b"v" * 200)), 90),
        (decoder(w.built(101, value=b"")), 101),
        (begun(w.built(5)), 4),
        (decoder(w.built(3, codec=w.GZIP)), 3),
        (BoundedDecoder(2, TP, w.built(3), 0, (), DecodeSettings(), lambda record: None), 2),
    ],
    ids=["deserialized", "beside aborted ones", "long", "too many", "begun", "compressed", "of a range"],
)
def test_what_is_unusual_about_a_piece_leaves_it_to_be_read_slice_by_slice(decoding, count):
    assert decoding.read_at_once(100) == []
    assert sum(map(len, iter(partial(decoding.next_slice, 256), None))) == count


def test_a_piece_that_was_sought_into_is_read_at_once_from_there():
    decoding = decoder(w.built(5))
    assert decoding.skip_to(3)
    assert offsets(decoding.read_at_once(256) or drain(decoding)) == [3, 4]
