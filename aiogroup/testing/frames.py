"""Frames between sockets, and the one request that a proxy makes itself: which nodes the cluster has."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Final

from aiogroup._core.protocol import decode_response, encode_request
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.errors import AiogroupError, ConnectionLostError, ProtocolError

__all__ = ["Address", "ask_nodes", "framed", "read_frame"]

Address = tuple[str, int]

FRAME_LIMIT_BYTES: Final = 256 * 1024 * 1024
ASK_SECONDS: Final = 10
METADATA_VERSION: Final = 5
"""Every broker since Kafka 1.0 supports it."""


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame, without its size.

    Raises:
        ProtocolError: the announced size is not that of a frame. EOFError, OSError: the connection ended.
    """
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not 4 <= size <= FRAME_LIMIT_BYTES:
        raise ProtocolError(f"a frame of {size} bytes was announced: is this TLS? A proxy needs a PLAINTEXT listener")
    return await reader.readexactly(size)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


async def ask_nodes(addresses: Iterable[Address]) -> dict[int, Address]:
    """The cluster's nodes and their addresses, from the first of these servers that answers.

    Raises:
        ConnectionLostError: no server answered.
    """
    failures = []
    for host, port in addresses:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                nodes = await _ask(host, port)
        except (OSError, EOFError, AiogroupError) as error:  # TimeoutError is an OSError
            failures.append(f"{host}:{port}: {type(error).__name__} {error}")
            continue
        if nodes:
            return nodes
        failures.append(f"{host}:{port} knows of no broker")
    raise ConnectionLostError(
        f"no bootstrap server named the nodes ({'; '.join(failures)}): name a PLAINTEXT listener, or pass nodes="
    )


async def _ask(host: str, port: int) -> dict[int, Address]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(framed(encode_request(MetadataRequest(topics=()), METADATA_VERSION, 1, "aiogroup-proxy")))
        _, response = decode_response(MetadataRequest, METADATA_VERSION, await read_frame(reader))
    finally:
        writer.transport.abort()
    return {each.node_id: (each.host, each.port) for each in response.brokers}
