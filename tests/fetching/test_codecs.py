"""What others write that our decompressor alone would refuse."""

from __future__ import annotations

import gzip

import cramjam
import pytest

from aiogroup._core.fetching.records.codecs import CodecError, inflate, with_header_checksum
from aiogroup._core.fetching.records.decode import DecodeSettings, PartitionDecoder
from aiogroup.structs import TopicPartition
from tests.fetching import wire_batches as w

TEXT = b"aiogroup" * 10_000


@pytest.mark.parametrize("behind", [b"\0", b"\0" * 700, b"no gzip", b"\x1f"])
@pytest.mark.parametrize("members", [1, 3])
def test_what_follows_gzip_and_is_none_is_passed_over(behind, members):
    packed = memoryview(gzip.compress(TEXT) * members + behind)
    assert bytes(inflate(w.GZIP, packed, 1 << 20)) == TEXT * members


def test_gzip_that_is_damaged_cut_off_or_too_long_is_refused_with_zeros_behind_it_too():
    packed = gzip.compress(TEXT)
    with pytest.raises(CodecError, match="more than max_batch_bytes=79999"):
        inflate(w.GZIP, memoryview(packed + b"\0"), len(TEXT) - 1)
    for damaged in (packed[:-9], packed[:40] + b"\0" * 40, packed + packed[:-9], b"\0" * 40, b""):
        with pytest.raises(CodecError, match="damaged compressed bytes"):
            inflate(w.GZIP, memoryview(damaged), 1 << 20)


def _lz4(*, has_size):
    return bytearray(cramjam.lz4.compress(TEXT) if has_size else w.ENCODE[w.LZ4](TEXT))


@pytest.mark.parametrize("has_size", [True, False])
def test_the_checksum_of_an_lz4_header_can_be_mended(has_size):
    good = _lz4(has_size=has_size)
    at = 4 + 2 + (8 if good[4] & 8 else 0)
    assert with_header_checksum(memoryview(good)) == good
    wrong = good.copy()
    wrong[at] ^= 0x5A
    with pytest.raises(CodecError, match="damaged"):
        inflate(w.LZ4, memoryview(wrong), 1 << 20)
    assert with_header_checksum(memoryview(wrong)) == good


@pytest.mark.parametrize("size", range(8))
def test_a_header_of_lz4_that_is_cut_off_is_left_to_the_decompressor(size):
    packed = memoryview(_lz4(has_size=False)[:size])
    assert with_header_checksum(packed) == packed


@pytest.mark.parametrize(("magic", "is_read"), [(0, True), (1, False)])
def test_only_messages_of_format_0_may_have_a_wrong_checksum_of_their_header(magic, is_read, monkeypatch):
    """Kafka's producers before 0.10."""

    def old(data):
        packed = bytearray(cramjam.lz4.compress(data))
        packed[4 + 2 + (8 if packed[4] & 8 else 0)] ^= 0x5A
        return packed

    monkeypatch.setitem(w.ENCODE, w.LZ4, old)
    inner = w.message(0, b"k", b"one", magic=magic) + w.message(1, b"k", b"two", magic=magic)
    data = memoryview(w.wrapper(1, inner, w.LZ4, magic=magic))
    decoder = PartitionDecoder(TopicPartition("t", 0), data, 0, (), DecodeSettings(), lambda record: None)
    if is_read:
        assert [each.value for each in decoder.next_slice(10)] == [b"one", b"two"]
    else:
        with pytest.raises(Exception, match="damaged compressed bytes"):
            decoder.next_slice(10)


@pytest.mark.parametrize("codec", [w.PLAIN, w.GZIP, w.SNAPPY, w.LZ4, w.ZSTD])
def test_a_batch_above_the_limit_names_the_setting(codec):
    data = memoryview(w.batch([w.Sent(0, b"k", bytes(300_000))], codec=codec))

    def decode(most):
        settings = DecodeSettings(max_batch_bytes=most)
        decoder = PartitionDecoder(TopicPartition("t", 0), data, 0, (), settings, lambda record: None)
        return decoder.next_slice(10)

    with pytest.raises(Exception, match="more than max_batch_bytes=200000"):
        decode(200_000)
    assert len(decode(400_000)[0].value) == 300_000
