"""Sends requests to brokers, over a table of connections: one for each broker and channel.

Kafka answers one request at a time per connection. So JoinGroup, which may stay unanswered for minutes, heartbeats,
commits and fetches have a channel each. Connecting has a lock per connection, a time-out and a backoff. In aiokafka's
client one lock is for all connections, so a broker that hangs in its handshake holds up the others.

A connection to a node leads to the address that the newest answer has named for it, of Metadata or of FindCoordinator.
When that changes, the connections of the node are closed, and attempts to reach the former address end: another node
may have that address by now, and would be asked in this one's place (`Link._take`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Self, TypeAlias

import anyio
from aiokafka.errors import KafkaConnectionError

from aiogroup._core.cluster import Broker, Cluster, PartitionInfo, TopicInfo
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiogroup._core.protocol.schema import R_co, Request
from aiogroup._runtime.loop.clock import FOREVER_MS, now_ms, sleep_ms, timeout_ms, within_ms
from aiogroup._runtime.net.authentication import CredentialsError
from aiogroup._runtime.net.connection import Connection
from aiogroup._runtime.net.names import Names, Turn
from aiogroup._runtime.net.tls import LOAD_CLIENTS, why_tls_failed
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConnectionLostError,
    ConsumerStoppedError,
    KafkaTimeoutError,
)

__all__ = ["COMMIT", "FETCH", "HEARTBEAT", "JOIN", "METADATA", "Link"]

JOIN: Final = "join"
HEARTBEAT: Final = "heartbeat"
COMMIT: Final = "commit"
FETCH: Final = "fetch"
METADATA: Final = "metadata"

CONNECT_TIMEOUT_MS: Final = 10_000
"""KIP-601's socket.connection.setup.timeout.ms: a broker that takes longer counts as unreachable."""
LEAST_SHARE_MS: Final = 2_000
"""The least that an address gets of it in a first attempt; a name with more than five is tried in several attempts."""
TURNS_FOR_HEARTBEAT: Final = 10
"""How many turns of the loop a late heartbeat is given; its timer, its task and the lock need three."""
AUTHENTICATION_ERRORS: Final = (
    "SaslAuthenticationFailed",
    "UnsupportedSaslMechanismError",
    "IllegalSaslStateError",
)

FINAL: Final = (AuthenticationFailedError, ConsumerStoppedError)
"""Errors with which an attempt to connect ends: another address of the same name would help nothing."""

Address: TypeAlias = tuple[str, int]


class _Slot:
    """The place of one connection: at most one attempt to connect at a time, and none before `retry_at_ms`."""

    __slots__ = ("address", "attempt", "connection", "failures_count", "lock", "retry_at_ms")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.address: Address | None = None  # of the connection, or of the attempt that is under way
        self.attempt: anyio.CancelScope | None = None
        self.lock = asyncio.Lock()
        self.failures_count = 0
        self.retry_at_ms = 0

    @property
    def is_open(self) -> bool:
        return self.connection is not None and self.connection.is_open

    @property
    def is_busy(self) -> bool:
        """An answer is waited for."""
        return self.connection is not None and self.connection.is_open and not self.connection.is_idle

    def move_to(self, address: Address) -> None:
        """The node is at this address now: what leads to another one is closed."""
        if self.address in (None, address):
            return
        self.address = None
        self.failures_count = self.retry_at_ms = 0
        if self.attempt is not None:
            self.attempt.cancel()
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Link:
    """Connections by (node, channel), made when needed. Nodes below 0 are the bootstrap servers.

    `async with Link(config) as link` closes them at the end of the block; a consumer closes its own in stages.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.cluster = Cluster()
        self.is_heartbeat_late: Callable[[], bool] = lambda: False
        self.on_metadata: Callable[[Cluster], None] = lambda _: None
        self.on_brokers: Callable[[], None] = lambda: None
        self._config = config
        self._bootstrap = {
            -1 - index: Broker(-1 - index, host, port) for index, (host, port) in enumerate(config.bootstrap_addresses)
        }
        self._slots: dict[tuple[int, str], _Slot] = {}
        self._throttled_until_ms: dict[int, int] = {}
        self._names = Names()
        self._spoke_at: dict[int, tuple[str, int]] = {}  # where the last handshake with the node succeeded
        self._made: set[Connection] = set()
        self.is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.wait_closed(self.close())

    async def connect(self, node_id: int, channel: str) -> Connection:
        """The open connection to a node, made if need be.

        Raises:
            ConnectionLostError: the node is not known or not reachable.
            AuthenticationFailedError: it refused the credentials.
        """
        slot = self._slot(node_id, channel)
        if slot.connection is not None and slot.connection.is_open:
            return slot.connection
        async with slot.lock:
            if slot.connection is not None and slot.connection.is_open:
                return slot.connection
            if self.is_closed:
                raise ConsumerStoppedError("the consumer is stopped")
            while True:
                broker = self.cluster.brokers.get(node_id) or self._bootstrap.get(node_id)
                if broker is None:
                    raise ConnectionLostError(f"{self._named(node_id)} is not in the cluster's metadata")
                if (connection := await self._attempt(slot, broker)) is not None:
                    return connection

    async def _attempt(self, slot: _Slot, broker: Broker) -> Connection | None:
        """One attempt to connect; `None` if the node was found to have another address meanwhile."""
        slot.address = broker.host, broker.port
        slot.attempt = attempt = anyio.CancelScope()
        with attempt:
            try:
                await sleep_ms(max(0, slot.retry_at_ms - now_ms()))
                connection = await self._open(broker, slot.failures_count)
            except BaseException:
                if not attempt.cancel_called:
                    slot.failures_count += 1
                    slot.retry_at_ms = now_ms() + self._config.backoff_ms(slot.failures_count)
                raise
            finally:
                slot.attempt = None
            if not attempt.cancel_called:
                slot.connection, slot.failures_count = connection, 0
                return connection
            connection.close()  # it was open before the cancellation reached it
        return None

    async def send(
        self,
        node_id: int,
        request: Request[R_co],
        channel: str,
        timeout: int | None = None,
        *,
        at_most: int | None = None,
    ) -> R_co:
        """Connect, send and wait for the answer, all in `timeout` milliseconds (request_timeout_ms by default).

        Raises:
            ConnectionLostError, KafkaTimeoutError, ProtocolError, AuthenticationFailedError, UnsupportedVersionError
        """
        limit_ms = timeout or self._config.request_timeout_ms
        connection = self.ready(node_id, channel)
        if connection is None:
            until_ms = now_ms() + limit_ms
            connection = await self.reach(node_id, channel, limit_ms)
            limit_ms = max(1, until_ms - now_ms())
        answer = connection.write(request, at_most=at_most)
        response = await connection.answer(answer, limit_ms)
        self.note_throttle(node_id, response)
        return response

    def opened(self, node_id: int, *channels: str) -> Connection | None:
        """The open connection to a node on the first of these channels that has one."""
        for channel in channels:
            slot = self._slots.get((node_id, channel))
            if slot is not None and slot.connection is not None and slot.connection.is_open:
                return slot.connection
        return None

    def why_never_connected(self, node_id: int, channel: str) -> str:
        """Empty unless every attempt to connect to the node's address has failed so far."""
        slot, broker = self._slots.get((node_id, channel)), self.cluster.brokers.get(node_id)
        if slot is None or broker is None or slot.connection is not None or not slot.failures_count:
            return ""
        return f"node {node_id} at {broker.host}:{broker.port}"

    def ready(self, node_id: int, channel: str) -> Connection | None:
        """The open connection to a node, if a request may be written to it now."""
        slot = self._slots.get((node_id, channel))
        connection = None if slot is None else slot.connection
        if connection is None or not connection.is_open:
            return None
        is_throttled = self._throttled_until_ms and self._throttled_until_ms.get(node_id, 0) > now_ms()
        return None if is_throttled or self.is_heartbeat_late() else connection

    async def reach(self, node_id: int, channel: str, limit_ms: int) -> Connection:
        """The open connection to a node, made if need be, after its throttle time and a late heartbeat.

        Raises:
            ConnectionLostError, KafkaTimeoutError, AuthenticationFailedError, ConsumerStoppedError
        """
        # Several callers may queue for one attempt to connect, and each attempt has a time-out of its own.
        async with within_ms(limit_ms, f"{self._named(node_id)} could not be asked within {limit_ms} ms"):
            connection = await self.connect(node_id, channel)
            await sleep_ms(max(0, self._throttled_until_ms.get(node_id, 0) - now_ms()))
            if self._throttled_until_ms.get(node_id, FOREVER_MS) <= now_ms():
                del self._throttled_until_ms[node_id]
        await self.give_way()
        return connection

    async def give_way(self) -> None:
        """Let a late heartbeat be written first, since it may save the session (KIP-62).

        After a blocked loop everything is due at once. A heartbeat that has no connection is not waited for.
        """
        for _ in range(TURNS_FOR_HEARTBEAT):
            if not self.is_heartbeat_late():
                return
            await asyncio.sleep(0)

    def note_throttle(self, node_id: int, response: object) -> None:
        """Send no requests to an overloaded broker for the time that its answer names (KIP-219)."""
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            # At most one request time-out: a broker that wants more delays its answers itself.
            self._throttled_until_ms[node_id] = now_ms() + min(throttle_ms, self._config.request_timeout_ms)

    def disconnect(self, node_id: int, *channels: str) -> None:
        """Close connections; requests outstanding on them fail at once."""
        for channel in channels:
            slot = self._slots.get((node_id, channel))
            if slot is not None and slot.connection is not None:
                slot.connection.close()
                slot.connection = None

    def let_go(self, node_id: int, channel: str) -> bool:
        """Close the connection if no answer is waited for on it. Returns whether it was closed."""
        connection = self.opened(node_id, channel)
        if connection is None or not connection.is_idle:
            return False
        self.disconnect(node_id, channel)
        return True

    def know(self, brokers: Mapping[int, Broker]) -> None:
        """Use these brokers, which another client (the main loop's) or another answer than Metadata has named."""
        self._take(dataclasses.replace(self.cluster, brokers=brokers))

    def know_address(self, node_id: int, host: str, port: int) -> None:
        """Use this address of a node: FindCoordinator's answer is newer than the metadata."""
        known = self.cluster.brokers.get(node_id)
        if known is None or (known.host, known.port) != (host, port):
            broker = Broker(node_id, host, port, None if known is None else known.rack)
            self.know({**self.cluster.brokers, node_id: broker})

    def _take(self, cluster: Cluster) -> None:
        """The only way in which another cluster becomes known: connections follow the addresses of their nodes."""
        former, self.cluster = self.cluster, cluster
        if former.brokers == cluster.brokers:
            return
        for (node_id, _), slot in self._slots.items():
            if (broker := cluster.brokers.get(node_id)) is not None:
                slot.move_to((broker.host, broker.port))
        self.on_brokers()

    def nodes(self, *, near: bool = False) -> list[int]:
        """The nodes to ask what any broker knows, in random order: those that failed least, known brokers first. A
        broker answers in order, so those that owe an answer already, as to ListOffsets, come last.

        With `near`, connected nodes come before the others. The others follow, since asking one broker only would trust
        it for ever.
        """
        known = list(self.cluster.brokers)
        random.shuffle(known)
        bootstrap = list(self._bootstrap)
        random.shuffle(bootstrap)

        def rank(node_id: int) -> tuple[bool, int, bool]:
            slot = self._slot(node_id, METADATA)
            return slot.is_busy, slot.failures_count, near and not slot.is_open

        return sorted([*known, *bootstrap], key=rank)

    def _named(self, node_id: int) -> str:
        """The node's name in messages: before the first metadata, the bootstrap server that the application gave."""
        first = self._bootstrap.get(node_id)
        return f"node {node_id}" if first is None else f"{first.host}:{first.port} of bootstrap_servers"

    def _slot(self, node_id: int, channel: str) -> _Slot:
        slot = self._slots.get((node_id, channel))
        if slot is None:
            slot = self._slots[node_id, channel] = _Slot()
        return slot

    async def get_ready(self, node_id: int | None = None, channel: str = METADATA) -> None:
        """Open a connection before it is needed. An error is not raised here: the caller that needs the connection gets
        it.
        """
        with suppress(AiogroupError):
            await self.connect(self.nodes()[0] if node_id is None else node_id, channel)

    async def ask_any(self, request: Request[R_co], timeout: int | None = None, *, near: bool = False) -> R_co:
        """Ask one node after another until one answers, all in `timeout` ms (request_timeout_ms by default).

        Raises:
            AiogroupError: what the last node failed with; authentication failures at once.
        """
        last: AiogroupError = ConnectionLostError("no broker is known")
        limit_ms = timeout or self._config.request_timeout_ms
        until_ms = now_ms() + limit_ms
        nodes = self.nodes(near=near)
        for node_id in nodes:
            # A frozen broker must not hold up a request that the next one would answer at once; only the last node gets
            # all the time.
            most_ms = limit_ms if node_id == nodes[-1] else max(1, limit_ms // 6, min(limit_ms // 2, 1_000))
            left_ms = until_ms - now_ms()
            each_ms = min(most_ms, left_ms)
            if each_ms <= 0:
                break
            is_shared = self._slot(node_id, METADATA).is_busy
            try:
                async with timeout_ms(each_ms):
                    return await self.send(node_id, request, METADATA, left_ms if is_shared else each_ms)
            except TimeoutError as error:
                if not is_shared:  # else whoever waits there has a time-out of his own
                    self.disconnect(node_id, METADATA)
                self._slot(node_id, METADATA).failures_count += 1
                late = KafkaTimeoutError(f"{self._named(node_id)} did not answer within {each_ms} ms")
                last = error if isinstance(error, KafkaTimeoutError) else late
            except AuthenticationFailedError:
                raise
            except AiogroupError as error:
                last = error
                if isinstance(error, ConsumerStoppedError):
                    raise
        raise last

    async def fetch_metadata(self, topics: Iterable[str] | None, timeout: int | None = None) -> Cluster:
        """Ask for these topics (`None`: all) as `ask_any` does, and merge the answer into the known metadata.

        Raises:
            AiogroupError: no broker answered.
        """
        request = MetadataRequest(
            topics=None if topics is None else tuple(MetadataRequestTopic(name=name) for name in sorted(topics)),
            allow_auto_topic_creation=self._config.allow_auto_create_topics and topics is not None,
        )
        response: MetadataResponse = await self.ask_any(request, timeout)
        snapshot = _cluster(response, is_of_all=topics is None)
        if snapshot.brokers:
            self._take(self.cluster.updated(snapshot))
            self.on_metadata(snapshot)
        return snapshot

    async def look_again(self, topics: Iterable[str], timeout: int) -> None:
        """Ask for the present metadata of these topics. If no broker answers, the caller's next request is refused
        again.
        """
        with suppress(AiogroupError):
            await self.fetch_metadata(topics, max(1, timeout))

    def close(self) -> list[asyncio.Future[None]]:
        """Close every connection. The futures returned end when the sockets have closed, also those that were closed
        earlier.
        """
        self.is_closed = True
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.close()
        self._slots.clear()
        return [closing for each in self._made if (closing := each.closing) is not None]

    async def wait_closed(self, closing: list[asyncio.Future[None]]) -> None:
        """Wait a moment for the futures that `close` returned; abort sockets whose peer does not answer TLS's closing
        message.
        """
        if closing:
            _, late = await asyncio.wait(closing, timeout=0.2)
            for connection in self._made:
                connection.abort()
            if late:
                await asyncio.wait(late, timeout=0.1)

    async def _open(self, broker: Broker, failures_count: int) -> Connection:
        """Try one address of the broker's name after another, all within `CONNECT_TIMEOUT_MS`."""
        where = self._named(broker.node_id)
        if broker.node_id >= 0:
            where += f" at {broker.host}:{broker.port}"
        limit_ms = min(CONNECT_TIMEOUT_MS, self._config.request_timeout_ms)
        until_ms = now_ms() + limit_ms
        turns = await self._turns(broker, where, limit_ms)
        # With each failure fewer addresses get more time: a slow broker must not be left each time before it answers.
        least_ms = LEAST_SHARE_MS << min(failures_count, 3)
        failure: AiogroupError = KafkaTimeoutError(f"connecting to {where} took longer than {limit_ms} ms")
        for number, turn in enumerate(turns):
            if (left_ms := until_ms - now_ms()) <= 0:
                break
            share_ms = min(left_ms, max(left_ms // (len(turns) - number), least_ms))
            place = where if len(turns) == 1 else f"{where} ({turn[0][4][0]})"
            try:
                return await self._open_at(broker, turn, place, share_ms)
            except BaseException as error:
                self._names.note_failure(broker.host, turns, turn)
                if not isinstance(error, AiogroupError) or isinstance(error, FINAL):
                    raise
                failure = error
        raise failure

    async def _turns(self, broker: Broker, where: str, limit_ms: int) -> list[Turn]:
        """The addresses of the broker's name.

        Raises:
            ConnectionLostError, KafkaTimeoutError: it has none, or the system does not say.
        """
        try:
            async with timeout_ms(limit_ms):
                return await self._names.turns(broker.host, broker.port)
        except TimeoutError as error:
            late = f"cannot connect to {where}: the look-up of the name {broker.host!r} took longer than {limit_ms} ms"
            raise KafkaTimeoutError(late) from error
        except OSError as error:
            raise self._failure(error, broker, where, limit_ms) from error

    async def _open_at(self, broker: Broker, turn: Turn, where: str, limit_ms: int) -> Connection:
        connection = Connection(broker.host, broker.port, self._config)
        connection.why_silent = self._why_silent()
        try:
            async with timeout_ms(limit_ms):
                await connection.connect(turn)
        except Exception as error:  # noqa: BLE001 (aiokafka's handshake may raise anything for hostile bytes)
            connection.close()
            failure = self._failure(error, broker, where, limit_ms)
        except BaseException:
            connection.close()
            raise
        else:
            if not self.is_closed:
                self._names.note_success(broker.host, turn, connection.peer)
                self._spoke_at[broker.node_id] = broker.host, broker.port
                return connection
            connection.close()
            raise ConsumerStoppedError("the consumer is stopped")
        finally:
            self._made = {each for each in self._made if each.closing is not None} | {connection}
        raise failure  # outside of the handler: the caught error may quote a secret, and would become its context

    def _failure(self, error: Exception, broker: Broker, where: str, limit_ms: int) -> AiogroupError:
        """The error for a failed handshake: what it means, and what to do about it."""
        if isinstance(error, TimeoutError):
            return KafkaTimeoutError(f"connecting to {where} took longer than {limit_ms} ms")
        if type(error).__name__ in AUTHENTICATION_ERRORS:
            return AuthenticationFailedError(self._why_refused(type(error).__name__, where))
        of_tls = error.__cause__ if isinstance(error, KafkaConnectionError) and error.__cause__ else error
        if (why := why_tls_failed(of_tls)) is not None:
            return ConnectionLostError(f"cannot connect to {where}: {why}")
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ssl.SSLError):
            return ConnectionLostError(f"cannot connect to {where}: {error}")
        if isinstance(error, CredentialsError):
            return ConnectionLostError(f"cannot connect to {where}: {error}")
        what = f"cannot connect to {where}: {type(error).__name__} during the handshake"
        if self._spoke_at.get(broker.node_id) == (broker.host, broker.port):
            return ConnectionLostError(
                f"{what}, which succeeded before: the broker is starting or stopping, or takes no further connection "
                "(max.connections.per.ip), or something between here and there cuts it"
            )
        if isinstance(error, KafkaConnectionError) and self._config.security_protocol.endswith("SSL"):
            return ConnectionLostError(
                f"cannot connect to {where}: it closed the connection after the TLS handshake. If it requires a client "
                f"certificate (ssl.client.auth there), {LOAD_CLIENTS}"
            )
        return ConnectionLostError(
            f"{what}. The listener of this port probably speaks another protocol than "
            f"security_protocol={self._config.security_protocol!r}: set the listener's, or use another port"
        )

    def _why_refused(self, error: str, where: str) -> str:
        protocol, mechanism = self._config.security_protocol, self._config.sasl_mechanism
        match error:
            case "IllegalSaslStateError":
                plain = "SSL" if protocol == "SASL_SSL" else "PLAINTEXT"
                return (
                    f"{where} takes no credentials, but security_protocol={protocol!r} sends some: its listener has no "
                    f"SASL. Use security_protocol={plain!r}, or the port of a listener with {protocol}"
                )
            case "UnsupportedSaslMechanismError":
                return (
                    f"{where} does not offer sasl_mechanism={mechanism!r}: use one of its sasl.enabled.mechanisms, or "
                    "enable this one there"
                )
            case _:
                return f"{where} refused the credentials for {mechanism}"

    def _why_silent(self) -> str:
        """A hint for a connection that breaks before its first answer while no broker has ever answered."""
        if self.cluster.brokers:
            return ""
        protocol = self._config.security_protocol
        why = f" before the first answer: does the listener of this port speak security_protocol={protocol!r}?"
        return why if "SASL" in protocol else f"{why} One with SASL closes connections that do not authenticate"


def _cluster(response: MetadataResponse, *, is_of_all: bool) -> Cluster:
    topics = {}
    errors = {}
    for topic in response.topics:
        if topic.error_code:
            errors[topic.name or ""] = topic.error_code
            continue
        partitions = {
            each.partition_index: PartitionInfo(
                each.leader_id
                if not each.error_code or each.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
                else -1,  # a replica is down, but the partition has a leader
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
            )
            for each in topic.partitions
        }
        topics[topic.name or ""] = TopicInfo(topic.name or "", topic.topic_id, partitions, topic.is_internal)
    brokers = {each.node_id: Broker(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
    return Cluster(brokers, topics, errors, response.cluster_id, is_of_all)
