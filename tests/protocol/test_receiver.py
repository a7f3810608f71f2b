"""Frames come out as they went in, however the bytes are cut; what is none ends the connection, once."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.protocol.receiver import SCRATCH_BYTES, STEP_BYTES, Receiver
from aiogroup.config import FRAME_LIMIT_BYTES
from aiogroup.errors import ProtocolError
from tests.support.effort import examples

SIZES = st.one_of(
    st.integers(4, 40), st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8), st.integers(STEP_BYTES, STEP_BYTES + 70_000)
)


class Taken:
    def __init__(self, *, refuses: bytes = b"") -> None:
        self.frames: list[bytes] = []
        self.ends: list[Exception] = []
        self.refuses = refuses
        self.receiver = Receiver(self.take, self.ends.append)

    def take(self, frame, _apart) -> None:
        if bytes(frame) == self.refuses:
            raise ValueError("refused")
        self.frames.append(bytes(frame))


def framed(*frames: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in frames)


def feed(receiver: Receiver, data: bytes, at_most: int = STEP_BYTES) -> None:
    view = memoryview(data)
    while view:
        room = receiver.get_buffer(-1)
        count = min(len(room), len(view), at_most)
        room[:count] = view[:count]
        view = view[count:]
        receiver.buffer_updated(count)


def filled(size: int, number: int) -> bytes:
    return (number.to_bytes(4, "big") * (size // 4 + 1))[:size]


@settings(deadline=None, max_examples=examples(15))
@given(
    st.lists(SIZES, min_size=1, max_size=5),
    st.lists(st.integers(SCRATCH_BYTES - 5, 2 * STEP_BYTES), min_size=1, max_size=8),
)
def test_however_the_bytes_are_cut(sizes, cuts):
    frames = [filled(size, number) for number, size in enumerate(sizes)]
    data, taken, pos, step = framed(*frames), Taken(), 0, 0
    while pos < len(data):
        size = cuts[step % len(cuts)]
        feed(taken.receiver, data[pos : pos + size])
        pos, step = pos + size, step + 1
    assert taken.frames == frames
    assert not taken.ends


@pytest.mark.parametrize("at_most", range(1, 12))
def test_a_few_bytes_at_a_time(at_most):
    frames = [filled(size, size) for size in (4, 5, 11, 4, 300)]
    taken = Taken()
    feed(taken.receiver, framed(*frames), at_most)
    assert taken.frames == frames


def test_a_long_frame_is_written_where_it_stays():
    """Neither copied nor longer than a step at a time."""
    taken = Taken()
    seen = []
    taken.receiver = Receiver(lambda frame, _apart: seen.append(frame), taken.ends.append)
    size = 3 * STEP_BYTES
    feed(taken.receiver, size.to_bytes(4, "big"))
    tracemalloc.start()
    steps = 0
    while not seen:
        room = taken.receiver.get_buffer(-1)
        assert 0 < len(room) <= STEP_BYTES
        taken.receiver.buffer_updated(len(room))
        steps += 1
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert steps == 3
    assert most < STEP_BYTES // 4
    assert len(seen[0]) == size


@pytest.mark.parametrize("size", [-1, 0, 3, FRAME_LIMIT_BYTES + 1, int.from_bytes(b"HTTP", "big")])
def test_a_size_that_cannot_be_ends_it_before_memory_is_taken(size):
    taken = Taken()
    feed(taken.receiver, framed(b"good") + size.to_bytes(4, "big", signed=True))
    feed(taken.receiver, framed(b"late"))
    assert taken.frames == [b"good"]
    (end,) = taken.ends
    assert isinstance(end, ProtocolError)
    assert str(size) in str(end)


def test_what_a_frame_raises_is_the_end():
    for frames in ([b"good", b"evil", b"late"], [b"good", b"evil" * SCRATCH_BYTES, b"late"]):
        taken = Taken(refuses=frames[1])
        feed(taken.receiver, framed(*frames))
        assert taken.frames == [b"good"]
        assert [str(each) for each in taken.ends] == ["refused"]
        taken.receiver.end(EOFError())
        assert len(taken.ends) == 1
