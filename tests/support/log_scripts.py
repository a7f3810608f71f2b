"""Requests about topics and their logs, sent raw to a real broker and to the embedded one; both answer alike."""

from __future__ import annotations

import socket
import struct
from random import Random

from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.faults import Faults
from aiogroup.embedded.machine.ids import Ids
from aiogroup.embedded.machine.logs.log import Budget, Log
from aiogroup.embedded.machine.logs.produce import Produces
from aiogroup.embedded.machine.logs.topic_requests import TopicRequests
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.refusals import Troubles
from aiogroup.embedded.machine.settings import Settings
from aiogroup.protocol.framing import RequestHeader, decode_response, encode_request

CLIENT_ID = "scripted"


class RealBroker:
    """A broker of Kafka, asked over one connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def send(self, request, version):
        """The answer; `None`: the connection was closed instead."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=30)
        frame = encode_request(request, version, 1, CLIENT_ID)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        if getattr(request, "acks", 1) == 0:
            self._socket.settimeout(1)
        with self._socket.makefile("rb") as stream:
            try:
                size = stream.read(4)
            except TimeoutError:
                self.close()
                return "nothing"
            if not size:
                self.close()
                return "closed"
            return decode_response(type(request), version, stream.read(struct.unpack(">i", size)[0]))[1]

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class OneNode:
    """The only node."""

    node_id, host, port, rack = 1, "127.0.0.1", 9092, None

    def get(self, node_id):
        return self if node_id == 1 else None

    def __len__(self):
        return 1

    def live(self, replicas):
        return tuple(each for each in replicas if each == 1)


class PureBroker:
    """The rooms of the machine that serve logs, without a connection."""

    def __init__(self, now_ms, properties=None, max_bytes=1 << 28):
        ids = Ids(Random(1))
        self.now_ms = now_ms
        self.node_id, self.is_closed = 1, False
        self.budget = Budget(max_bytes)
        self.faults, self.troubles = Faults(), Troubles()
        self.topics = Topics(ids.uuid, lambda: Log(self.budget), lambda index, factor: (1,))
        settings = Settings.of(properties or {})
        produces = Produces(self.topics, OneNode(), settings, self.faults, ids, self.troubles)
        requests = TopicRequests(self.topics, OneNode(), settings, self.faults)
        self._handlers = {**produces.handlers(), **requests.handlers()}
        self._count = 0

    def answered(self, exchange, now_ms):
        pass

    def close(self):
        self.is_closed = True

    def send(self, request, version):
        self._count += 1
        header = RequestHeader(request.API_KEY, version, self._count, CLIENT_ID)
        exchange = Exchange(self._count, self, header, request, self.now_ms)
        self._handlers[type(request)](exchange, request, self.now_ms)
        assert exchange.answered_at_ms == self.now_ms
        if self.is_closed:
            self.is_closed = False
            return "closed"
        if exchange.response is None:
            return "nothing"
        frame = b"".join(encode_answer(type(request), exchange.response, version, 1))
        return decode_response(type(request), version, frame[4:])[1]
