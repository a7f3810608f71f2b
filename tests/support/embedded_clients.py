"""Clients of the embedded broker's machine, without a socket and with a clock that a test moves."""

from __future__ import annotations

from collections import deque
from random import Random

from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.messages.ranges import RANGES
from tests.support.any_version import decode_any_response, encode_any_request

CLIENT_ID = "scripted"


class Machine:
    """A cluster, and the bytes that its connections were sent."""

    def __init__(self, *, properties=None, seed=1, **options):
        self.cluster = Cluster(Settings.of(properties or {}), Random(seed), **options)
        self.now_ms = 0
        self.clients = {}

    def client(self, node_id=1):
        return Client(self, node_id)

    def pass_ms(self, duration_ms):
        """Let time pass, and stop at each instant at which something is due, as a loop's timer would."""
        until_ms = self.now_ms + duration_ms
        while (at_ms := self.cluster.next_at_ms) is not None and at_ms <= until_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.cluster.tick(self.now_ms)
            self.deliver()
        self.now_ms = until_ms
        self.cluster.tick(self.now_ms)
        self.deliver()

    def do(self, act):
        """A call from outside: `act(cluster, now_ms)`."""
        self.cluster.control(lambda now_ms: act(self.cluster, now_ms), self.now_ms)
        self.deliver()

    def deliver(self):
        for connection, buffers in self.cluster.take_output():
            client = self.clients.get(connection.number)
            if client is not None:
                client.took(b"".join(buffers), self.now_ms)


class Client:
    """One connection. `ask` returns the answer, or None if there is none yet: then `answer` returns it later."""

    def __init__(self, machine, node_id):
        self.machine = machine
        self.connection = machine.cluster.connect(node_id, machine.now_ms)
        machine.clients[self.connection.number] = self
        self._asked = deque()
        self._answers = deque()
        self._bytes = b""

    @property
    def is_closed(self):
        return self.connection.is_closed

    def send(self, request, version=None):
        version = RANGES[type(request)][1] if version is None else version
        self._asked.append((type(request), version))
        frame = encode_any_request(request, version, len(self._asked), CLIENT_ID)
        self.send_bytes(len(frame).to_bytes(4, "big") + frame)

    def send_bytes(self, data):
        self.connection.receive(data, self.machine.now_ms)
        self.machine.deliver()

    def ask(self, request, version=None):
        self.send(request, version)
        return self.answer()

    def answer(self):
        return self._answers.popleft()[1] if self._answers else None

    @property
    def has_answer(self):
        return bool(self._answers)

    def answered_at_ms(self):
        """The arrival time of the oldest answer that was not taken yet."""
        return self._answers[0][0]

    def took(self, data, now_ms):
        self._bytes += data
        while len(self._bytes) >= 4:
            end = 4 + int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < end:
                return
            request_type, version = self._asked.popleft()
            self._answers.append((now_ms, decode_any_response(request_type, version, self._bytes[4:end])[1]))
            self._bytes = self._bytes[end:]
