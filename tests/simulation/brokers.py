"""A few brokers that share logs and metadata; one coordinates the group, through the embedded coordinator."""

from __future__ import annotations

import contextvars
from dataclasses import replace
from uuid import UUID

from aiogroup.embedded.machine.groups.coordinator import GroupCoordinator
from aiogroup.embedded.machine.groups.group import GroupSettings
from aiogroup.embedded.machine.groups.log import CoordinatorLog
from aiogroup.protocol.errors import ErrorCode as E
from aiogroup.protocol.framing import decode_request, encode_response
from aiogroup.protocol.messages import REQUESTS
from aiogroup.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiogroup.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aiogroup.protocol.messages.fetch import FetchRequest, PartitionData
from aiogroup.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aiogroup.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from aiogroup.protocol.messages.list_offsets import (
    EARLIEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from aiogroup.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiogroup.protocol.messages.offset_commit import (
    FIRST_BY_ID,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiogroup.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aiogroup.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)
from aiogroup.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup.recovery.token import LogId
from tests.simulation.fetches import Sessions
from tests.simulation.log import Log

PORT = 9_092
CLUSTER_ID = "simulated"
RANGES = tuple(ApiVersion(key, each.MIN_VERSION, each.MAX_VERSION) for key, each in sorted(REQUESTS.items()))


class Brokers:
    """`applied(request)` is told every commit, `generation(group)` every generation that begins."""

    def __init__(self, loop, rng, nodes, tell, settings=None):
        self.loop = loop
        self.rng = rng
        self.nodes = dict.fromkeys(range(nodes), True)
        self.tell = tell
        self.topics = {}
        self.made_counts = {}  # by topic: how often it was recreated
        self.gone = set()  # topics that are deleted now
        self.log = CoordinatorLog()
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=300)
        self.network = None
        self.checker = None
        self.outside = contextvars.Context()
        self.coordinator_node = 0
        self.coordinator = None
        self.is_loading = False
        self.ambushes = {}  # what happens when the next "generation" begins, the next "assignment" is handed in
        self._members_count = 0
        self._waiting = []  # (ticket, fetch, ends_at): fetches without records
        self._sessions = [Sessions() for _ in range(nodes)]
        self._timer = None
        self._load()

    # What is in the cluster.

    def node_at(self, host, _port):
        return int(host.removeprefix("node"))

    def is_up(self, node):
        return self.nodes[node]

    @property
    def up(self):
        return [node for node, is_up in self.nodes.items() if is_up]

    def add_partitions(self, topic, count):
        logs = self.topics.setdefault(topic, [])
        for _ in range(count):
            logs.append(Log(self.up[len(logs) % len(self.up)], self.made_counts.get(topic, 0)))

    def delete_topic(self, topic, partitions, after_ms):
        """The coordinator forgets its offsets; after a while there is another one of that name."""
        self.gone.add(topic)
        self.log.forget(topic)
        self.tell("brokers", f"{topic} is deleted")
        self.checker.on_deleted(topic)
        self._look_at_fetches()
        self.loop.call_later(after_ms / 1000, self._recreate, topic, partitions, context=self.outside)

    def _recreate(self, topic, partitions):
        self.made_counts[topic] = self.made_counts.get(topic, 0) + 1
        self.topics[topic] = []
        self.add_partitions(topic, partitions)
        self.gone.discard(topic)
        self.tell("brokers", f"{topic} is recreated with {partitions} partitions")
        self._look_at_fetches()

    def append(self, topic, partition, count):
        self.topics[topic][partition].append(count)
        self.tell("brokers", f"{count} records in {topic}-{partition}, end {self.topics[topic][partition].end}")
        self._look_at_fetches()

    def topic_id(self, topic):
        return UUID(int=1 + sorted(self.topics).index(topic) + 1_000 * self.made_counts.get(topic, 0))

    def has(self, topic, partition=None):
        is_there = topic in self.topics and topic not in self.gone
        return is_there and (partition is None or partition < len(self.topics[topic]))

    def place(self, tp):
        return LogId(CLUSTER_ID, tp.topic, self.topic_id(tp.topic), tp.partition)

    def now_ms(self):
        return int(self.loop.time() * 1000)

    # Faults.

    def move_coordinator(self, node, loading_ms):
        """In order: who waits is told, and the log is read again."""
        if self.coordinator is not None:
            self._answer_all(self.coordinator.resign())
        self._hand_over(node, loading_ms)

    def _hand_over(self, node, loading_ms):
        self.tell("brokers", f"coordinator moves to node {node}, loading {loading_ms} ms")
        self.coordinator_node, self.coordinator, self.is_loading = node, None, True
        self.loop.call_later(loading_ms / 1000, self._load, context=self.outside)

    def _load(self):
        if self.coordinator is None and self.nodes[self.coordinator_node]:
            self.is_loading = False
            self.coordinator = GroupCoordinator(self._new_id, self.settings, self.log, self.now_ms())
            self.tell("brokers", f"node {self.coordinator_node} coordinates")
            self._set_timer()

    def _new_id(self, prefix):
        self._members_count += 1
        return f"{prefix}-{self._members_count}"

    def take_down(self, node, failover_ms):
        """It dies: connections break, its partitions and groups are led by others after a while."""
        if len(self.up) < 2:
            return
        self.nodes[node] = False
        self._sessions[node] = Sessions()
        self.tell("brokers", f"node {node} dies")
        self.network.cut_all(node=node)
        self._waiting = [each for each in self._waiting if each[0][0].node != node]
        if self.coordinator_node == node:
            self.coordinator = None
        self.loop.call_later(failover_ms / 1000, self._fail_over, node, context=self.outside)

    def _fail_over(self, node):
        for logs in self.topics.values():
            for number, log in enumerate(logs):
                if not self.nodes[log.leader]:
                    log.elect(self.up[number % len(self.up)])
        if self.coordinator is None and not self.nodes[self.coordinator_node]:
            self._hand_over(self.up[0], 50)

    def bring_up(self, node):
        if not self.nodes[node]:
            self.nodes[node] = True
            self.tell("brokers", f"node {node} is up")
            self._fail_over(node)
            if self.coordinator is None:
                self._load()

    def move_leader(self, topic, partition, node):
        log = self.topics[topic][partition]
        if log.leader != node:
            log.elect(node)
            self.tell("brokers", f"{topic}-{partition} is led by node {node}")
            self._look_at_fetches()

    # Requests.

    def take(self, transport, frame):
        transport.requests.append(frame)
        if len(transport.requests) == 1:
            self._work(transport)

    def _work(self, transport):
        """One request at a time on a connection: Kafka's rule."""
        header, request = decode_request(transport.requests[0])
        ticket = (transport, type(request), header.api_version, header.correlation_id)
        match request:
            case ApiVersionsRequest():
                self._answer(ticket, ApiVersionsResponse(api_keys=RANGES))
            case MetadataRequest():
                self._answer(ticket, self._metadata(request))
            case FindCoordinatorRequest():
                self._answer(ticket, self._found(request))
            case ListOffsetsRequest():
                self._answer(ticket, self._offsets(transport.node, request))
            case OffsetForLeaderEpochRequest():
                self._answer(ticket, self._epoch_ends(transport.node, request))
            case FetchRequest():
                now = self.loop.time()
                fetch = self._sessions[transport.node].begin(request, now)
                self._waiting.append((ticket, fetch, now + request.max_wait_ms / 1000))
                self.loop.call_later(request.max_wait_ms / 1000, self._look_at_fetches, context=self.outside)
                self._look_at_fetches()
            case _:
                self._ask_coordinator(ticket, request, header)

    def _answer(self, ticket, response):
        transport, request_type, version, correlation_id = ticket
        frame = encode_response(request_type, response, version, correlation_id)
        self.network.send_down(transport, frame, request_type.API_KEY)
        if transport.requests:
            transport.requests.pop(0)
        if transport.requests:
            self._work(transport)

    def _metadata(self, request):
        known = [name for name in self.topics if name not in self.gone]
        asked = known if request.topics is None else [each.name for each in request.topics]
        topics = []
        for name in asked:
            if not self.has(name):
                topics.append(MetadataResponseTopic(error_code=E.UNKNOWN_TOPIC_OR_PARTITION, name=name))
                continue
            partitions = tuple(
                MetadataResponsePartition(
                    error_code=E.NONE if self.nodes[log.leader] else E.LEADER_NOT_AVAILABLE,
                    partition_index=number,
                    leader_id=log.leader if self.nodes[log.leader] else -1,
                    leader_epoch=log.epoch,
                )
                for number, log in enumerate(self.topics[name])
            )
            topics.append(MetadataResponseTopic(name=name, topic_id=self.topic_id(name), partitions=partitions))
        brokers = tuple(MetadataResponseBroker(node, f"node{node}", PORT) for node in self.up)
        return MetadataResponse(brokers=brokers, cluster_id=CLUSTER_ID, topics=tuple(topics))

    def _found(self, request):
        (key,) = request.coordinator_keys
        node = self.coordinator_node
        if not self.nodes[node]:
            return FindCoordinatorResponse(coordinators=(Coordinator(key, -1, "", -1, E.COORDINATOR_NOT_AVAILABLE),))
        return FindCoordinatorResponse(coordinators=(Coordinator(key, node, f"node{node}", PORT),))

    def _offsets(self, node, request):
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                if not self.has(topic.name, each.partition_index):
                    code = E.UNKNOWN_TOPIC_OR_PARTITION
                    partitions.append(ListOffsetsPartitionResponse(each.partition_index, code, -1, -1, -1))
                    continue
                log = self.topics[topic.name][each.partition_index]
                code = E.NONE if log.leader == node else E.NOT_LEADER_OR_FOLLOWER
                offset = -1 if code else 0 if each.timestamp == EARLIEST else log.end
                partitions.append(ListOffsetsPartitionResponse(each.partition_index, code, -1, offset, log.epoch))
            topics.append(ListOffsetsTopicResponse(topic.name, tuple(partitions)))
        return ListOffsetsResponse(topics=tuple(topics))

    def _epoch_ends(self, node, request):
        topics = []
        for topic in request.topics:
            results = []
            for each in topic.partitions:
                if not self.has(topic.topic, each.partition):
                    code = E.UNKNOWN_TOPIC_OR_PARTITION
                    results.append(OffsetForLeaderPartitionResult(code, each.partition, -1, -1))
                    continue
                log = self.topics[topic.topic][each.partition]
                code = log.refusal(node, each.current_leader_epoch)
                epoch, end = (-1, -1) if code else log.end_of(each.leader_epoch)
                results.append(OffsetForLeaderPartitionResult(code, each.partition, epoch, end))
            topics.append(OffsetForLeaderTopicResult(topic.topic, tuple(results)))
        return OffsetForLeaderEpochResponse(topics=tuple(topics))

    def _look_at_fetches(self):
        waiting, self._waiting = self._waiting, []
        for ticket, fetch, ends_at in waiting:
            if ticket[0].is_cut:
                continue
            names = self._names()
            read = {key: self._read(ticket[0].node, names.get(key[0]), each) for key, each in fetch.partitions.items()}
            is_worth = fetch.error_code or any(data.error_code or data.records for data in read.values())
            if is_worth or self.loop.time() >= ends_at:
                self._answer(ticket, fetch.answer(read, names))
            else:
                self._waiting.append((ticket, fetch, ends_at))

    def _names(self):
        return {self.topic_id(name): name for name in self.topics if name not in self.gone}

    def _read(self, node, name, asked):
        if name is None or not self.has(name, asked.partition):
            code = E.UNKNOWN_TOPIC_ID if name is None else E.UNKNOWN_TOPIC_OR_PARTITION
            return PartitionData(asked.partition, code, -1, -1, -1, records=b"")
        log = self.topics[name][asked.partition]
        code = log.refusal(node, asked.current_leader_epoch)
        if not code and asked.fetch_offset > log.end:
            code = E.OFFSET_OUT_OF_RANGE
        records = b"" if code else log.read(asked.fetch_offset)
        return PartitionData(asked.partition, code, log.end, log.end, 0, records=records)

    # The group.

    def _ask_coordinator(self, ticket, request, header):
        transport = ticket[0]
        if transport.node != self.coordinator_node:
            self._answer(ticket, refusal(request, E.NOT_COORDINATOR))
        elif self.coordinator is None:
            if isinstance(request, HeartbeatRequest):
                self.checker.on_blind_answer(transport.process)
            self._answer(ticket, refusal(request, E.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            now_ms = self.now_ms()
            self._tick()
            generations = self._generations()
            self.checker.before_request(transport.process, request, self.coordinator.groups)
            request, refused = self._named(request, header.api_version)
            answers = self.coordinator.handle(
                ticket, request, now_ms, version=header.api_version, client_id=header.client_id or ""
            )
            if refused:
                answers = [
                    replace(each, response=self._with(each.response, refused)) if each.ticket is ticket else each
                    for each in answers
                ]
            self._look_at_generations(generations)
            self.checker.on_request(transport.process, request, answers)
            if isinstance(request, SyncGroupRequest) and request.assignments:
                self._spring("assignment")
            self._answer_all(answers)
            self._set_timer()

    def _named(self, request, version):
        """The coordinator knows topics by name: the request with names, and what a broker refuses before it."""
        match request:
            case OffsetCommitRequest():
                topics, refused = self._split(request.topics, version)
                return replace(request, topics=topics), refused
            case OffsetFetchRequest() if version >= FIRST_BY_ID:
                (group,) = request.groups
                topics, refused = self._split(group.topics, version)
                return replace(request, groups=(replace(group, topics=topics),)), refused
        return request, ()

    def _split(self, topics, version):
        names, known, refused = self._names(), [], []
        for topic in topics:
            name = names.get(topic.topic_id) if version >= FIRST_BY_ID else topic.name
            if name is not None and self.has(name):
                known.append(replace(topic, name=name))
            else:
                refused.append((topic, E.UNKNOWN_TOPIC_ID if name is None else E.UNKNOWN_TOPIC_OR_PARTITION))
        return tuple(known), refused

    def _with(self, response, refused):
        if isinstance(response, OffsetCommitResponse):
            more = tuple(
                OffsetCommitResponseTopic(
                    topic.name,
                    topic.topic_id,
                    tuple(OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions),
                )
                for topic, code in refused
            )
            return replace(response, topics=response.topics + more)
        (group,) = response.groups
        more = tuple(
            OffsetFetchResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(OffsetFetchResponsePartition(each, -1, -1, "", code) for each in topic.partition_indexes),
            )
            for topic, code in refused
        )
        return replace(response, groups=(replace(group, topics=group.topics + more),))

    def _generations(self):
        return {group_id: group.generation for group_id, group in self.coordinator.groups.items()}

    def _look_at_generations(self, before):
        for group_id, group in self.coordinator.groups.items():
            if group.generation != before.get(group_id):
                self.checker.on_generation(group)
                self._spring("generation")

    def _spring(self, moment):
        ambush = self.ambushes.pop(moment, None)
        if ambush is not None:
            self.loop.call_later(0.002, ambush, context=self.outside)

    def _tick(self):
        if self.coordinator is None:
            return
        generations = self._generations()
        now_ms = self.now_ms()
        silent = [
            (group, each.member_id)
            for group in self.coordinator.groups.values()
            for each in group.members
            if each.session_ends_at_ms is not None and each.session_ends_at_ms <= now_ms
        ]
        answers = self.coordinator.tick(now_ms)
        for group, member_id in silent:
            if member_id not in group.members:
                self.checker.on_expired(member_id)
        self._look_at_generations(generations)
        self._answer_all(answers)

    def _answer_all(self, answers):
        for each in answers:
            if not each.ticket[0].is_cut:
                self._answer(each.ticket, each.response)

    def _set_timer(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_ms = None if self.coordinator is None else self.coordinator.next_at_ms
        if at_ms is not None:
            self._timer = self.loop.call_at(at_ms / 1000 + 0.001, self._on_timer, context=self.outside)

    def _on_timer(self):
        self._timer = None
        self._tick()
        self._set_timer()


def refusal(request, code):
    """An answer that says only this."""
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name=None)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            # A coordinator that loads has nothing against a member (GroupCoordinatorService.heartbeat).
            return HeartbeatResponse(error_code=0 if code == E.COORDINATOR_LOAD_IN_PROGRESS else code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case DescribeGroupsRequest():
            groups = tuple(DescribedGroup(error_code=code, group_id=each) for each in request.groups)
            return DescribeGroupsResponse(groups=groups)
        case OffsetCommitRequest():
            return OffsetCommitResponse(
                topics=tuple(
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=tuple(
                            OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions
                        ),
                    )
                    for topic in request.topics
                )
            )
        case OffsetFetchRequest():
            groups = tuple(OffsetFetchResponseGroup(each.group_id, (), code) for each in request.groups)
            return OffsetFetchResponse(groups=groups)
    raise AssertionError(f"unexpected request {request!r}")
