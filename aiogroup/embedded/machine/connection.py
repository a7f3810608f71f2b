"""One connection to a node, without a socket: bytes go in, buffers come out. It holds Kafka's rule: one request at a
time, answers in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.gate import encoded

if TYPE_CHECKING:
    from aiogroup.embedded.machine.faults.gate import Gate
    from aiogroup.embedded.machine.nodes import Node

__all__ = ["Buffer", "Connection", "Owner", "Ranges"]

Buffer = bytes | bytearray | memoryview
Ranges = Mapping[type[Request[Any]], tuple[int, int]]
SIZE_BYTES = 4


class Owner(Protocol):
    """What a connection tells the cluster."""

    def advance(self, now_ms: int, /) -> None:
        """Do what is due before this instant's input."""

    def on_frame(self, connection: Connection, /) -> None:
        """A whole request has arrived, and none is being handled."""

    def work(self, /) -> None:
        """Handle the requests that have arrived."""

    def on_answer(self, exchange: Exchange, /) -> None: ...

    def on_output(self, connection: Connection, /) -> None:
        """There are bytes to send, or the connection reads on, or it has to be closed."""

    def on_closed(self, connection: Connection, /) -> None:
        """The connection was closed by either end. Called twice if both ends close it."""

    def on_garbage(self, connection: Connection, what: str, /) -> None: ...

    def gate_of(self, connection: Connection, /) -> Gate:
        """The gate through which rules act on the connection's answers."""


class Connection:
    """Made by `Cluster.connect`."""

    def __init__(self, owner: Owner, node: Node, number: int, max_frame_bytes: int) -> None:
        self.node = node
        self.number = number
        self.is_closed = False
        self.exchange: Exchange | None = None
        """The request that is being handled."""
        self._owner = owner
        self._max_frame_bytes = max_frame_bytes
        self._is_writable = True
        self._is_waiting = False  # a whole frame has arrived, and the owner knows it
        self._data = memoryview(b"")
        self._position = 0  # in `_data`: where the next frame begins
        self._more: list[Buffer] = []  # what came after `_data`
        self._more_bytes = 0
        self._output: list[Buffer] = []
        self._gate = owner.gate_of(self)
        self._is_muted = False  # requests of a throttled client are not handled

    @property
    def node_id(self) -> int:
        return self.node.node_id

    # Input.

    @property
    def input_bytes(self) -> int:
        """The bytes that have arrived and were not handled yet."""
        return len(self._data) - self._position + self._more_bytes

    @property
    def wants_input(self) -> bool:
        """Whether the transport should read on. While a request is handled it reads once more, to learn whether the
        peer has gone; these bytes are kept here until the answer is sent.
        """
        return not self.is_closed and (self._is_free or not self.input_bytes)

    @property
    def _is_free(self) -> bool:
        return (
            self.exchange is None
            and not (self._is_waiting or self._is_muted or self._gate.is_full)
            and self._is_writable
            and not self.node.is_paused
        )

    def receive(self, data: Buffer, now_ms: int) -> None:
        """Take bytes that came. They never raise: bytes that are no request close the connection, as in Kafka.

        `data` is kept as it is, and must not change.
        """
        self._owner.advance(now_ms)
        if self.is_closed:
            return
        self._more.append(data)
        self._more_bytes += len(data)
        self.look()
        self._owner.work()

    def look(self) -> None:
        """Check whether the next request has arrived and may be handled."""
        if self.is_closed or not self._is_free or self.input_bytes < SIZE_BYTES:
            return
        if len(self._data) - self._position < SIZE_BYTES:
            self._join()
        size = int.from_bytes(self._data[self._position : self._position + SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= self._max_frame_bytes:
            self._owner.on_garbage(self, f"a frame of {size} bytes")
        elif self.input_bytes >= SIZE_BYTES + size:
            self._is_waiting = True
            self._owner.on_frame(self)

    def go_on(self) -> None:
        """The node works again: handle the next request, or read the rest of one that has arrived in part."""
        self._owner.on_output(self)
        self.look()

    def _join(self) -> None:
        self._data = memoryview(b"".join((self._data[self._position :], *self._more)))
        self._position = self._more_bytes = 0
        self._more.clear()

    def next_frame(self) -> memoryview:
        """The request that `on_frame` has announced, without its size."""
        self._is_waiting = False
        at = self._position
        if len(self._data) - at < SIZE_BYTES:
            self._join()
            at = 0
        end = at + SIZE_BYTES + int.from_bytes(self._data[at : at + SIZE_BYTES], "big")
        if len(self._data) < end:
            end -= at
            at = 0
            self._join()
        frame = self._data[at + SIZE_BYTES : end]
        self._position = end
        if end == len(self._data) and not self._more:
            self._data, self._position = memoryview(b""), 0
        return frame

    # Output.

    def answered(self, exchange: Exchange, _now_ms: int) -> None:
        """Send the answer, and look for the next request. The owner handles it only after the current one: a handler
        that answers several connections must not be interrupted by their next requests.
        """
        self.exchange = None
        response = exchange.response
        if response is not None and not self._gate.is_open:
            self._gate.put(exchange)
        elif response is not None:
            self._output += encoded(exchange, response)
        self._owner.on_answer(exchange)
        self._owner.on_output(self)
        self.look()

    def pass_over(self, *, is_cut: bool) -> None:
        """Skip the request: the connection breaks, or goes on with the next request."""
        self.exchange = None
        if is_cut:
            self.close()
        else:
            self._owner.on_output(self)
            self.look()

    def send(self, buffers: list[Buffer]) -> None:
        """Send an answer that was held up; the next request may be handled."""
        self._output += buffers
        self._owner.on_output(self)
        self.look()

    def set_muted(self, is_muted: bool) -> None:
        """Stop handling requests, or go on."""
        self._is_muted = is_muted
        self._owner.on_output(self)
        self.look()

    def take_output(self) -> list[Buffer]:
        output, self._output = self._output, []
        return output

    def set_writable(self, is_writable: bool, now_ms: int) -> None:
        """The transport's own buffer is full, or has room again. While it is full no request is begun."""
        self._owner.advance(now_ms)
        self._is_writable = is_writable
        self._owner.on_output(self)
        self.look()
        self._owner.work()

    # The end.

    def close(self) -> None:
        """Break the connection: what was not answered is never answered."""
        if not self.is_closed:
            self.is_closed = True
            self._forget()
            self._owner.on_closed(self)
            self._owner.on_output(self)

    def lost(self, now_ms: int) -> None:
        """The peer has closed the connection, or it broke."""
        self._owner.advance(now_ms)
        self.is_closed = True
        self._forget()
        self._owner.on_closed(self)
        self._owner.work()

    def _forget(self) -> None:
        if self.exchange is not None and self.exchange.give_up is not None:
            self.exchange.give_up()
        self._data, self._position = memoryview(b""), 0
        self._more.clear()
        self._more_bytes = 0
