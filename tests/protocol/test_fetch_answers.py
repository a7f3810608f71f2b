"""Long records of an answer to Fetch are received apart, and what comes of it is what comes of the whole frame."""

from __future__ import annotations

import platform
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core import native
from aiogroup._core.fetching.asking.answers import standing_alone
from aiogroup._core.native import frames
from aiogroup._core.protocol import receiver as receiving
from aiogroup._core.protocol.constants import FETCH_BY_ID
from aiogroup._core.protocol.framing import decode_response, encode_response
from aiogroup._core.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from aiogroup.errors import ProtocolError
from tests.protocol.protocol_values import value
from tests.protocol.test_receiver import feed, framed
from tests.support.effort import examples

VERSIONS = list(range(FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION + 1))
SPLIT = [each for each in VERSIONS if FetchRequest.is_flexible(each)]
NUMBER = 7
ROOT = Path(__file__).parents[2]


def received(frame, version, *, at_most=2**20):
    """The frame and what is apart of it; another frame follows."""
    taken, ends = [], []
    has_ids = version >= FETCH_BY_ID if FetchRequest.is_flexible(version) else None
    receiver = receiving.Receiver(lambda *each: taken.append(each), ends.append, lambda: has_ids)
    feed(receiver, framed(frame, b"next"), at_most)
    assert not ends
    assert len(taken) == 2
    assert taken[1] == (b"next", {})
    return taken[0]


def answer(*lengths, version=FetchRequest.MAX_VERSION):
    """Records of such lengths, None for null, of one topic's partitions."""
    rng = random.Random(1)
    parts = tuple(
        PartitionData(number, 0, 10, records=None if length is None else rng.randbytes(length))
        for number, length in enumerate(lengths)
    )
    told = FetchResponse(responses=(FetchableTopicResponse(partitions=parts),), session_id=3)
    return encode_response(FetchRequest, told, version, NUMBER)


def records_of(frame, apart, version=FetchRequest.MAX_VERSION):
    number, told = decode_response(FetchRequest, version, frame, apart)
    assert number == NUMBER
    return [each.records for topic in told.responses for each in topic.partitions]


LONG = receiving.APART_BYTES


@pytest.mark.parametrize("version", SPLIT)
def test_long_records_are_apart_and_need_no_copy(version):
    frame = answer(LONG, 300_000, None, 0, 2 * LONG, version=version)
    rest, apart = received(frame, version)
    records = records_of(rest, apart, version)
    assert [None if each is None else bytes(each) for each in records] == [
        None if each is None else bytes(each) for each in records_of(frame, {}, version)
    ]
    assert len(rest) < 300
    for each in (records[0], records[1], records[4]):
        assert standing_alone(each) is each
        assert len(each.obj) == len(each)


def test_after_short_records_the_rest_comes_in_one_piece():
    frame = answer(LONG, LONG - 1, LONG)
    rest, apart = received(frame, FetchRequest.MAX_VERSION)
    assert len(apart) == 1
    first, second, third = records_of(rest, apart)
    assert [len(each) for each in (first, second, third)] == [LONG, LONG - 1, LONG]
    assert standing_alone(first) is first
    assert isinstance(standing_alone(second), bytes)
    assert records_of(frame, {}) == [first, second, third]


def test_an_answer_to_another_request_or_an_old_version_comes_in_one_piece():
    old = max(set(VERSIONS) - set(SPLIT))
    frame = answer(LONG, version=old)
    assert received(frame, old) == (frame, {})


def test_memory_is_not_taken_for_what_cannot_come():
    frame = bytearray(answer(LONG, 20))
    at = frame.index(random.Random(1).randbytes(LONG)[:8]) - 1
    frame[at] = 0x7F  # the last byte of the length: two hundred megabytes
    rest, apart = received(bytes(frame), FetchRequest.MAX_VERSION)
    assert (rest, apart) == (frame, {})
    with pytest.raises(ProtocolError):
        records_of(rest, apart)


def test_records_that_no_field_names_are_an_error():
    frame = answer(LONG)
    rest, apart = received(frame, FetchRequest.MAX_VERSION)
    with pytest.raises(ProtocolError):
        records_of(rest, apart | {0: memoryview(b"x")})
    [(pos, records)] = apart.items()
    with pytest.raises(ProtocolError, match="were announced"):
        records_of(rest, {pos: records[1:]})


def outcome(frame, version, apart):
    try:
        return decode_response(FetchRequest, version, frame, apart)
    except ProtocolError:
        return "refused"


@settings(deadline=None, max_examples=examples(60))
@given(
    st.integers(0, 2**32),
    st.sampled_from(SPLIT),
    st.integers(1, 130),
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
)
def test_any_answer_damaged_or_not_is_what_it_is_as_a_whole(seed, version, least, at_most, damages):
    frame = bytearray(
        encode_response(FetchRequest, value(random.Random(seed), FetchResponse, version), version, NUMBER)
    )
    for at, byte in damages:
        frame[at % len(frame)] = byte
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receiving, "APART_BYTES", least)
        patch.setattr(receiving, "SCRATCH_BYTES", 24)
        rest, apart = received(bytes(frame), version, at_most=at_most)
    assert len(rest) + sum(map(len, apart.values())) == len(frame)
    assert outcome(rest, version, apart) == outcome(frame, version, {})


@pytest.mark.skipif(not native.IS_COMPILED, reason="nothing to compare: no compiler was there")
@settings(deadline=None, max_examples=examples(100))
@given(st.integers(0, 2**32), st.sampled_from(SPLIT), st.data())
def test_c_and_python_find_the_same(seed, version, data):
    rng = random.Random(seed)
    frame = bytearray(encode_response(FetchRequest, value(rng, FetchResponse, version), version, NUMBER))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[rng.randrange(len(frame))] = rng.randrange(256)
    place = frames.AT_START
    cuts = sorted(rng.randrange(len(frame) + 1) for _ in range(4))
    for end in (*cuts, len(frame)):
        while True:
            found = native.next_records(frame[:end], place, version >= FETCH_BY_ID)
            assert found == frames.next_records(frame[:end], place, version >= FETCH_BY_ID)
            place, length = found
            if not length or place[0] + length > end:
                break
            place = (place[0] + length, *place[1:])
        if length:
            break


FAULTS = """
import resource
from tests.protocol.test_fetch_answers import answer, received

frame, kept = answer(*[1 << 20] * 4), []
for number in range(60):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [*kept[-1:], received(frame, 17)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc has other habits")
def test_the_pages_of_one_answer_are_used_again_by_the_next():
    """Two answers of 4 MiB are there at a time: 51,200 pages come, and hardly one of them is a new one."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) < 2_000
