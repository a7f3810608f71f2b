"""Just enough of Kafka's protocol to see whether a broker is ready and to create a topic.

Written separately from aiogroup/_core/protocol on purpose: the tests' Kafka is started without the code under test.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from aiogroup.devkafka.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_METADATA: Final = (3, 7)  # the newest version that is not flexible
_LIST_OFFSETS: Final = (2, 5)
_CREATE_TOPICS: Final = (19, 4)
_API_VERSIONS: Final = (18, 0)
_CORRELATION = 1
_T = TypeVar("_T")


class WireError(Exception):
    """The broker does not answer, or its answer has an unexpected form."""


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker's view of the cluster."""

    broker_ids: frozenset[int]
    cluster_id: str | None
    controller_id: int
    leaders: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise WireError("the answer ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def string(self) -> str | None:
        size = self.number(2)
        return None if size < 0 else self._take(size).decode()

    def array(self, item: Callable[[], _T]) -> list[_T]:
        return [item() for _ in range(self.number(4))]

    def numbers(self) -> list[int]:
        return self.array(lambda: self.number(4))


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _read_exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = link.recv(size - len(data))
        if not chunk:
            raise WireError("the broker closed the connection")
        data += chunk
    return data


def _ask(port: int, api: tuple[int, int], body: bytes, timeout_ms: int) -> _Reader:
    key, version = api
    message = struct.pack(">hhi", key, version, _CORRELATION) + _string("devkafka") + body
    try:
        with socket.create_connection((HOST, port), timeout=timeout_ms / 1000) as link:
            link.sendall(struct.pack(">i", len(message)) + message)
            (size,) = struct.unpack(">i", _read_exactly(link, 4))
            answer = _Reader(_read_exactly(link, size))
    except OSError as error:
        raise WireError(f"port {port}: {error}") from error
    if answer.number(4) != _CORRELATION:
        raise WireError(f"port {port}: the answer is to another request")
    return answer


def api_versions(port: int, timeout_ms: int = 2_000) -> dict[int, tuple[int, int]]:
    """The oldest and newest version that the broker on `port` supports, by API key.

    Raises:
        WireError: the broker does not answer, or answers with an error.
    """
    answer = _ask(port, _API_VERSIONS, b"", timeout_ms)
    error = answer.number(2)
    if error:
        raise WireError(f"port {port}: ApiVersions error {error}")
    return {k: (low, high) for k, low, high in answer.array(lambda: tuple(answer.number(2) for _ in range(3)))}


def metadata(port: int, topics: tuple[str, ...] = (), timeout_ms: int = 2_000) -> BrokerView:
    """The view of the broker on `port`: the brokers, and the leaders of `topics` (no entry for a partition without
    one).

    Raises:
        WireError: the broker does not answer in metadata's form.
    """
    body = struct.pack(">i", len(topics)) + b"".join(map(_string, topics)) + b"\x00"
    answer = _ask(port, _METADATA, body, timeout_ms)
    answer.number(4)

    def broker() -> int:
        node_id = answer.number(4)
        answer.string()
        answer.number(4)
        answer.string()
        return node_id

    def partition() -> tuple[int, int]:
        answer.number(2)
        index = answer.number(4)
        leader = answer.number(4)
        answer.number(4)
        for _ in ("replicas", "in sync", "offline"):
            answer.numbers()
        return index, leader

    def topic() -> tuple[str, dict[int, int]]:
        answer.number(2)
        name = answer.string()
        answer.number(1)
        return name or "", dict(answer.array(partition))

    broker_ids = frozenset(answer.array(broker))
    cluster_id = answer.string()
    controller_id = answer.number(4)
    leaders = {name: {i: node for i, node in found.items() if node >= 0} for name, found in answer.array(topic)}
    return BrokerView(broker_ids, cluster_id, controller_id, leaders)


def serves(port: int, topic: str, partitions: Iterable[int], timeout_ms: int = 2_000) -> bool:
    """Whether the broker on `port` has the logs of these partitions open, as their leader.

    Raises:
        WireError: the broker does not answer.
    """
    asked = [struct.pack(">iiq", index, -1, -1) for index in partitions]
    body = struct.pack(">ibi", -1, 0, 1) + _string(topic) + struct.pack(">i", len(asked)) + b"".join(asked)
    answer = _ask(port, _LIST_OFFSETS, body, timeout_ms)
    answer.number(4)

    def partition() -> int:
        answer.number(4)
        error = answer.number(2)
        for size in (8, 8, 4):  # timestamp, offset, leader epoch
            answer.number(size)
        return error

    def of_topic() -> list[int]:
        answer.string()
        return answer.array(partition)

    return [error for errors in answer.array(of_topic) for error in errors] == [0] * len(asked)


def create_topic(
    port: int,
    name: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
    timeout_ms: int = 15_000,
) -> tuple[int, str]:
    """Create a topic. Returns Kafka's error code (0: created) and its message.

    Raises:
        WireError: the broker does not answer.
    """
    body = struct.pack(">i", 1) + _string(name) + struct.pack(">ih", partitions, replication_factor)
    body += struct.pack(">i", 0) + struct.pack(">i", len(config))
    body += b"".join(_string(key) + _string(value) for key, value in config.items())
    body += struct.pack(">i", timeout_ms) + b"\x00"
    answer = _ask(port, _CREATE_TOPICS, body, timeout_ms + 1_000)
    answer.number(4)
    results = answer.array(lambda: (answer.string(), answer.number(2), answer.string()))
    if len(results) != 1:
        raise WireError(f"port {port}: CreateTopics answered for {len(results)} topics")
    _, code, message = results[0]
    return code, message or ""
