"""A Kafka broker inside of this process, for tests and demos: in memory, gone with the process. It is not Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Self

from aiogroup.embedded.contents import Contents
from aiogroup.embedded.controls import Controls
from aiogroup.embedded.faulting import Faulting
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.nodes import Node
from aiogroup.embedded.machine.refusals import BrokerRefusal, whole_number
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.machine.static.draft import StaticMembership
from aiogroup.embedded.shell.thread import InLoop, InThread
from aiogroup.embedded.shell.virtual_loop import Clock, VirtualLoop
from aiogroup.embedded.shell.virtual_network import InVirtualLoop
from aiogroup.embedded.watching import Watching

__all__ = ["Broker", "BrokerNode"]

MAX_BYTES = 256 * 1024 * 1024
MOST_PORT = 65_535


class BrokerNode:
    """One node. It has the same calls as a devkafka node."""

    def __init__(self, broker: Broker, node: Node) -> None:
        self._broker = broker
        self._node = node

    @property
    def node_id(self) -> int:
        """Kafka's `node.id`: 1, 2, 3."""
        return self._node.node_id

    @property
    def rack(self) -> str | None:
        return self._node.rack

    @property
    def port(self) -> int:
        return self._node.port

    @property
    def is_running(self) -> bool:
        """Whether it is up; a paused one is, too."""
        return self._node.is_up

    @property
    def is_paused(self) -> bool:
        return self._node.is_paused

    def address(self) -> str:
        """`host:port`."""
        return f"{self._node.host}:{self._node.port}"

    def start(self, *, wait: bool = True) -> None:
        """Start the node again, at its address and with its logs. It is up at once: devkafka's `wait` does nothing."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.start(self.node_id, now_ms))

    def stop(self, timeout_ms: int = 0) -> None:
        """Controlled shutdown: other nodes lead and coordinate at once, so no request times out."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.stop(self.node_id, now_ms))

    def kill(self) -> None:
        """Let the node die. The other nodes lead and coordinate after `failover_ms`."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.kill(self.node_id, now_ms))

    def pause(self) -> None:
        """Pause the node: its sockets stay open and accept connections, but it answers nothing.

        After the property `broker.session.timeout.ms` (3,000) the other nodes lead and coordinate in its place, if they
        are more than half of all nodes.
        """
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.pause(self.node_id, now_ms))

    def resume(self) -> None:
        """Let the node go on with what has arrived meanwhile."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.resume(self.node_id, now_ms))


class Broker(Contents, Watching, Controls, Faulting):
    """A cluster of brokers that speaks Kafka's protocol on 127.0.0.1.

    For tests and demos: in memory, gone with the process. It is not Kafka: it has no replication lag, no disk and no
    security. Requests that it does not serve are kept in `troubles`.

    `with Broker() as broker` runs it in a thread of its own, `async with` in the running loop. In a `VirtualLoop` its
    connections are in memory, and minutes pass in milliseconds. Calls may be made from any thread (in virtual time only
    from the loop's thread), and have taken effect when they return.

    Args:
        nodes: the number of nodes; each has a port of its own.
        port: the first node's port. With 0 a free port is chosen, so that tests can run at the same time.
        seed: the seed for all ids: the same seed gives the same ids. With `None` it is random.
        auto_create_topics: whether a topic is made when Metadata first asks for it.
        properties: settings by Kafka's names.
        api_versions: narrower version ranges, as an older broker has: `{"JoinGroup": (0, 3)}`.
        failover_ms: the time after which the other nodes notice that a node has died.
        max_bytes: the limit of all logs together; beyond it Produce is refused.
        static_membership: `kafka` as Kafka has released it, or `draft` as draft 41 of KIP-345 has it; see
            docs/static.md.

    Raises:
        BrokerRefusal: there is no such setting or range, or its value is not valid.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int = 0,
        seed: int | None = None,
        auto_create_topics: bool = False,
        properties: Mapping[str, str] | None = None,
        api_versions: Mapping[str, tuple[int, int]] | None = None,
        failover_ms: int = 0,
        max_bytes: int = MAX_BYTES,
        static_membership: StaticMembership = "kafka",
    ) -> None:
        if not 0 <= whole_number("port", port) <= MOST_PORT:
            raise BrokerRefusal(f"port {port}: a port is a number up to {MOST_PORT}, and 0 draws a free one")
        for name, value in (("failover_ms", failover_ms), ("max_bytes", max_bytes)):
            if whole_number(name, value) < 0:
                raise BrokerRefusal(f"{name}={value}: it cannot be below 0")
        if seed is not None:
            whole_number("seed", seed)
        if whole_number("nodes", nodes) < 1:
            raise BrokerRefusal(f"{nodes} nodes: a cluster has at least one")
        defaults = {
            "auto.create.topics.enable": str(auto_create_topics).lower(),
            "default.replication.factor": str(min(3, nodes)),
            "min.insync.replicas": "2" if nodes >= 3 else "1",
        }
        rng = Random(seed)  # noqa: S311 (ids of a test)
        settings = Settings.of({**defaults, **(properties or {})})
        cluster = Cluster(
            settings,
            rng,
            nodes=nodes,
            api_versions=api_versions,
            failover_ms=failover_ms,
            max_bytes=max_bytes,
            static_membership=static_membership,
        )
        cluster.nodes[1].port = port
        super().__init__(cluster)
        self.nodes = [BrokerNode(self, node) for node in self._cluster.nodes]

    # Its life.

    def __enter__(self) -> Self:
        self._look_whether_new()
        with suppress(RuntimeError):
            if isinstance(asyncio.get_running_loop(), VirtualLoop):
                raise BrokerRefusal("in virtual time a broker lives in the loop: `async with Broker() as broker:`")
        self._place = InThread(self._cluster)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._look_whether_new()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise BrokerRefusal("`async with Broker()` needs asyncio's loop; `with Broker()` needs none") from None
        if isinstance(loop, VirtualLoop):
            self._place = InVirtualLoop(self._cluster, loop, Random(0))  # noqa: S311 (each message takes 1 ms)
        else:
            self._place = InLoop(self._cluster)
        return self

    def _look_whether_new(self) -> None:
        if self._place is not None:
            raise BrokerRefusal("an embedded broker is started once: make another one")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every socket, and end the thread."""
        if self._place is not None:
            self._place.close()

    def change_nodes(self, act: Callable[[Cluster, int], None]) -> None:
        """Change what opens or closes sockets; for `BrokerNode`."""
        self._running().call_nodes(lambda now_ms: act(self._cluster, now_ms))

    # What it is.

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each node, divided by commas."""
        self._running()
        return ",".join(node.address() for node in self.nodes)

    @property
    def clock(self) -> Clock:
        """The clock of a broker in virtual time: `now_ms`, `await pass_s(n)`.

        Raises:
            BrokerRefusal: the broker runs in real time.
        """
        place = self._running()
        if not isinstance(place, InVirtualLoop):
            raise BrokerRefusal(
                "this broker runs in real time, and its clock cannot be moved: run the test by `run_virtual`, or with "
                "the fixture `virtual_broker`"
            )
        return place.clock

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id
