"""A broker of a few lines: what a proxy's tests need to stand before, and no more."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager, suppress

from aiogroup._core.protocol import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from aiogroup._core.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

HOST = "127.0.0.1"


class LonelyBroker:
    """Answers Metadata, FindCoordinator and Heartbeat (the throttle time counts up); keeps what it was asked."""

    def __init__(self, node_id=1):
        self.node_id = node_id
        self.asked = []
        self.brokers = {}  # by id, what Metadata names; itself in any case
        self._connections = set()

    @property
    def connections_count(self):
        return len(self._connections)

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.brokers[self.node_id] = self.port
        return self

    async def __aexit__(self, *_):
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what was aborted is closed a turn later

    @property
    def address(self):
        return f"{HOST}:{self.port}"

    async def _serve(self, reader, writer):
        self._connections.add(asyncio.current_task())
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header = decode_request_header(frame)
                if header.api_key == 0:  # Produce without acks
                    self.asked.append(frame)
                    continue
                header, request = decode_request(frame)
                self.asked.append(request)
                answer = encode_response(
                    type(request), self._answer(request), header.api_version, header.correlation_id
                )
                writer.write(struct.pack(">i", len(answer)) + answer)
        except (EOFError, OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(asyncio.current_task())
            writer.transport.abort()

    def _answer(self, request):
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(throttle_time_ms=len(self.asked))
        if isinstance(request, MetadataRequest):
            named = [MetadataResponseBroker(node_id, HOST, port) for node_id, port in self.brokers.items()]
            return MetadataResponse(brokers=tuple(named))
        found = Coordinator(key="", node_id=self.node_id, host=HOST, port=self.port, error_code=0)
        return FindCoordinatorResponse(coordinators=(found,))


class Client:
    """One connection; each request has the next correlation id."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.correlation_id = 0

    def send(self, request, version):
        self.correlation_id += 1
        self.send_raw(encode_request(request, version, self.correlation_id, "test"))

    def send_raw(self, frame):
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def read(self):
        async with asyncio.timeout(5):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ask(self, request, version):
        self.send(request, version)
        number, response = decode_response(type(request), version, await self.read())
        assert number == self.correlation_id
        return response

    async def ended(self):
        """The other side closed the connection, without a word."""
        async with asyncio.timeout(5):
            return await self.reader.read() == b""


@asynccontextmanager
async def connected(address):
    host, port = address.split(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.writer.transport.abort()
        with suppress(OSError):
            await client.writer.wait_closed()
