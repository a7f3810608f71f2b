"""What the many clients of one process need not each do: build, encode and read the same answer to Metadata.

A thousand clients ask for the same 10,000 partitions, each more than once. In real life each of them has a process, and
its broker a machine; here all that would be most of the work, and 3 MB for each client. So an answer is built and
encoded once for each state of the cluster, and answers of the same bytes are read once. What was read is shared, as it
never changes: messages are frozen structures of tuples, and snapshots of the cluster are replaced, not changed.
"""

from __future__ import annotations

import contextlib
from unittest import mock

from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiogroup._runtime.net import connection, link
from aiogroup.embedded.machine import connection as broker_side

KEPT = 16
"""Answers, and what was read of them. There is one for each version and each state of the cluster."""
SIZE_AND_ID_BYTES = 8


def kept(known, key, value):
    """Keep the newest."""
    known[key] = value
    if len(known) > KEPT:
        del known[next(iter(known))]
    return value


class BuiltOnce:
    """Serves Metadata at all nodes of a cluster."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._answers = {}
        self._bytes = {}
        self._encode = broker_side.encoded

    def _state(self):
        """It differs when an answer would. Leaders change with their epochs; replicas stay as long as nobody asks."""
        cluster = self._cluster
        topics = tuple((each.topic_id, sum(one.leader_epoch for one in each.partitions)) for each in cluster.topics)
        return topics, tuple(each.node_id for each in cluster.nodes.up)

    def metadata(self, exchange, request, now_ms):
        key = exchange.version, request, self._state()
        if key in self._answers:
            exchange.answer(self._answers[key], now_ms)
        else:
            self._cluster.metadata.metadata(exchange, request, now_ms)
            kept(self._answers, key, exchange.response)

    def encoded(self, exchange, response):
        if not isinstance(response, MetadataResponse):
            return self._encode(exchange, response)
        key = exchange.version, id(response)
        known, data = self._bytes.get(key, (None, b""))
        if known is not response:
            data = b"".join(self._encode(exchange, response))
            kept(self._bytes, key, (response, data))
        number = exchange.header.correlation_id.to_bytes(4, "big", signed=True)
        return [data[:4] + number + data[SIZE_AND_ID_BYTES:]]


class ReadOnce:
    """Reads answers to Metadata for all clients."""

    def __init__(self):
        self._messages = {}
        self._snapshots = {}
        self._decode = connection.decode_response
        self._snapshot = link._cluster

    def decode_response(self, request_type, version, frame, apart):
        if request_type is not MetadataRequest:
            return self._decode(request_type, version, frame, apart)
        key = version, bytes(frame[4:])
        message = self._messages.get(key)
        if message is None:
            message = kept(self._messages, key, self._decode(request_type, version, frame, apart)[1])
        return int.from_bytes(frame[:4], "big", signed=True), message

    def cluster(self, response, *, is_of_all):
        key = id(response), is_of_all
        known, snapshot = self._snapshots.get(key, (None, None))
        if known is not response:
            snapshot = self._snapshot(response, is_of_all=is_of_all)
            kept(self._snapshots, key, (response, snapshot))
        return snapshot


@contextlib.contextmanager
def shared_metadata(cluster):
    """While it lasts, the clients of this process and the embedded broker share answers to Metadata."""
    built, read = BuiltOnce(cluster), ReadOnce()
    with (
        mock.patch.dict(cluster._handlers, {MetadataRequest: built.metadata}),
        mock.patch.object(broker_side, "encoded", built.encoded),
        mock.patch.object(connection, "decode_response", read.decode_response),
        mock.patch.object(link, "_cluster", read.cluster),
    ):
        yield
