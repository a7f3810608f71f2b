"""Calls that make, fill, read, damage and delete topics without a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.logs.direct import DirectLogs, Headers, StoredRecord
from aiogroup.embedded.machine.logs.topics import refusal_of_name
from aiogroup.embedded.machine.refusals import BrokerRefusal, whole_number
from aiogroup.embedded.machine.snapshots import Snapshot, restore, take
from aiogroup.embedded.running import Running

__all__ = ["Contents"]

LAST_MS = 2**63 - 1
"""The greatest timestamp that fits into a record."""


class Contents(Running):
    """The calls of `Broker` about topics and records."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._logs = DirectLogs(cluster.topics, cluster.settings)

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        """Create a topic, as an administrator would.

        Args:
            name: of the topic.
            partitions: the number of partitions.
            replication_factor: by default 3, or the number of nodes if that is smaller.
            config: settings of the topic by Kafka's names.
            settings: the same with underscores: `cleanup_policy="compact"`.

        Raises:
            BrokerRefusal: the topic is there, or its name or a setting is not valid.
        """
        named = {**(config or {}), **{key.replace("_", "."): value for key, value in settings.items()}}
        chosen = {key: str(value) for key, value in named.items()}

        def create(now_ms: int) -> None:
            topics, nodes_count = self._cluster.topics, len(self._cluster.nodes)
            default: int = self._cluster.settings["default.replication.factor"]
            factor = default if replication_factor is None else replication_factor
            why = refusal_of_name(name, topics) or self._cluster.settings.topic_refusal(chosen)
            if topics.get(name) is not None:
                why = f"the topic {name} is there already"
            elif whole_number("partitions", partitions) < 1:
                why = f"{partitions} partitions: a topic has at least one"
            elif not 1 <= whole_number("replication_factor", factor) <= nodes_count:
                nodes = f"{nodes_count} nodes" if nodes_count > 1 else "1 node"
                why = f"replication factor {factor} with {nodes}: Broker(nodes=3) has three"
            if why is not None:
                raise BrokerRefusal(why)
            topics.create(name, partitions, now_ms, replication_factor=factor, config=chosen)

        self._call(create)

    def add_partitions(self, topic: str, count: int = 1) -> None:
        """Add `count` partitions to those that the topic has.

        Raises:
            BrokerRefusal: there is no such topic, or the count is less than 1.
        """

        def add(now_ms: int) -> None:
            found = self._topic(topic)
            if whole_number("count", count) < 1:
                raise BrokerRefusal(
                    f"{count} partitions cannot be added: a topic never loses any, and 0 change nothing"
                )
            factor = len(found.partitions[0].replicas)
            self._cluster.topics.add_partitions(found, count, now_ms, replication_factor=factor)

        self._call(add)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and what groups committed for it.

        Raises:
            BrokerRefusal: there is no such topic.
        """
        self._call(lambda now_ms: self._cluster.topics.delete(self._topic(name), now_ms))

    def remake_topic(self, name: str) -> None:
        """Delete a topic, and create it again with the same number of partitions and settings. It is then empty, and
        has another id.

        Raises:
            BrokerRefusal: there is no such topic.
        """

        def remake(now_ms: int) -> None:
            former, topics = self._topic(name), self._cluster.topics
            topics.delete(former, now_ms)
            factor = len(former.partitions[0].replicas)
            topics.create(name, len(former.partitions), now_ms, replication_factor=factor, config=former.config)

        self._call(remake)

    # Records.

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
        given = _headers(headers)
        _look_at_bytes("value", value)
        _look_at_bytes("key", key)
        _look_at_time(timestamp_ms)

        def produce(now_ms: int) -> int:
            return self._logs.produce(
                topic, value, now_ms, key=key, partition=partition, headers=given, timestamp_ms=timestamp_ms
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
        if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
            raise BrokerRefusal("produce_many takes an iterable of values: one value goes to produce()")
        given = list(values)  # a generator may be slow, and the broker must not wait for it
        given_headers = _headers(headers)
        _look_at_bytes("key", key)
        _look_at_time(timestamp_ms)
        for value in given:
            _look_at_bytes("value", value)

        def produce(now_ms: int) -> list[tuple[int, int]]:
            return self._logs.produce_many(
                topic, given, now_ms, key=key, partition=partition, headers=given_headers, timestamp_ms=timestamp_ms
            )

        return self._call(produce)

    def append(self, topic: str, partition: int, batch: bytes | bytearray) -> int:
        """Store the bytes of a record batch as they are. `damaged(crc=True)` makes a batch that no client can read.

        Returns:
            the offset of its first record.

        Raises:
            BrokerRefusal: there is no such partition, or the bytes are too few for a batch's header.
        """
        _look_at_bytes("batch", batch)
        return self._call(lambda now_ms: self._logs.append(topic, partition, batch, now_ms))

    def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """All records of a topic or of one of its partitions, by partition and offset.

        Raises:
            BrokerRefusal: there is no such topic or partition.
        """
        return self._call(lambda _now_ms: list(self._logs.records(topic, partition)))

    # All at once.

    def snapshot(self) -> Snapshot:
        """Return what would outlive a restart: topics with their records, leaders and settings, and the groups' commits
        and stored members. It costs little, because records are shared, and it never changes.

        Raises:
            BrokerRefusal: a transaction is under way.
        """
        return self._call(lambda _now_ms: take(self._cluster))

    def restore(self, snapshot: Snapshot) -> None:
        """Replace all topics and groups by those of a snapshot, which may come from another broker. Every connection
        breaks: start new clients, because the old ones know another state. Faults, rules, counts and troubles stay. As
        after a restart, stored members have a whole session time-out to come back.

        Raises:
            BrokerRefusal: the snapshot needs nodes that this broker lacks, another `static_membership`, or more than
                `max_bytes`. Nothing has changed then.
        """
        if not isinstance(snapshot, Snapshot):
            raise BrokerRefusal(f"restore takes what snapshot() has returned, not {type(snapshot).__name__}")
        self._call(lambda now_ms: restore(self._cluster, snapshot, now_ms))


def _look_at_bytes(what: str, data: object) -> None:
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise BrokerRefusal(f"a {what} is bytes, not {type(data).__name__}: encode it")


def _look_at_time(timestamp_ms: object) -> None:
    if timestamp_ms is not None and whole_number("timestamp_ms", timestamp_ms, at_least=0) > LAST_MS:
        raise BrokerRefusal(f"timestamp_ms={timestamp_ms}: it is at most {LAST_MS}")


def _headers(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, Iterable):
        raise BrokerRefusal(f"headers are pairs of a name and bytes, and {pairs!r} is none")
    given: list[tuple[str, bytes | None]] = []
    for each in pairs:
        if not isinstance(each, tuple | list) or len(each) != 2 or not isinstance(each[0], str):
            raise BrokerRefusal(f"headers are pairs of a name and bytes, and {each!r} is none")
        _look_at_bytes("header's value", each[1])
        given.append((each[0], each[1]))
    return tuple(given)
