"""A TCP proxy in front of every node of a cluster that can count, delay, rewrite, spoil and cut answers.

It knows frames and headers; only what a rule asks for is decoded. The addresses in Metadata and FindCoordinator
answers are its own, so that a client stays behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from aiogroup.devkafka.ports import HOST
from aiogroup.protocol import decode_request, decode_request_header, decode_response, encode_response
from aiogroup.protocol.messages import REQUESTS
from aiogroup.protocol.messages.fetch import FetchRequest
from aiogroup.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiogroup.devkafka import Cluster
    from aiogroup.protocol import Request, RequestHeader, Response

    Rule = Callable[["Exchange"], object]

CUT = object()
"""What a rule returns to have the connection closed instead of answered."""


@dataclasses.dataclass(slots=True)
class Exchange:
    """One answer on its way; `request` and `response` are decoded when looked at."""

    node_id: int
    header: RequestHeader
    asked: bytes
    answered: bytes
    kind: type[Request[Any]]

    @property
    def request(self) -> Any:
        return decode_request(self.asked)[1]

    @property
    def response(self) -> Any:
        return decode_response(self.kind, self.header.api_version, self.answered)[1]

    def encode(self, response: Response) -> bytes:
        return encode_response(self.kind, response, self.header.api_version, self.header.correlation_id)


class Proxy:
    """`async with Proxy(cluster) as proxy`: connect to `proxy.bootstrap_servers`.

    `counts[Kind]` and `counts[Kind, node_id]` count requests. `rules[Kind]` is called with each answer of that kind
    and returns a response, a frame's bytes (without its size), `(bytes,)` to be sent as they are, `CUT`, or `None`
    to leave the answer alone; it may be a coroutine, which holds the answer up.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._ports = {node.node_id: node.port for node in cluster.nodes}
        self._servers: dict[int, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._here: dict[int, int] = {}
        self.counts: Counter[object] = Counter()
        self.rules: dict[type[Request[Any]], Rule] = {}
        self.topic_names: dict[object, str] = {}  # by id, learned from the Metadata answers that passed

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._here.values())

    def fail_partitions(self, tp: tuple[str, int], code: int, *, node_id: int | None = None) -> None:
        """Answer each fetch of this partition with an error, from every node or from one."""

        def spoil(exchange: Exchange) -> object:
            if node_id is not None and exchange.node_id != node_id:
                return None
            response = exchange.response
            topics = []
            for topic in response.responses:
                name = topic.topic or self.topic_names.get(topic.topic_id, "")
                topics.append(
                    dataclasses.replace(
                        topic,
                        partitions=tuple(
                            dataclasses.replace(each, error_code=code, records=b"", high_watermark=-1)
                            if (name, each.partition_index) == tuple(tp)
                            else each
                            for each in topic.partitions
                        ),
                    )
                )
            return dataclasses.replace(response, responses=tuple(topics))

        self.rules[FetchRequest] = spoil

    async def __aenter__(self) -> Self:
        for node_id in self._ports:
            server = await asyncio.start_server(
                lambda reader, writer, node_id=node_id: self._serve(node_id, reader, writer), HOST, 0
            )
            self._servers[node_id] = server
            self._here[node_id] = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there = None
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            try:
                there_reader, there = await asyncio.open_connection(HOST, self._ports[node_id])
                pending: dict[int, tuple[RequestHeader, bytes]] = {}
                up = asyncio.ensure_future(self._up(node_id, reader, there, pending))
                down = asyncio.ensure_future(self._down(node_id, there_reader, writer, pending))
                try:
                    await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    up.cancel()
                    down.cancel()
                    await asyncio.gather(up, down, return_exceptions=True)
            finally:
                for each in (writer, there):
                    if each is not None:
                        each.close()
        self._tasks.discard(task)

    async def _up(
        self,
        node_id: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pending: dict[int, tuple[RequestHeader, bytes]],
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            header = decode_request_header(frame)
            kind = REQUESTS.get(header.api_key)
            if kind is not None:
                self.counts[kind] += 1
                self.counts[kind, node_id] += 1
            pending[header.correlation_id] = (header, frame)
            writer.write(struct.pack(">i", len(frame)) + frame)
            await writer.drain()

    async def _down(
        self,
        node_id: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pending: dict[int, tuple[RequestHeader, bytes]],
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            header, asked = pending.pop(int.from_bytes(frame[:4], "big"))
            kind = REQUESTS.get(header.api_key)
            out: object = frame
            # A client's first ApiVersions may be of a version we do not decode: only what is wanted is.
            if kind is not None:
                exchange = Exchange(node_id, header, asked, frame, kind)
                if kind in (MetadataRequest, FindCoordinatorRequest):
                    frame = out = exchange.answered = exchange.encode(self._moved(exchange.response))
                rule = self.rules.get(kind)
                if rule is not None:
                    ruled = rule(exchange)
                    if inspect.isawaitable(ruled):
                        ruled = await ruled
                    out = frame if ruled is None else ruled
                if out is CUT:
                    return
                if not isinstance(out, bytes | tuple):
                    out = exchange.encode(out)  # type: ignore[arg-type]
            raw = out[0] if isinstance(out, tuple) else struct.pack(">i", len(out)) + out  # type: ignore[arg-type]
            writer.write(raw)
            await writer.drain()

    def _moved(self, response: Any) -> Any:
        """The same answer with our addresses."""
        if hasattr(response, "coordinators"):
            return dataclasses.replace(
                response,
                coordinators=tuple(
                    dataclasses.replace(each, port=self._here.get(each.node_id, each.port))
                    for each in response.coordinators
                ),
            )
        self.topic_names |= {topic.topic_id: topic.name or "" for topic in response.topics}
        return dataclasses.replace(
            response,
            brokers=tuple(
                dataclasses.replace(each, port=self._here.get(each.node_id, each.port)) for each in response.brokers
            ),
        )


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)
