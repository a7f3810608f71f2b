"""One request and its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiogroup._core.protocol.framing import RequestHeader
    from aiogroup._core.protocol.schema import Request, Response

__all__ = ["Exchange", "Handler", "Handlers", "Peer"]


class Peer(Protocol):
    """The connection on which a request came."""

    @property
    def node_id(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...

    def answered(self, exchange: Exchange, now_ms: int) -> None:
        """`exchange.response` is set: send it, and go on with the next request."""

    def close(self) -> None:
        """Break the connection. What was not answered is never answered."""


class Exchange:
    """One request, from its arrival to its answer. A handler calls `answer` once, at once or much later."""

    __slots__ = ("answered_at_ms", "arrived_at_ms", "give_up", "header", "number", "peer", "request", "response")

    def __init__(self, number: int, peer: Peer, header: RequestHeader, request: Request[Any], now_ms: int) -> None:
        self.number = number
        """Counts the requests of the whole cluster, from 1."""
        self.peer = peer
        self.header = header
        self.request = request
        self.response: Response | None = None
        self.arrived_at_ms = now_ms
        self.answered_at_ms: int | None = None
        self.give_up: Callable[[], None] | None = None
        """Called when the connection ends before the answer, by handlers that wait for something."""

    @property
    def node_id(self) -> int:
        """The node that was asked."""
        return self.peer.node_id

    @property
    def api(self) -> str:
        """Kafka's name of the request: `Fetch`, `JoinGroup`."""
        return self.request.api_name()

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    def answer(self, response: Response | None, now_ms: int) -> None:
        """Answer. `None`: the client expects no answer (Produce with acks=0). A connection that was closed meanwhile
        gets nothing.
        """
        if self.answered_at_ms is not None:
            raise RuntimeError(f"{self.api} {self.number} is answered twice")
        self.response, self.answered_at_ms = response, now_ms
        if not self.peer.is_closed:
            self.peer.answered(self, now_ms)


Handler = Callable[[Exchange, Any, int], None]
"""Handles one request: `handler(exchange, request, now_ms)`."""


class Handlers(Protocol):
    """A room of the machine that serves some of Kafka's APIs."""

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """Its handlers by request."""
