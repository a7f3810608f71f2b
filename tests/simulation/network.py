"""Connections in memory: late, cut, blocked. Within one connection order stands, between two of them nothing does."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque

from tests.simulation.loop import PROCESS

TICK_SECONDS = 1e-6


class Transport(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self, network, process, node, protocol):
        super().__init__()
        self.network = network
        self.process = process
        self.node = node
        self.protocol = protocol
        self.is_closed = False
        self.is_deaf = False  # nothing of what is written arrives any more, and nobody learns it
        self.is_cut = False  # nothing arrives any more, in either direction
        self.up_at = self.down_at = 0.0  # when the last bytes on their way arrive
        self.requests = []  # frames that the broker has and has not answered, the first being worked at
        self.unanswered = deque()  # API keys of what the client has written and has no answer to

    def write(self, data):
        if not self.is_closed:
            self.network.send_up(self, bytes(data))

    def is_closing(self):
        return self.is_closed

    def set_protocol(self, protocol):
        self.protocol = protocol

    def get_extra_info(self, name, default=None):
        return default

    def close(self):
        """What was written before still arrives."""
        if not self.is_closed:
            self.is_closed = True
            self.network.forget(self)
            self.network.loop.call_soon(self.protocol.connection_lost, None, context=self.process.context)

    abort = close

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def get_write_buffer_size(self):
        return 0

    def receive(self, data):
        if not self.is_closed and not self.is_cut:
            self.unanswered.popleft()
            self._deliver(memoryview(data))

    def _deliver(self, data):
        while data:
            room = self.protocol.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.protocol.buffer_updated(count)

    def break_off(self):
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(ConnectionResetError("cut by the simulation"))


class Network:
    """`weather` is the share of messages that are late, `late_ms` how late they may be."""

    def __init__(self, loop, rng, brokers, tell):
        self.loop = loop
        self.rng = rng
        self.brokers = brokers
        self.tell = tell
        self.jitter_ms = 1  # every message takes up to so long
        self.weather = 0.0
        self.late_ms = 0
        self.open = []
        self.blocked_until = {}  # (name of a process, node): nothing passes before
        self.lost = {}  # (name of a process, API key): until then such a request makes its connection deaf
        self.held = {}  # (name of a process, API key, whether up): the next one is (so late, and then this happens)
        self.outside = contextvars.Context()
        self.bytes_up = 0

    # The client's side.

    async def connect(self, protocol_factory, host, port):
        process, node = PROCESS.get(), self.brokers.node_at(host, port)
        arrives_at = self._arrival(process, node, 0.0)
        await asyncio.sleep(arrives_at - self.loop.time())
        if not self.brokers.is_up(node):
            raise ConnectionRefusedError(111, f"node {node} is down")
        protocol = protocol_factory()
        transport = Transport(self, process, node, protocol)
        self.open.append(transport)
        protocol.connection_made(transport)
        return transport, protocol

    def _arrival(self, process, node, not_before):
        delay_ms = self.rng.randrange(1, self.jitter_ms + 1)
        if self.weather and self.rng.random() < self.weather:
            delay_ms += self.rng.randrange(self.late_ms)
        blocked_until = self.blocked_until.get((process.name, node), 0.0)
        # Timers of one instant fire in any order; within a connection there is one.
        return max(self.loop.time() + delay_ms / 1000, not_before + TICK_SECONDS, blocked_until)

    def send_up(self, transport, data):
        key = int.from_bytes(data[4:6])
        self.brokers.checker.on_write(transport.process, key, self._unanswered(transport.process))
        transport.unanswered.append(key)
        transport.up_at = self._arrival(transport.process, transport.node, transport.up_at)
        transport.up_at += self._held_seconds(transport.process, key, is_up=True)
        if self.loop.time() < self.lost.get((transport.process.name, key), 0.0):
            transport.is_deaf = True
        if transport.is_deaf:
            return
        self.loop.call_at(transport.up_at, self._arrive, transport, data, context=self.outside)

    def _arrive(self, transport, data):
        if not transport.is_cut and self.brokers.is_up(transport.node):
            self.brokers.take(transport, data[4:])

    def _unanswered(self, process):
        return {key for each in self.open if each.process is process for key in each.unanswered}

    def send_down(self, transport, frame, key):
        if transport.is_cut or transport.is_closed:
            return
        transport.down_at = self._arrival(transport.process, transport.node, transport.down_at)
        transport.down_at += self._held_seconds(transport.process, key, is_up=False)
        data = len(frame).to_bytes(4, "big") + frame
        self.loop.call_at(transport.down_at, transport.receive, data, context=transport.process.context)

    def forget(self, transport):
        if transport in self.open:
            self.open.remove(transport)

    # Faults.

    def cut(self, transport):
        """Both ends learn it, ours a little later."""
        transport.is_cut = True
        self.forget(transport)
        transport.requests.clear()
        at = self._arrival(transport.process, transport.node, 0.0)
        self.loop.call_at(at, transport.break_off, context=transport.process.context)

    def cut_all(self, *, process=None, node=None):
        for transport in list(self.open):
            if (process is None or transport.process is process) and (node is None or transport.node == node):
                self.cut(transport)

    def block(self, process, nodes, duration_ms):
        for node in nodes:
            key = (process.name, node)
            self.blocked_until[key] = max(self.blocked_until.get(key, 0.0), self.loop.time() + duration_ms / 1000)

    def lose(self, process, request_types, duration_ms):
        """What the process writes of these is lost for so long, and what it writes behind it on the same connection."""
        for each in request_types:
            self.lost[process.name, each.API_KEY] = self.loop.time() + duration_ms / 1000

    def hold(self, process, request_type, late_ms, then, *, is_up):
        """The next request of this type, or the answer to it, is late; when it is on its way something happens."""
        self.held[process.name, request_type.API_KEY, is_up] = late_ms, then

    def _held_seconds(self, process, key, *, is_up):
        late_ms, then = self.held.pop((process.name, key, is_up), (0, None))
        if then is not None:
            self.loop.call_later(0.001, then, context=self.outside)
        return late_ms / 1000

    def heal(self):
        self.weather = 0.0
        self.held.clear()
        self.lost.clear()
        # What is on its way is late all the same: at most by the longest fault.
        self.blocked_until.clear()
