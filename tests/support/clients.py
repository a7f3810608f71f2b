"""Clients of the whole machine without sockets: frames in, answers out, time by hand."""

from __future__ import annotations

import struct
from random import Random

from aiogroup._core.protocol.framing import decode_response, encode_request
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.settings import Settings


class Clients:
    """A cluster and the connections to it."""

    def __init__(self, nodes=1, properties=None, **cluster):
        self.now_ms = 1_000
        self.cluster = Cluster(Settings.of(properties or {}), Random(1), nodes=nodes, **cluster)
        self._by_connection = {}

    def connect(self, node_id=1, name="client"):
        client = Client(self, self.cluster.connect(node_id, self.now_ms), name)
        self._by_connection[client.connection] = client
        return client

    def collect(self):
        """Hand the machine's output to the clients that it is for."""
        for connection, buffers in self.cluster.take_output():
            self._by_connection[connection].received += b"".join(buffers)

    def pass_ms(self, ms):
        self.now_ms += ms
        self.cluster.tick(self.now_ms)
        self.collect()

    def control(self, act):
        self.cluster.control(lambda _now_ms: act(), self.now_ms)
        self.collect()


class Client:
    """One connection. `answers` has the answers so far, in order."""

    def __init__(self, clients, connection, name):
        self._clients = clients
        self.connection = connection
        self.name = name
        self.received = b""
        self._sent = []

    @property
    def is_closed(self):
        return self.connection.is_closed

    def send(self, request, version):
        """Send a request. Returns its number."""
        self._sent.append((type(request), version))
        frame = encode_request(request, version, len(self._sent), self.name)
        self.connection.receive(struct.pack(">i", len(frame)) + frame, self._clients.now_ms)
        self._clients.collect()
        return len(self._sent)

    def take(self):
        """(number, answer) of each whole answer that came since the last call."""
        found = []
        while len(self.received) >= 4:
            (size,) = struct.unpack_from(">i", self.received)
            if size < 0 or len(self.received) < 4 + size:
                break
            frame, self.received = self.received[4 : 4 + size], self.received[4 + size :]
            kind, version = self._sent[int.from_bytes(frame[:4], "big") - 1]
            found.append(decode_response(kind, version, frame))
        return found

    def ask(self, request, version):
        """Send a request that is answered at once. Returns the only answer."""
        number = self.send(request, version)
        ((answered, answer),) = self.take()
        assert answered == number
        return answer
