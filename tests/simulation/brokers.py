"""The embedded broker's machine as a simulation uses it: one topic's records, one group, and a checker that is told."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup._core.recovery.token import LogId
from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.groups.coordinator import GroupCoordinator
from aiogroup.embedded.machine.logs.direct import DirectLogs
from aiogroup.embedded.machine.observers import Observer
from aiogroup.embedded.machine.settings import Settings
from tests.simulation.network import Network

GROUP = "billing"
REPLICAS = 3
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "300",
    # So few that readers lose theirs to others.
    "max.incremental.fetch.session.cache.slots": "2",
    "min.incremental.fetch.session.eviction.ms": "1000",
}


class Brokers(Observer):
    """`nodes` brokers, numbered from 1. The checker learns what the machine does, and who asked for it."""

    network_type = Network

    def __init__(self, loop, rng, nodes, tell, **properties):
        self.loop = loop
        self.tell = tell
        settings = Settings.of({**PROPERTIES, **properties})
        self.cluster = Cluster(settings, rng, nodes=nodes)
        self.cluster.observers.all[:] = [self]
        self.network = self.network_type(self.cluster, loop, rng)
        self.network.open()
        self.checker = None
        self.made_counts = {}  # by topic: how often it was recreated; each record says it as its timestamp
        self.gone = set()  # topics that are deleted now
        self.ambushes = {}  # what happens when the next "generation" begins, the next "assignment" is handed in
        self._logs = DirectLogs(self.cluster.topics, settings)
        self._replicas_count = min(nodes, REPLICAS)

    def set_checker(self, checker):
        self.checker = self.network.checker = checker

    def do(self, act):
        """Change the machine: `act(now_ms)`."""
        self.network.control(act)
        self.network.flush()

    # What is in the cluster.

    @property
    def servers(self):
        return self.network.addresses().split(", ")

    @property
    def up(self):
        return [node.node_id for node in self.cluster.nodes.up]

    @property
    def coordinator_node(self):
        return self.cluster.coordinators.seat_of(GROUP).node_id

    @property
    def coordinator(self):
        """The group's, unless it loads or its node is down."""
        return self.cluster.coordinators.seat_of(GROUP).coordinator

    def ends(self, topic):
        """The offset behind the last record of each partition; none of a topic that is not there."""
        found = self.cluster.topics.get(topic)
        return [] if found is None else [each.log.end_offset for each in found.partitions]

    def place(self, tp):
        return LogId(self.cluster.cluster_id, tp.topic, self.cluster.topics.get(tp.topic).topic_id, tp.partition)

    def name_of(self, topic_id):
        """`None`: there is no such topic, or no longer."""
        found = self.cluster.topics.by_id(topic_id)
        return None if found is None else found.name

    def add_partitions(self, topic, count):
        def add(now_ms):
            topics = self.cluster.topics
            found = topics.get(topic)
            if found is None:
                topics.create(topic, count, now_ms, replication_factor=self._replicas_count)
            else:
                topics.add_partitions(found, count, now_ms, replication_factor=self._replicas_count)

        self.do(add)

    def delete_topic(self, topic, partitions, after_ms):
        """The coordinator forgets its offsets; after a while there is another one of that name."""
        self.gone.add(topic)
        self.tell("brokers", f"{topic} is deleted")
        self.checker.on_deleted(topic)
        self.do(lambda now_ms: self.cluster.topics.delete(self.cluster.topics.get(topic), now_ms))
        self.loop.call_later(after_ms / 1000, self._recreate, topic, partitions, context=self.network.outside)

    def _recreate(self, topic, partitions):
        self.made_counts[topic] = self.made_counts.get(topic, 0) + 1
        self.gone.discard(topic)
        self.tell("brokers", f"{topic} is recreated with {partitions} partitions")
        self.add_partitions(topic, partitions)

    def append(self, topic, partition, count):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for number in range(count):
            builder.append(number, self.made_counts.get(topic, 0), None, b"", [])
        self.do(lambda now_ms: self._logs.append(topic, partition, builder.build(), now_ms))
        self.tell("brokers", f"{count} records in {topic}-{partition}, end {self.ends(topic)[partition]}")

    def expire(self, tp, to_offset):
        self.tell("brokers", f"{tp.topic}-{tp.partition} begins at {to_offset}")
        partition = self.cluster.topics.partition(tp.topic, tp.partition)

        def act(now_ms):
            partition.log.delete_before(to_offset)
            partition.changed(now_ms)

        self.do(act)

    # Faults.

    def move_coordinator(self, node, loading_ms):
        """In order: who waits is told, and the log is read again."""
        self.tell("brokers", f"coordinator moves to node {node}, loading {loading_ms} ms")
        self.do(lambda now_ms: self.cluster.coordinators.move(GROUP, node, loading_ms, now_ms))

    def take_down(self, node, failover_ms):
        """It dies: connections break, its partitions and groups are led by others after a while."""
        if len(self.up) > 1:
            self.tell("brokers", f"node {node} dies")
            self.do(lambda now_ms: self.cluster.nodes.kill(node, now_ms, failover_ms))

    def bring_up(self, node):
        if node not in self.up:
            self.tell("brokers", f"node {node} is up")
            self.do(lambda now_ms: self.cluster.nodes.start(node, now_ms))

    def move_leader(self, topic, partition, node):
        found = self.cluster.topics.partition(topic, partition)
        if found.leader != node:
            self.tell("brokers", f"{topic}-{partition} is led by node {node}")
            self.do(lambda now_ms: found.elect(node, now_ms))

    # What the machine tells.

    def before_request(self, exchange, _now_ms):
        request = exchange.request
        group_id = getattr(request, "group_id", None)
        if group_id is None:
            return
        process = self.network.processes[exchange.peer]
        coordinator = self.cluster.coordinators.at(exchange.node_id, group_id)
        if isinstance(coordinator, GroupCoordinator):
            self.checker.before_request(process, request, coordinator.groups)
            if isinstance(request, SyncGroupRequest) and request.assignments:
                self._spring("assignment")
        elif isinstance(request, HeartbeatRequest) and exchange.node_id == self.coordinator_node:
            self.checker.on_blind_answer(process)

    def on_answers(self, exchange, answered, _now_ms):
        processes = self.network.processes
        self.checker.on_answers([(processes.get(each.peer), each.request, each.response) for each in answered])
        if exchange is not None and hasattr(exchange.request, "group_id"):
            self.checker.on_request(processes[exchange.peer], exchange.request, exchange.response)

    def on_generation(self, group, _now_ms):
        self.checker.on_generation(group)
        self._spring("generation")

    def on_expired(self, _group, member_id, _now_ms):
        self.checker.on_expired(member_id)

    def _spring(self, moment):
        ambush = self.ambushes.pop(moment, None)
        if ambush is not None:
            self.loop.call_later(0.002, ambush, context=self.network.outside)
