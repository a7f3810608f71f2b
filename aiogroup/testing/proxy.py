"""A TCP proxy in front of every node of a cluster: it counts requests, and delays, holds, drops, cuts or corrupts them.

It reads frames and headers; a message is decoded only if a rule uses it, or if its answer can tell addresses. There it
replaces those of brokers by its own, so that a client never bypasses it: Metadata, FindCoordinator and DescribeCluster,
and Fetch and Produce, which tell a new leader's (KIP-951).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from aiogroup._core.protocol import RequestHeader, decode_request_header, decode_response, encode_response
from aiogroup._core.protocol.messages import REQUESTS
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConfigError, ProtocolError
from aiogroup.testing.addresses import Teller, teller_of
from aiogroup.testing.frames import Address, ask_nodes, framed, read_frame
from aiogroup.testing.rules import (
    CUT,
    DROPPED,
    Api,
    Damage,
    Exchange,
    Fate,
    Outcome,
    Rule,
    RuleBook,
    api_key,
    corrupted,
)

__all__ = ["Proxy"]

HOST: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 10
FLUSH_SECONDS: Final = 1
MOST_PENDING: Final = 1_000
"""The number of unanswered requests of one connection that are remembered. Answers to older ones pass unchanged."""

_Pending = deque[tuple[RequestHeader, bytes]]


class Proxy:
    """`async with Proxy("localhost:9092") as proxy`: clients connect to `proxy.bootstrap_servers`.

    Rules are made by `delay`, `hold`, `cut`, `drop`, `corrupt` and `rewrite`. Each names the APIs that it applies to
    (none: all of them), and may be bound to one node (`node_id`) and to the next `times` exchanges. Of the rules that
    match, the newest applies. A connection is answered in the order of its requests, so an answer that is delayed
    delays those after it.

    Args:
        bootstrap_servers: some brokers' PLAINTEXT listeners; they are asked for the other nodes.
        nodes: the address of every node by its id, instead of bootstrap servers.
        seed: the seed of the random damage that `corrupt` does.

    Raises:
        ConfigError: neither or both of servers and nodes are given, or one is not an address. ConnectionLostError: from
        `async with`, when no bootstrap server answers.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        nodes: Mapping[int, str] | None = None,
        seed: int = 0,
    ) -> None:
        if (bootstrap_servers is None) is (not nodes):
            raise ConfigError("a proxy needs bootstrap_servers, or the address of each node in nodes; not both")
        self._bootstrap = _addresses(bootstrap_servers) if bootstrap_servers is not None else ()
        self._fixed = {node_id: _addresses(address)[0] for node_id, address in (nodes or {}).items()}
        self._there: dict[int, Address] = {}
        self._here: dict[int, int] = {}
        self._servers: list[asyncio.Server] = []
        self._opening = asyncio.Lock()
        self._tasks: dict[asyncio.Task[Any], int] = {}
        self._ending: set[asyncio.Task[Any]] = set()
        self._book = RuleBook()
        self._counts: Counter[tuple[int, int]] = Counter()
        self._random = Random(seed)  # noqa: S311 (damage must be repeatable)
        self._failure: Exception | None = None
        self._is_closed = False
        self.topic_names: dict[object, str] = {}
        """By topic id, from the Metadata answers that passed."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` for a client that is to go through the proxy."""
        return ",".join(f"{HOST}:{port}" for port in self._here.values())

    def count(self, api: Api | None = None, node_id: int | None = None) -> int:
        """How many requests have arrived: of one API or of all, for one node or for all."""
        key = None if api is None else api_key(api)
        return sum(n for (k, i), n in self._counts.items() if key in (None, k) and node_id in (None, i))

    # Rules.

    def delay(self, *apis: Api, ms: int, node_id: int | None = None, times: int | None = None) -> Rule:
        """Delay answers by `ms` milliseconds."""

        async def act(_: Exchange) -> None:
            await asyncio.sleep(ms / 1000)

        return self._book.add(apis, node_id, times, act)

    def hold(
        self, *apis: Api, until: asyncio.Event | None = None, node_id: int | None = None, times: int | None = None
    ) -> Rule:
        """Hold answers until the event is set, or the rule is removed."""

        async def act(_: Exchange) -> None:
            await _first(rule.removed(), *([until.wait()] if until is not None else []))

        rule = self._book.add(apis, node_id, times, act)
        return rule

    def cut(self, *apis: Api, before: bool = False, node_id: int | None = None, times: int | None = None) -> Rule:
        """Close the connection instead of answering; with `before` the broker never sees the request."""
        return self._book.add(apis, node_id, times, CUT if before else lambda _: CUT)

    def drop(self, *apis: Api, before: bool = False, node_id: int | None = None, times: int | None = None) -> Rule:
        """Send no answer, and keep the connection; with `before` the broker never sees the request."""
        return self._book.add(apis, node_id, times, DROPPED if before else lambda _: DROPPED)

    def corrupt(
        self, *apis: Api, how: Damage | None = None, node_id: int | None = None, times: int | None = None
    ) -> Rule:
        """Corrupt answers.

        "bytes": random bytes after the correlation id. "truncated": a frame with half of the answer. "unfinished": half
        of a frame, then silence. "length": an absurd length. "correlation_id": a wrong one. `None`: any of these.
        """
        return self._book.add(apis, node_id, times, lambda exchange: corrupted(exchange.answered, how, self._random))

    def rewrite(
        self,
        api: Api,
        change: Callable[[Exchange], Any],
        *,
        node_id: int | None = None,
        times: int | None = None,
    ) -> Rule:
        """Answer with the result of `change(exchange)`, which may be a coroutine function.

        It returns a response (say `dataclasses.replace(exchange.response, error_code=25)`), a frame's bytes without its
        size, `Raw(bytes)`, `CUT`, `DROPPED`, or `None` to leave the answer alone. An error that it raises comes out of
        the proxy's `async with`.
        """
        return self._book.add((api,), node_id, times, change)

    def clear(self) -> None:
        """Remove every rule; answers that are held are sent."""
        self._book.clear()

    def disconnect(self, node_id: int | None = None) -> None:
        """Close the connections to a node, or all of them, now."""
        for task, served_id in self._tasks.items():
            if node_id in (None, served_id):
                task.cancel()

    # Life.

    async def __aenter__(self) -> Self:
        nodes = self._fixed or await ask_nodes(self._bootstrap)
        try:
            for node_id, address in nodes.items():
                await self._stand_before(node_id, address)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()
        if self._failure is not None and error is None:
            raise self._failure

    async def _close(self) -> None:
        self._is_closed = True
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # a connection that was just accepted gets its task
        self.disconnect()
        await asyncio.gather(*self._tasks, *self._ending, return_exceptions=True)

    async def _stand_before(self, node_id: int, address: Address) -> int:
        """Our port for this node, opened when the node is new."""
        async with self._opening:
            self._there[node_id] = self._fixed.get(node_id, address)
            if node_id not in self._here and not self._is_closed:
                server = await asyncio.start_server(
                    lambda reader, writer: self._serve(node_id, reader, writer), HOST, 0
                )
                self._servers.append(server)
                self._here[node_id] = server.sockets[0].getsockname()[1]
        return self._here.get(node_id, address[1])

    async def _serve(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = node_id
        writers = [writer]
        try:
            if not self._is_closed:
                async with asyncio.timeout(CONNECT_SECONDS):
                    there_reader, there = await asyncio.open_connection(*self._there[node_id])
                writers.append(there)
                pending: _Pending = deque(maxlen=MOST_PENDING)
                await _first(
                    self._up(node_id, reader, there, pending), self._down(node_id, there_reader, writer, pending)
                )
        except (OSError, EOFError, ProtocolError, asyncio.CancelledError):
            pass  # both sides see only that the connection has ended
        except Exception as error:  # noqa: BLE001 (what a rule raised)
            self._failure = self._failure or error
        finally:
            del self._tasks[task]  # from here on it is not cancelled any more
            self._ending.add(task)
            await self._end(writers)
            self._ending.discard(task)

    async def _end(self, writers: list[asyncio.StreamWriter]) -> None:
        """Close sockets. Bytes that were written are sent first, if the other side reads them."""
        for each in writers:
            each.close()
        closing = asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._is_closed else FLUSH_SECONDS):
                await asyncio.shield(closing)
        for each in writers:
            each.transport.abort()
        await closing

    async def _up(
        self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pending: _Pending
    ) -> None:
        while True:
            frame = await read_frame(reader)
            header = decode_request_header(frame)
            self._counts[header.api_key, node_id] += 1
            rule = self._book.find(header.api_key, node_id, about_requests=True)
            if rule is not None:
                if rule.act is CUT:
                    return
                continue
            # Requests that cannot be decoded are not kept: Produce is long, and without acks it is never answered.
            pending.append((header, frame if header.api_key in REQUESTS else b""))
            writer.write(framed(frame))
            await writer.drain()

    async def _down(
        self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pending: _Pending
    ) -> None:
        while True:
            frame = await read_frame(reader)
            data: bytes | Fate = framed(frame)
            number = int.from_bytes(frame[:4], "big", signed=True)
            while pending:  # answers come in the order of the requests: the older requests have no answer
                header, asked = pending.popleft()
                if header.correlation_id == number:
                    data = await self._judge(Exchange(node_id, header, asked, frame))
                    break
            if data is CUT:
                return
            if isinstance(data, bytes):
                writer.write(data)
                await writer.drain()

    async def _judge(self, exchange: Exchange) -> bytes | Fate:
        """The bytes for the client, or the fate of the exchange."""
        header = exchange.header
        if (teller := teller_of(header.api_key, header.api_version)) is not None:
            exchange.answered = await self._moved(exchange, teller)
        rule = self._book.find(exchange.header.api_key, exchange.node_id, about_requests=False)
        outcome: Outcome = None
        if rule is not None and not isinstance(rule.act, Fate):
            ruled = rule.act(exchange)
            outcome = await ruled if inspect.isawaitable(ruled) else ruled
        return outcome if isinstance(outcome, Fate) else exchange.to_bytes(outcome)

    async def _moved(self, exchange: Exchange, teller: Teller) -> bytes:
        """The same answer with our addresses."""
        header, kind = exchange.header, teller.request_type
        response = decode_response(kind, header.api_version, exchange.answered)[1]
        if kind is MetadataRequest:
            self.topic_names |= {topic.topic_id: topic.name or "" for topic in response.topics}
        ports = {
            teller.id_of(each): await self._stand_before(teller.id_of(each), (each.host, each.port))
            for each in teller.nodes(response)
        }
        if not ports:
            return exchange.answered
        moved = teller.moved(response, HOST, ports)
        return encode_response(kind, moved, header.api_version, header.correlation_id)


def _addresses(servers: str | Sequence[str]) -> tuple[Address, ...]:
    return ConsumerConfig(bootstrap_servers=servers).bootstrap_addresses


async def _first(*works: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of these to end, cancel the others, and raise the error of the first."""
    tasks = [asyncio.ensure_future(work) for work in works]  # noqa: TID251 (no consumer's)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
