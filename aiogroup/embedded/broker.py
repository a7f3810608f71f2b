"""A Kafka broker inside of this process, for tests and demos: in memory, gone with the process. It is not Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import TracebackType
from typing import Self

from aiogroup.embedded.faulting import Faulting
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.logs.direct import DirectLogs, Headers, StoredRecord
from aiogroup.embedded.machine.logs.topics import refusal_of_name
from aiogroup.embedded.machine.nodes import Node
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.shell.thread import InLoop, InThread
from aiogroup.embedded.watching import Watching

__all__ = ["Broker", "BrokerNode"]

MAX_BYTES = 256 * 1024 * 1024


class BrokerNode:
    """One node. The calls are those of a devkafka node."""

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

    def start(self) -> None:
        """It is there again, at its address and with its logs."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.start(self.node_id, now_ms))

    def stop(self) -> None:
        """Controlled shutdown: others lead and coordinate at once."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.stop(self.node_id, now_ms))

    def kill(self) -> None:
        """It dies. The others lead and coordinate after `failover_ms`."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.kill(self.node_id, now_ms))

    def pause(self) -> None:
        """Its sockets stay open and accept connections, and it says nothing."""
        self._broker.change_nodes(lambda cluster, _now_ms: cluster.nodes.pause(self.node_id))

    def resume(self) -> None:
        """It goes on with what has arrived meanwhile."""
        self._broker.change_nodes(lambda cluster, now_ms: cluster.nodes.resume(self.node_id, now_ms))


class Broker(Watching, Faulting):
    """A cluster of brokers that speaks Kafka's protocol on 127.0.0.1.

    For tests and demos: in memory, gone with the process. It is not Kafka: it has no replication lag, no disk, no
    security, and what it does not serve is kept in `troubles`.

    `with Broker() as broker` runs it in a thread of its own, `async with` in the running loop. All calls may be made
    from any thread, and are done when they return.

    Args:
        nodes: how many; each has a port of its own.
        port: of the first node. A free one is drawn for 0: tests that run at once cannot share a number.
        seed: of all ids; the same seed gives the same ids. Drawn if it is `None`.
        auto_create_topics: a topic is made when Metadata first asks for it.
        properties: settings by Kafka's names.
        api_versions: narrower ranges, as an older broker has: `{"JoinGroup": (0, 3)}`.
        failover_ms: when the other nodes notice that one has died.
        max_bytes: of all logs together; then Produce is refused.

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
    ) -> None:
        if nodes < 1:
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
        )
        cluster.nodes[1].port = port
        super().__init__(cluster)
        self.nodes = [BrokerNode(self, node) for node in self._cluster.nodes]
        self._logs = DirectLogs(self._cluster.topics, settings)

    # Its life.

    def __enter__(self) -> Self:
        self._look_whether_new()
        self._place = InThread(self._cluster)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._look_whether_new()
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
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    # Topics and records.

    def create_topic(
        self, name: str, partitions: int = 1, *, replication_factor: int | None = None, **config: object
    ) -> None:
        """Create a topic, as an administrator would.

        Args:
            name: of the topic.
            partitions: how many.
            replication_factor: 3, or as many as there are nodes, if it is not given.
            config: settings of the topic, `cleanup_policy="compact"` or by Kafka's names.

        Raises:
            BrokerRefusal: the topic is there, or its name or a setting is not valid.
        """
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}

        def create(now_ms: int) -> None:
            topics = self._cluster.topics
            factor = replication_factor or self._cluster.settings["default.replication.factor"]
            why = refusal_of_name(name, topics) or self._cluster.settings.topic_refusal(settings)
            if topics.get(name) is not None:
                why = f"the topic {name} is there already"
            elif partitions < 1:
                why = f"{partitions} partitions"
            elif not 1 <= factor <= len(self.nodes):
                why = f"replication factor {factor} with {len(self.nodes)} nodes"
            if why is not None:
                raise BrokerRefusal(why)
            topics.create(name, partitions, now_ms, replication_factor=factor, config=settings)

        self._call(create)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and what groups committed for it.

        Raises:
            BrokerRefusal: there is no such topic.
        """
        self._call(lambda now_ms: self._cluster.topics.delete(self._topic(name), now_ms))

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append one record without a client.

        Returns:
            its offset.

        Raises:
            BrokerRefusal: there is no such partition, or the topic does not take the record; the message says why.
        """

        def produce(now_ms: int) -> int:
            return self._logs.produce(
                topic, value, now_ms, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )

        return self._call(produce)

    def produce_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> list[tuple[int, int]]:
        """Append a record for each value: to the partitions in turn, or to the one that is named.

        Returns:
            (partition, offset) of each, in the order of `values`.

        Raises:
            BrokerRefusal: as for `produce`. What was appended before stays.
        """
        given = list(values)  # a generator may take its time, and the broker must not wait for it

        def produce(now_ms: int) -> list[tuple[int, int]]:
            return self._logs.produce_many(
                topic, given, now_ms, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )

        return self._call(produce)

    def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """All records of a topic or of one of its partitions, by partition and offset.

        Raises:
            BrokerRefusal: there is no such topic or partition.
        """
        return self._call(lambda _now_ms: list(self._logs.records(topic, partition)))
