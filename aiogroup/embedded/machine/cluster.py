"""The whole cluster as one machine: connections, time, and which room serves which request."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiogroup._core.protocol.framing import RequestHeader
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.admin.changes import ConfigChanges
from aiogroup.embedded.machine.admin.described import DescribedConfigs
from aiogroup.embedded.machine.admin.logs import LogRequests
from aiogroup.embedded.machine.admin.topology import Topology
from aiogroup.embedded.machine.connection import Buffer, Connection
from aiogroup.embedded.machine.exchange import Exchange, Handler, Handlers
from aiogroup.embedded.machine.faults.faults import Faults
from aiogroup.embedded.machine.faults.gate import Gate
from aiogroup.embedded.machine.faults.moments import Moments
from aiogroup.embedded.machine.faults.rules import CUT, Rules
from aiogroup.embedded.machine.faults.watch import Watch
from aiogroup.embedded.machine.groups.coordinators import Coordinators
from aiogroup.embedded.machine.groups.deletion import GroupDeletion
from aiogroup.embedded.machine.groups.listing import GroupListing
from aiogroup.embedded.machine.groups.requests import GroupRequests
from aiogroup.embedded.machine.ids import Ids, RandomBits
from aiogroup.embedded.machine.internal_topics import InternalTopics
from aiogroup.embedded.machine.logs.log import Budget, Log
from aiogroup.embedded.machine.logs.produce import Produces
from aiogroup.embedded.machine.logs.topic_requests import TopicRequests
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.metadata import ClusterMetadata
from aiogroup.embedded.machine.nodes import Leaders, Node, Nodes
from aiogroup.embedded.machine.observers import Observers
from aiogroup.embedded.machine.reading.epochs import Epochs
from aiogroup.embedded.machine.reading.fetch import Fetching
from aiogroup.embedded.machine.reading.offsets import Offsets
from aiogroup.embedded.machine.refusals import BrokerRefusal, Troubles
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.machine.static.draft import StaticMembership, form_maker
from aiogroup.embedded.machine.static.static_map import DRAFT_FEATURE, DRAFT_VERSION
from aiogroup.embedded.machine.timers import Timers
from aiogroup.embedded.machine.transactions.coordinator import TransactionCoordinator
from aiogroup.embedded.machine.transactions.offset_commits import TransactionalOffsets
from aiogroup.embedded.machine.transactions.requests import TransactionRequests
from aiogroup.embedded.machine.transactions.seats import Seats
from aiogroup.embedded.messages.framing import NotOfferedError, VersionNotOfferedError, decode
from aiogroup.embedded.messages.ranges import narrowed
from aiogroup.errors import ProtocolError

__all__ = ["Cluster", "Output"]


class Output(NamedTuple):
    """What to do with a connection: send these buffers in order. Then close it if it is closed, or read on if it wants
    input.
    """

    connection: Connection
    buffers: list[Buffer]


class Cluster:
    """The machine. Instants are whole ms; they never run back.

    Args:
        settings: the broker's.
        rng: the source of ids.
        nodes: the number of nodes.
        racks: the nodes' racks, in order; by default `rack-1` and so on.
        api_versions: narrower ranges, as an older broker has: `{"JoinGroup": (0, 3)}`.
        failover_ms: the time after which the other nodes notice that a node has died.
        max_bytes: the limit of all logs together; beyond it Produce is refused.
        static_membership: `kafka`, or `draft` for KIP-345 as its draft 41 has it.
    """

    def __init__(
        self,
        settings: Settings,
        rng: RandomBits,
        *,
        nodes: int = 1,
        racks: Sequence[str | None] = (),
        api_versions: Mapping[str, tuple[int, int]] | None = None,
        failover_ms: int = 0,
        max_bytes: int = 256 * 1024 * 1024,
        static_membership: StaticMembership = "kafka",
    ) -> None:
        try:
            self.ranges = narrowed(api_versions or {})
        except ValueError as error:
            raise BrokerRefusal(str(error)) from None
        self.settings = settings
        self.ids = ids = Ids(rng)
        self.cluster_id = ids.cluster_id()
        self.static_membership = static_membership
        self.timers = timers = Timers()
        session_ms = settings["broker.session.timeout.ms"]
        self.nodes = Nodes(nodes, timers, failover_ms=failover_ms, session_ms=session_ms, racks=racks)
        self.faults = faults = Faults()
        self.troubles = troubles = Troubles()
        self.observers = Observers()
        self.rules, self.watch = Rules(rng, timers), Watch()
        self.moments, self.budget = Moments(troubles, timers), Budget(max_bytes)
        self.observers.all += [self.watch, self.moments]
        self.topics = topics = Topics(ids.uuid, lambda: Log(self.budget), self.nodes.replicas_of)
        Leaders(topics, self.nodes)
        make_form = form_maker(static_membership, topics, timers, settings)
        self.coordinators = Coordinators(self.nodes, settings, timers, ids, topics, self.observers, make_form)
        self.fetching = Fetching(topics, timers, faults, settings, self.nodes, troubles, ids.session_id)
        self.metadata = ClusterMetadata(self.cluster_id, topics, self.nodes, settings, faults, self.ranges)
        if static_membership == "draft":
            self.metadata.offer(DRAFT_FEATURE, DRAFT_VERSION)
        self.group_requests = GroupRequests(self.coordinators, topics, faults, timers)
        seats = Seats(self.nodes, timers, settings["transaction.state.log.num.partitions"])
        self.transactions = transactions = TransactionCoordinator(
            seats, settings, timers, ids.producer_id, topics, self.coordinators
        )
        self._handlers: dict[type[Request[Any]], Handler] = {}
        rooms: list[Handlers] = [
            self.metadata,
            Produces(topics, self.nodes, settings, faults, transactions, troubles),
            TopicRequests(topics, self.nodes, settings, faults, troubles),
            LogRequests(topics, settings, faults, self.budget),
            self.fetching,
            Offsets(topics, faults),
            Epochs(topics, faults),
            self.group_requests,
            GroupListing(self.coordinators, seats, InternalTopics(topics, self.nodes, settings), faults, troubles),
            TransactionRequests(transactions, topics, faults, ids.producer_id),
            TransactionalOffsets(self.coordinators, transactions, topics, faults),
            GroupDeletion(self.coordinators, topics, faults),
            DescribedConfigs(topics, self.nodes, settings, faults, troubles),
            ConfigChanges(topics, self.nodes, settings, faults, troubles),
            Topology(self.cluster_id, topics, self.nodes, settings, faults),
        ]
        for room in rooms:
            self._handlers.update(room.handlers())
        self.nodes.on_down.append(self._on_down)
        self.nodes.on_resumed.append(self._on_resumed)
        self._connections: dict[int, Connection] = {}
        self._connections_count = 0
        self._exchanges_count = 0
        self._ready: deque[Connection] = deque()
        self._output: dict[int, Connection] = {}
        self._answered: list[Exchange] = []

    # Time.

    @property
    def now_ms(self) -> int:
        return self.timers.now_ms

    @property
    def next_at_ms(self) -> int | None:
        """When to `tick`; `None`: only a request or a call can change anything."""
        return self.timers.next_at_ms

    def tick(self, now_ms: int) -> None:
        """Do everything that is due, in order, each at its own instant."""
        self.advance(now_ms)
        self.work()

    def advance(self, now_ms: int) -> None:
        self.timers.run(now_ms)
        self._tell_answers(None)

    # Connections.

    def connect(self, node_id: int, now_ms: int) -> Connection:
        """A new connection to a node.

        Raises:
            BrokerRefusal: the node is down.
        """
        self.advance(now_ms)
        node = self.nodes[node_id]
        if not node.is_up:
            raise BrokerRefusal(f"node {node_id} is down")
        self._connections_count += 1
        connection = Connection(self, node, self._connections_count, self.settings.max_frame_bytes)
        if len(self._connections) >= self.settings["max.connections"]:
            self.troubles.note("connections", f"{len(self._connections)} connections are open", now_ms)
            connection.close()
        else:
            self._connections[connection.number] = connection
        self.work()
        return connection

    def take_output(self) -> list[Output]:
        """What has to be sent and closed since the last call; nothing for a paused node."""
        taken = [each for each in self._output.values() if not each.node.is_paused]
        self._output = {number: each for number, each in self._output.items() if each.node.is_paused}
        return [Output(each, each.take_output()) for each in taken]

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    def disconnect(self, node_id: int | None) -> None:
        """Break the connections to a node, or all of them. What was not sent is lost."""
        # `_output` may still hold bytes of a paused node's connection that was closed before they were sent.
        for connection in (*self._connections.values(), *self._output.values()):
            if node_id in (None, connection.node_id):
                connection.take_output()
                connection.close()

    def _on_down(self, node: Node, _now_ms: int) -> None:
        self.fetching.forget(node.node_id)
        self.disconnect(node.node_id)

    def _on_resumed(self, node: Node, _now_ms: int) -> None:
        for connection in self._connections.values():
            if connection.node is node:
                connection.go_on()

    # What connections tell.

    def on_frame(self, connection: Connection) -> None:
        self._ready.append(connection)

    def on_output(self, connection: Connection) -> None:
        self._output[connection.number] = connection

    def on_closed(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)

    def on_answer(self, exchange: Exchange) -> None:
        if self.observers.all:
            self._answered.append(exchange)

    def gate_of(self, connection: Connection) -> Gate:
        return Gate(connection, self.rules, self.timers, self.troubles)

    def on_garbage(self, connection: Connection, what: str) -> None:
        self.troubles.note("garbage", f"connection {connection.number} sent {what}", self.now_ms)
        connection.close()

    def work(self) -> None:
        """Handle the requests that have arrived, one of each connection in turn."""
        while self._ready:
            connection = self._ready.popleft()
            if not connection.is_closed:
                self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        now_ms = self.now_ms
        try:
            header, request = decode(connection.next_frame(), self.ranges)
        except VersionNotOfferedError as error:
            if error.request_type is ApiVersionsRequest:
                header, request = error.header, ApiVersionsRequest()
            else:
                self._refuse(connection, error)
                return
        except NotOfferedError as error:
            self._refuse(connection, error)
            return
        except ProtocolError as error:
            self.on_garbage(connection, f"no request: {error}")
            return
        self._handle(connection, header, request, now_ms)

    def _refuse(self, connection: Connection, error: NotOfferedError) -> None:
        what = f"{error.header.client_id or 'a client'} asked for what is not offered: {error}"
        self.troubles.note("api", what, self.now_ms)
        connection.close()

    def _handle(self, connection: Connection, header: RequestHeader, request: Request[Any], now_ms: int) -> None:
        self._exchanges_count += 1
        exchange = Exchange(self._exchanges_count, connection, header, request, now_ms)
        connection.exchange = exchange
        self.observers.before_request(exchange, now_ms)
        if self.rules.is_set and (rule := self.rules.find(exchange, about_requests=True)) is not None:
            connection.pass_over(is_cut=rule.fate is CUT)
            return
        try:
            self._handlers[type(request)](exchange, request, now_ms)
        except Exception:  # noqa: BLE001 (one request must not end the broker; the fault is reported, and fails the test)
            what = f"{exchange.api} in version {exchange.version} failed:\n{traceback.format_exc()}"
            self.troubles.note("bug", what, now_ms)
            connection.close()
        self._tell_answers(exchange)

    def _tell_answers(self, exchange: Exchange | None) -> None:
        if self._answered:
            answered, self._answered = self._answered, []
            self.observers.on_answers(exchange, answered, self.now_ms)

    # Calls from outside.

    def control(self, act: Callable[[int], None], now_ms: int) -> None:
        """Change something at an instant, and go on with the requests that can be handled because of it."""
        self.advance(now_ms)
        try:
            act(self.now_ms)
        finally:
            self._tell_answers(None)
            self.work()
