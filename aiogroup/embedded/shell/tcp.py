"""The machine on TCP: one listening socket on 127.0.0.1 for each node, served by a selector loop's callbacks. There are
no tasks and no transports, so that everything ends at once.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING

from aiogroup.embedded.machine.refusals import BrokerRefusal

if TYPE_CHECKING:
    from aiogroup.embedded.machine.cluster import Cluster
    from aiogroup.embedded.machine.connection import Buffer, Connection
    from aiogroup.embedded.machine.nodes import Node

__all__ = ["TcpShell"]

READ_BYTES = 256 * 1024
BUFFERS_AT_ONCE = 512
"""Below the least IOV_MAX (1,024 on Linux and macOS)."""
BACKLOG = 128
REST_S = 0.1


class _Line:
    """One connection's socket. Used in the loop's thread only."""

    def __init__(self, shell: TcpShell, sock: socket.socket, connection: Connection) -> None:
        self.connection = connection
        self._shell = shell
        self._loop = shell.loop
        self._sock = sock
        self._unsent: deque[Buffer] = deque()
        self._is_reading = False
        self.set_reading()

    def set_reading(self) -> None:
        """Read while the machine wants input."""
        wants = self.connection.wants_input
        if wants and not self._is_reading:
            self._loop.add_reader(self._sock, self._on_readable)
        elif self._is_reading and not wants:
            self._loop.remove_reader(self._sock)
        self._is_reading = wants

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        shell = self._shell
        with shell.lock:
            if data:
                self.connection.receive(data, shell.now_ms())
            else:
                self.connection.lost(shell.now_ms())
        if data:
            self.set_reading()
        else:
            self.end()
        shell.flush()

    def send(self, buffers: list[Buffer]) -> None:
        was_empty = not self._unsent
        self._unsent += buffers
        if was_empty and self._unsent:
            self._write()

    def _write(self) -> None:
        """Send what the socket takes. While something remains, the machine begins no request of this connection."""
        unsent = self._unsent
        try:
            while unsent:
                sent_bytes = self._sock.sendmsg(list(islice(unsent, BUFFERS_AT_ONCE)))
                while unsent and sent_bytes >= len(unsent[0]):
                    sent_bytes -= len(unsent.popleft())
                if sent_bytes:
                    unsent[0] = memoryview(unsent[0])[sent_bytes:]
        except (BlockingIOError, InterruptedError):
            self._loop.add_writer(self._sock, self._on_writable)
            self._set_writable(False)
        except OSError:
            with self._shell.lock:
                self.connection.lost(self._shell.now_ms())
            self.end()

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._sock)
        self._write()
        if not self._unsent and not self.connection.is_closed:
            self._set_writable(True)
        self._shell.flush()

    def _set_writable(self, is_writable: bool) -> None:
        with self._shell.lock:
            self.connection.set_writable(is_writable, self._shell.now_ms())

    def end(self) -> None:
        """Close the socket. What was not sent is lost, as it is when a broker closes a connection."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            _end(self._sock)
            self._unsent.clear()
            self._shell.lines.pop(self.connection.number, None)


class _Door:
    """A node's listening socket. Its port stays bound while the node is down, so that nobody else draws it."""

    def __init__(self, shell: TcpShell, node: Node) -> None:
        self._shell = shell
        self._node = node
        self._sock = self._bound(node.port)
        self._is_open = False
        self._resting: asyncio.TimerHandle | None = None
        node.port = self._sock.getsockname()[1]

    def _bound(self, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        try:
            sock.bind((self._node.host, port))
        except (OSError, OverflowError) as error:  # OverflowError: the number is not a port
            sock.close()
            raise self._refusal(port, error) from error
        return sock

    def _refusal(self, port: int, error: OSError | OverflowError) -> BrokerRefusal:
        why = error.strerror if isinstance(error, OSError) else error
        return BrokerRefusal(f"node {self._node.node_id} cannot have the port {port}: {why}")

    def set_open(self) -> None:
        """Listen if the node is up; a node that is down refuses connections."""
        if self._node.is_up and not self._is_open:
            try:
                self._sock.listen(BACKLOG)
            except OSError as error:  # two sockets may bind a port with SO_REUSEADDR, but only one can listen
                raise self._refusal(self._node.port, error) from error
            self._shell.loop.add_reader(self._sock, self._on_connection)
            self._is_open = True
        elif self._is_open and not self._node.is_up:
            self.close()
            self._sock = self._bound(self._node.port)

    def _on_connection(self) -> None:
        while self._is_open:  # `welcome` may run a test's function that stops the node
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shell.welcome(sock, self._node)

    def _rest(self, error: OSError) -> None:
        """Stop accepting for a while: the process has too many files open, and the loop would try again without a
        pause.
        """
        shell = self._shell
        with shell.lock:
            what = f"node {self._node.node_id} cannot take a connection: {error.strerror}"
            shell.cluster.troubles.note("connections", what, shell.now_ms())
        shell.loop.remove_reader(self._sock)
        self._resting = shell.loop.call_later(REST_S, shell.loop.add_reader, self._sock, self._on_connection)

    def close(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
        if self._is_open:
            self._shell.loop.remove_reader(self._sock)
            self._is_open = False
        _end(self._sock)


def _end(sock: socket.socket) -> None:
    """Shut down and close a socket. Without the shutdown a copy in a forked process would keep the connection open."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


class TcpShell:
    """The sockets of a cluster, on one loop.

    Args:
        cluster: the machine.
        loop: a loop with `add_reader`: a selector loop, or uvloop.
    """

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = cluster
        self.loop = loop
        self.lock = RLock()
        """Guards the machine: calls from other threads take it too."""
        self.lines: dict[int, _Line] = {}
        self._doors: list[_Door] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        # The machine's times are ms since 1970, as in records. They follow the loop's clock, which never runs back.
        self._begin_s = time.time() - loop.time()  # noqa: TID251

    def now_ms(self) -> int:
        return int((self.loop.time() + self._begin_s) * 1000)

    def open(self) -> None:
        """Bind and listen. The nodes have their ports afterwards; the loop need not run yet.

        Raises:
            BrokerRefusal: a port is taken, or this user may not bind it.
        """
        try:
            for node in self.cluster.nodes:
                self._doors.append(_Door(self, node))
            self.open_doors()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all sockets at once. The loop must not run, or this must be its thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for line in list(self.lines.values()):
            line.end()
        for door in self._doors:
            door.close()
        self._doors.clear()

    def welcome(self, sock: socket.socket, node: Node) -> None:
        """A client has connected."""
        with self.lock:
            try:
                connection = self.cluster.connect(node.node_id, self.now_ms())
            except BrokerRefusal:
                sock.close()
                return
        self.lines[connection.number] = _Line(self, sock, connection)
        self.flush()

    def control(self, act: Callable[[int], None]) -> None:
        """Change something in the machine, from any thread. What follows from it is sent with the next `flush`."""
        with self.lock:
            self.cluster.control(act, self.now_ms())

    def flush(self) -> None:
        """Send what the machine has to send, close what it has closed, and plan its next tick. In the loop's thread."""
        self.cluster.moments.spring()
        while self.cluster.has_output:
            with self.lock:
                taken = self.cluster.take_output()
            if not taken:
                break  # all output is of paused nodes
            for connection, buffers in taken:
                line = self.lines.get(connection.number)
                if line is None:
                    continue
                if buffers:
                    line.send(buffers)
                if connection.is_closed:
                    line.end()
                else:
                    line.set_reading()
            self.cluster.moments.spring()
        self._plan()

    def open_doors(self) -> None:
        """Listen at the nodes that are up, and at no other. In the loop's thread."""
        for door in self._doors:
            door.set_open()

    def _plan(self) -> None:
        at_ms = self.cluster.next_at_ms
        if at_ms is None or (self._timer is not None and self._timer_at_ms <= at_ms):
            return  # a timer that comes too early finds nothing to do, and plans the next one
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        # The loop's clock is cut to whole ms. The small margin makes sure that the ms has come.
        self._timer = self.loop.call_at(at_ms / 1000 - self._begin_s + 1e-5, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        with self.lock:
            self.cluster.tick(self.now_ms())
        self.flush()
