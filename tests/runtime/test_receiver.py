"""Frames come out as they went in, however the bytes are cut; what is none ends the connection, once."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup.config import FRAME_LIMIT_BYTES
from aiogroup.errors import ProtocolError
from aiogroup.runtime.net.receiver import SCRATCH_BYTES, STEP_BYTES, Receiver
from tests.support.effort import examples

SIZES = st.one_of(
    st.integers(4, 40), st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8), st.integers(STEP_BYTES, STEP_BYTES + 70_000)
)


class NoFuture:
    """Of a socket that nobody waits for."""

    is_done = False

    def done(self):
        return self.is_done

    def set_result(self, _result):
        self.is_done = True


class Taken:
    def __init__(self, *, refuses: bytes = b"") -> None:
        self.frames: list[bytes] = []
        self.ends: list[Exception] = []
        self.refuses = refuses
        self.closed = NoFuture()
        self.receiver = Receiver(self.take, self.ends.append, self.closed)

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
    taken.receiver = Receiver(lambda frame, _apart: seen.append(frame), taken.ends.append, taken.closed)
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
        taken.receiver.connection_lost(None)
        assert len(taken.ends) == 1


def test_the_end_of_the_socket_is_told_once():
    taken = Taken()
    feed(taken.receiver, framed(b"good") + (100).to_bytes(4, "big") + b"half")
    assert taken.receiver.eof_received() is None
    assert not taken.closed.done()
    taken.receiver.connection_lost(ConnectionResetError())
    assert taken.closed.done()
    assert [type(each) for each in taken.ends] == [EOFError]
    other = Taken()
    other.receiver.connection_lost(ConnectionResetError())
    assert [type(each) for each in other.ends] == [ConnectionResetError]


@pytest.fixture
def secured(tmp_path):
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.mark.parametrize("is_secure", [False, True])
async def test_on_a_socket_that_a_stream_had_before(secured, is_secure):
    """As aiokafka opens connections: what comes first is read by a StreamReader."""
    frames = [filled(size, size) for size in (10, 3_000_000, 20_000, 4, STEP_BYTES)]
    server_tls, client_tls = secured if is_secure else (None, None)

    async def serve(reader, writer):
        await reader.readexactly(1)
        writer.write(framed(*frames))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls)
    ended = asyncio.get_running_loop().create_future()
    closed = asyncio.get_running_loop().create_future()
    taken: list[bytes] = []
    async with server, asyncio.timeout(20):
        name = {"server_hostname": "localhost"} if is_secure else {}
        port = server.sockets[0].getsockname()[1]
        _reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls, **name)
        receiver = Receiver(lambda frame, _apart: taken.append(bytes(frame)), ended.set_result, closed)
        writer.transport.set_protocol(receiver)
        writer.transport.write(b"!")
        assert isinstance(await ended, EOFError)
        await closed
    assert taken == frames
