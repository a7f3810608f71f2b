"""A Kafka broker inside of this process, for tests and demos: in memory, gone with the process. It is not Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self

from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.logs.append import AppendRules, append
from aiogroup.embedded.machine.logs.batches import Record, build, records_of
from aiogroup.embedded.machine.logs.topics import Topic, refusal_of_name
from aiogroup.embedded.machine.nodes import Node
from aiogroup.embedded.machine.refusals import BrokerRefusal, Trouble
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.shell.thread import InLoop, InThread, Place
from aiogroup.embedded.views import StoredRecord

__all__ = ["Broker", "BrokerNode"]

MAX_BYTES = 256 * 1024 * 1024
Headers = Sequence[tuple[str, bytes | None]]


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


class Broker:
    """A cluster of brokers that speaks Kafka's protocol on 127.0.0.1.

    For tests and demos: in memory, gone with the process. It is not Kafka: it has no replication lag, no disk, no
    security, and what it does not serve is kept in `troubles`.

    `with Broker() as broker` runs it in a thread of its own, `async with` in the running loop. All calls may be made
    from any thread, and are done when they return.

    Args:
        nodes: how many; each has a port of its own.
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
        self._cluster = Cluster(
            settings,
            rng,
            nodes=nodes,
            api_versions=api_versions,
            failover_ms=failover_ms,
            max_bytes=max_bytes,
        )
        self.nodes = [BrokerNode(self, node) for node in self._cluster.nodes]
        self._place: Place | None = None
        self._produced_count = 0

    # Its life.

    def __enter__(self) -> Self:
        self._place = InThread(self._cluster)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._place = InLoop(self._cluster)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every socket, and end the thread."""
        if self._place is not None:
            self._place.close()

    def _running(self) -> Place:
        if self._place is None:
            raise BrokerRefusal("the embedded broker is not started: `with Broker() as broker:`")
        return self._place

    def change_nodes(self, act: Callable[[Cluster, int], None]) -> None:
        """Change what opens or closes sockets; for `BrokerNode`."""
        self._running().call_nodes(lambda now_ms: act(self._cluster, now_ms))

    def _call(self, act: Callable[[int], Any]) -> Any:  # noqa: ANN401 (what `act` returns)
        found: list[Any] = []
        self._running().call(lambda now_ms: found.append(act(now_ms)))
        return found[0]

    # What it is.

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each node, divided by commas."""
        self._running()
        return ",".join(node.address() for node in self.nodes)

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def troubles(self) -> list[Trouble]:
        """What was asked for in vain, each with what helps."""
        return list(self._cluster.troubles.kept)

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
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append one record without a client.

        Args:
            topic: where.
            value: of the record.
            key: of the record.
            partition: the partitions in turn if it is not given.
            headers: of the record.
            timestamp_ms: now if it is not given.

        Returns:
            its offset.

        Raises:
            BrokerRefusal: the broker would refuse it too; the message has Kafka's code.
        """
        return self.produce_many(
            topic, [value], key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )[0][1]

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
        """Append a record for each value; one batch for each partition.

        Returns:
            (partition, offset) of each, in order.

        Raises:
            BrokerRefusal: the broker would refuse it too; the message has Kafka's code.
        """
        given = list(values)

        def produce(now_ms: int) -> list[tuple[int, int]]:
            count = len(self._topic(topic).partitions)
            stamp_ms = now_ms if timestamp_ms is None else timestamp_ms
            shares: dict[int, list[Record]] = {}
            places: list[tuple[int, int]] = []
            for value in given:
                index = self._produced_count % count if partition is None else partition
                self._produced_count += 1
                share = shares.setdefault(index, [])
                places.append((index, len(share)))
                share.append(Record(len(share), stamp_ms, key, value, tuple(headers)))
            bases = {index: self._append(topic, index, share, now_ms) for index, share in shares.items()}
            return [(index, bases[index] + place) for index, place in places]

        found: list[tuple[int, int]] = self._call(produce)
        return found

    def _append(self, topic: str, index: int, records: list[Record], now_ms: int) -> int:
        partition = self._cluster.topics.partition(topic, index)
        if partition is None:
            raise BrokerRefusal(f"the topic {topic} has no partition {index}")
        batch = build(records)
        rules = AppendRules.of(self._cluster.settings, partition.topic)
        size_bytes = len(batch)
        appended = append(partition.log, batch, partition.leader_epoch, rules, now_ms)
        if appended.error:
            raise BrokerRefusal(f"{topic}-{index}: {appended.error.name}, {appended.message or 'refused'}")
        partition.appended(size_bytes, now_ms)
        return appended.base_offset

    def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """All records of a topic or of one of its partitions, as their logs hold them.

        Raises:
            BrokerRefusal: there is no such topic or partition.
        """

        def read(_now_ms: int) -> list[StoredRecord]:
            found = self._topic(topic)
            if partition is not None and not 0 <= partition < len(found.partitions):
                raise BrokerRefusal(f"the topic {topic} has no partition {partition}")
            return [
                StoredRecord(
                    topic, each.index, record.offset, record.timestamp_ms, record.key, record.value, record.headers
                )
                for each in found.partitions
                if partition in (None, each.index)
                for batch in each.log.batches(each.log.start_offset)
                for record in records_of(batch)
                if record.offset >= each.log.start_offset
            ]

        stored: list[StoredRecord] = self._call(read)
        return stored

    def _topic(self, name: str) -> Topic:
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise BrokerRefusal(f"there is no topic {name}: make it with create_topic")
        return topic
