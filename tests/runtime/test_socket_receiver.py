"""The receiver under asyncio's transports: how the socket ends, and what it gets after a stream had it."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from aiogroup._core.protocol.receiver import STEP_BYTES
from aiogroup._runtime.net.connection import SocketReceiver
from tests.protocol.test_receiver import feed, filled, framed


async def test_the_end_of_the_socket_is_reported_once():
    frames: list[bytes] = []
    ends: list[Exception] = []
    closed = asyncio.get_running_loop().create_future()
    receiver = SocketReceiver(closed, lambda frame, _apart: frames.append(frame), ends.append)
    feed(receiver, framed(b"good") + (100).to_bytes(4, "big") + b"half")
    assert receiver.eof_received() is None
    assert not closed.done()
    receiver.connection_lost(ConnectionResetError())
    assert closed.done()
    assert [type(each) for each in ends] == [EOFError]
    assert frames == [b"good"]


async def test_what_ended_the_socket_is_reported():
    ends: list[Exception] = []
    receiver = SocketReceiver(asyncio.get_running_loop().create_future(), lambda *_: None, ends.append)
    receiver.connection_lost(ConnectionResetError())
    assert [type(each) for each in ends] == [ConnectionResetError]


@pytest.fixture
def secured(tmp_path):
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.mark.parametrize("is_secure", [False, True])
def test_on_a_socket_that_a_stream_had_before(secured, is_secure):
    """As aiokafka opens connections: what comes first is read by a StreamReader. Sockets need the real clock."""
    asyncio.run(receive(secured, is_secure))


async def receive(secured, is_secure):
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
        receiver = SocketReceiver(closed, lambda frame, _apart: taken.append(bytes(frame)), ended.set_result)
        writer.transport.set_protocol(receiver)
        writer.transport.write(b"!")
        assert isinstance(await ended, EOFError)
        await closed
    assert taken == frames
