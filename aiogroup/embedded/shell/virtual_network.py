"""The machine on connections in memory, in virtual time, where messages can be late, held up, blocked or cut. Bytes of
one connection arrive in order. Nothing is promised between two connections. There are no tasks and no sockets: the
clients' protocols are called back.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.shell.thread import Place
from aiogroup.embedded.shell.virtual_loop import OTHER_LOOP, Clock, VirtualLoop
from aiogroup.embedded.shell.virtual_time import virtual_time

if TYPE_CHECKING:
    from aiogroup.embedded.machine.cluster import Cluster
    from aiogroup.embedded.machine.connection import Connection
    from aiogroup.embedded.machine.nodes import Node

__all__ = ["InVirtualLoop", "VirtualLine", "VirtualNetwork"]

TICK_S = 1e-6
"""The least distance between two messages of a connection: timers of the same instant may fire in any order."""
FIRST_PORT = 9_092
NODES_OF_A_BROKER = 100
"""A broker's nodes get consecutive ports. The next broker in the same loop starts this many ports higher."""
HOST = "node{}.virtual.invalid"
"""No resolver knows this name, so code outside of the loop cannot reach another broker by mistake (RFC 2606)."""
SIZE_BYTES = 4


class Draw(Protocol):
    """The source of delays: a `random.Random`."""

    def randrange(self, start: int, stop: int, /) -> int: ...


class VirtualLine(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(
        self,
        network: VirtualNetwork,
        client: Hashable,
        connection: Connection,
        protocol: asyncio.BaseProtocol,
    ) -> None:
        super().__init__()
        self.client = client
        """The client that connected, by the key that the network uses to tell clients apart."""
        self.connection = connection
        self.context = contextvars.copy_context()
        self.up_at = self.down_at = 0.0
        """When the last bytes that are under way arrive, in each direction."""
        self.unanswered: dict[int, int] = {}
        """The requests without an answer yet: API keys by correlation id, in order."""
        self.is_cut = False
        """Nothing arrives any more, in either direction."""
        self._is_closed = False
        self._is_paused = False
        self._network = network
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._unread: deque[memoryview] = deque()

    @property
    def node(self) -> Node:
        return self.connection.node

    @property
    def is_open(self) -> bool:
        return not self.is_cut and not self._is_closed

    # asyncio's side.

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        return (self.node.host, self.node.port) if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send one request, or several whole ones. `write` never blocks, because buffers are unbounded here."""
        if not self._is_closed:
            self._network.send_up(self, bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: buffers are unbounded here."""

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closed

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._network.loop.call_soon(self._deliver, context=self.context)

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Close the connection. What was written before still arrives."""
        if not self._is_closed:
            self._is_closed = True
            self._network.on_close(self)
            self._network.loop.call_soon(self._protocol.connection_lost, None, context=self.context)

    abort = close

    # The network's side.

    def arrive(self, data: bytes) -> None:
        """One answer has come."""
        if not self._is_closed and not self.is_cut:
            self.key_of(data, is_here=True)
            self._unread.append(memoryview(data))
            self._deliver()

    def key_of(self, answer: bytes, *, is_here: bool = False) -> int:
        """The API key of the request that this answers, -1 if that is not known. If the answer `is_here`, older
        requests are dropped: answers come in order, so theirs will not come any more.
        """
        unanswered, number = self.unanswered, int.from_bytes(answer[4:8], "big")
        key = unanswered.get(number, -1)
        if is_here and key >= 0:
            while (first := next(iter(unanswered))) != number:
                del unanswered[first]
            del unanswered[number]
        return key

    def _deliver(self) -> None:
        while self._unread and not self._is_paused and not self._is_closed:
            if self._is_buffered:
                self._fill(self._unread.popleft())
            else:
                self._protocol.data_received(bytes(self._unread.popleft()))  # type: ignore[attr-defined]

    def _fill(self, data: memoryview) -> None:
        while data and not self._is_closed:
            if self._is_paused or not self._is_buffered:
                self._unread.appendleft(data)
                return
            protocol: Any = self._protocol
            room = protocol.get_buffer(-1)
            length = min(len(room), len(data))
            room[:length] = data[:length]
            data = data[length:]
            protocol.buffer_updated(length)

    def end(self, error: Exception | None) -> None:
        """The connection is broken, or, without an error, the broker has closed it."""
        if self._is_closed:
            return
        if error is None:
            self._protocol.eof_received()  # type: ignore[attr-defined]
        if not self._is_closed:
            self._is_closed = True
            self._protocol.connection_lost(error)


class VirtualNetwork:
    """The connections of a cluster, on one virtual loop.

    Every message takes 1 to `jitter_ms` milliseconds. A subclass can tell clients apart (`client`), so that faults hit
    the connections of one client.

    Args:
        cluster: the machine.
        loop: the loop, whose clock is the cluster's clock.
        draw: the source of delays.
    """

    def __init__(self, cluster: Cluster, loop: VirtualLoop, draw: Draw) -> None:
        self.cluster = cluster
        self.loop = loop
        self.draw = draw
        self.jitter_ms = 1
        self.lines: dict[int, VirtualLine] = {}
        """The open lines, by the number of their connection."""
        self.blocked_until: dict[tuple[Hashable, int], float] = {}
        """By client and node: the time before which nothing passes."""
        self.outside = contextvars.Context()
        """Where the brokers' callbacks run: in no client's context."""
        self._held: dict[tuple[Hashable, int, bool], tuple[int, Callable[[], None]]] = {}
        self._nodes: dict[tuple[str, int], Node] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._told: list[str] = []

    # Its life.

    def open(self) -> None:
        """Give the nodes their addresses, and let the loop's clients reach them. No two brokers of a loop have the same
        address, not even one after the other, unless a port was asked for.

        Raises:
            BrokerRefusal: another broker of this loop has the port that was asked for.
        """
        first = FIRST_PORT + NODES_OF_A_BROKER * next(self.loop.network_numbers)
        for number, node in enumerate(self.cluster.nodes):
            host, port = HOST.format(node.node_id), node.port or first + number
            if any(each.has(host, port) for each in self.loop.networks):
                raise BrokerRefusal(f"port {port} is another broker's in this loop: without `port` it gets one")
            node.host, node.port = host, port
            self._nodes[host, port] = node
        self.loop.networks.append(self)

    def close(self) -> None:
        """Break all connections at once."""
        self.loop.networks.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for line in list(self.lines.values()):
            self.lines.pop(line.connection.number, None)
            line.is_cut = True
            if not self.loop.is_closed():  # there is nobody to tell otherwise
                self.loop.call_soon(line.end, None, context=line.context)

    def has(self, host: str, port: int) -> bool:
        return (host, port) in self._nodes

    def addresses(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._nodes)

    def refused(self, what: str) -> None:
        if what not in self._told:  # clients try again and again
            self._told.append(what)
            self.cluster.troubles.note("unreachable", what, self.now_ms())

    def now_ms(self) -> int:
        return self.loop.now_ms()

    def client(self) -> Hashable:
        """The key of the client that connects now."""
        return None

    # What passes.

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        client, node = self.client(), self._nodes[host, port]
        await asyncio.sleep(self.arrival(client, node, 0.0) - self.loop.time())
        if self not in self.loop.networks:
            raise ConnectionRefusedError(111, f"the embedded broker at {host}:{port} is closed")
        try:
            connection = self.cluster.connect(node.node_id, self.now_ms())
        except BrokerRefusal:
            raise ConnectionRefusedError(111, f"node {node.node_id} at {host}:{port} is down") from None
        protocol = protocol_factory()
        line = VirtualLine(self, client, connection, protocol)
        self.lines[connection.number] = line
        protocol.connection_made(line)
        self.flush()
        return line, protocol

    def delay_ms(self) -> int:
        """How long the next message takes."""
        return self.draw.randrange(1, self.jitter_ms + 1)

    def arrival(self, client: Hashable, node: Node, not_before: float) -> float:
        """When a message that is sent now arrives: after the earlier ones, and not before a block ends."""
        arrives_at = self.loop.time() + self.delay_ms() / 1000
        return max(arrives_at, not_before + TICK_S, self.blocked_until.get((client, node.node_id), 0.0))

    def send_up(self, line: VirtualLine, data: bytes) -> None:
        """A client has written, usually one request."""
        key = int.from_bytes(data[4:6], "big")
        line.unanswered[int.from_bytes(data[8:12], "big")] = key
        line.up_at = self.arrival(line.client, line.node, line.up_at) + self._held_s(line, key, is_up=True)
        self.arrives(line, data)

    def arrives(self, line: VirtualLine, data: bytes) -> None:
        """Let bytes arrive at the broker at `line.up_at`."""
        self.loop.call_at(line.up_at, self._take, line, data, context=self.outside)

    def _take(self, line: VirtualLine, data: bytes) -> None:
        if not line.is_cut:
            line.connection.receive(data, self.now_ms())
            self.flush()

    def send_down(self, line: VirtualLine, answer: bytes) -> None:
        """A broker has sent one answer."""
        key = line.key_of(answer)
        line.down_at = self.arrival(line.client, line.node, line.down_at) + self._held_s(line, key, is_up=False)
        self.loop.call_at(line.down_at, line.arrive, answer, context=line.context)

    def _held_s(self, line: VirtualLine, key: int, *, is_up: bool) -> float:
        if not self._held:
            return 0.0
        held = self._held.pop((line.client, key, is_up), None)
        if held is None:
            return 0.0
        self.loop.call_later(0.001, held[1], context=self.outside)
        return held[0] / 1000

    def on_close(self, line: VirtualLine) -> None:
        """A client has closed its end. The broker learns it after it got what was written before."""
        line.up_at = max(self.loop.time(), line.up_at) + TICK_S
        self.loop.call_at(line.up_at, self._lose, line, context=self.outside)
        self.lines.pop(line.connection.number, None)

    def _lose(self, line: VirtualLine) -> None:
        if not line.is_cut:
            line.connection.lost(self.now_ms())
            self.flush()

    # The machine.

    def control(self, act: Callable[[int], None]) -> None:
        """Change something in the machine. What follows from it is sent with the next `flush`."""
        self.cluster.control(act, self.now_ms())

    def open_doors(self) -> None:
        """Do nothing: whether a node is up is checked when a client connects."""

    def flush(self) -> None:
        """Send what the machine has to send, close what it has closed, and plan its next tick."""
        self.cluster.moments.spring()
        while self.cluster.has_output:
            taken = self.cluster.take_output()
            if not taken:
                break  # all of it is a paused node's
            for connection, buffers in taken:
                line = self.lines.get(connection.number)
                if line is None:
                    continue
                if buffers:
                    self._send_all(line, b"".join(buffers))
                if connection.is_closed:
                    self._on_closed(line)
            self.cluster.moments.spring()
        self._plan()

    def _send_all(self, line: VirtualLine, data: bytes) -> None:
        while data:
            end = SIZE_BYTES + int.from_bytes(data[:SIZE_BYTES], "big")
            self.send_down(line, data[:end])
            data = data[end:]

    def _on_closed(self, line: VirtualLine) -> None:
        """The broker has closed the connection, or it died."""
        del self.lines[line.connection.number]
        at = self.arrival(line.client, line.node, line.down_at)
        self.loop.call_at(at, line.end, None, context=line.context)

    def _plan(self) -> None:
        at_ms = self.cluster.next_at_ms
        if at_ms is None or (self._timer is not None and self._timer_at_ms <= at_ms):
            return  # a timer that comes too early finds nothing to do, and plans the next one
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self.loop.call_at(self.loop.at_ms(at_ms), self._on_timer, context=self.outside)

    def _on_timer(self) -> None:
        self._timer = None
        self.cluster.tick(self.now_ms())
        self.flush()

    # Faults.

    def cut(self, line: VirtualLine) -> None:
        """Break a connection. Both ends learn of it, the client a little later."""
        line.is_cut = True
        self.lines.pop(line.connection.number, None)
        at = self.arrival(line.client, line.node, 0.0)
        self.loop.call_at(at, line.end, ConnectionResetError("the connection was cut"), context=line.context)
        line.connection.lost(self.now_ms())
        self.flush()

    def cut_all(self, *, client: Hashable = None, node_id: int | None = None) -> None:
        """Break all connections of a client, to a node, or all that there are."""
        for line in list(self.lines.values()):
            if client in (None, line.client) and node_id in (None, line.node.node_id):
                self.cut(line)

    def block(self, client: Hashable, node_id: int, duration_ms: int) -> None:
        """Whatever client and node send each other from now on arrives after this time or later."""
        key = (client, node_id)
        self.blocked_until[key] = max(self.blocked_until.get(key, 0.0), self.loop.time() + duration_ms / 1000)

    def hold(self, client: Hashable, api_key: int, late_ms: int, then: Callable[[], None], *, is_up: bool) -> None:
        """Let the client's next request of this API, or the answer to it, take `late_ms` longer. `then` is called when
        it is under way.
        """
        self._held[client, api_key, is_up] = late_ms, then

    def heal(self) -> None:
        """End all holds and blocks. Messages that are under way stay late."""
        self._held.clear()
        self.blocked_until.clear()


class InVirtualLoop(Place):
    """The virtual loop that runs in this thread."""

    def __init__(self, cluster: Cluster, loop: VirtualLoop, draw: Draw) -> None:
        super().__init__(VirtualNetwork(cluster, loop, draw))
        self._thread_id = threading.get_ident()
        self.clock = Clock(loop)
        self._replaced = virtual_time(loop)
        self._replaced.__enter__()

    def check(self) -> None:
        super().check()
        if not self.is_here():
            raise BrokerRefusal("in virtual time only the loop's own thread may call the embedded broker")
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is not self.shell.loop:
                raise BrokerRefusal(OTHER_LOOP)

    def close(self) -> None:
        """Break all connections. Called in the loop's thread."""
        if not self.is_closed:
            self.is_closed = True
            self.shell.close()
            self._replaced.__exit__(None, None, None)
