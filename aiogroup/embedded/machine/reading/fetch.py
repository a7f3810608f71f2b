"""Fetch: what is read, when it is answered, and what the answer holds (KafkaApis.handleFetchRequest)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any
from uuid import UUID

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.exchange import Exchange, Handler, Peer
from aiogroup.embedded.machine.faults.faults import Faults
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.reading.reads import Params, Read, Reads
from aiogroup.embedded.machine.reading.replicas import ISOLATION_LEVELS, Nodes
from aiogroup.embedded.machine.reading.sessions import Plan, Sessions, Wanted
from aiogroup.embedded.machine.reading.waiting import WaitingFetch
from aiogroup.embedded.machine.refusals import Troubles
from aiogroup.embedded.machine.settings import Settings
from aiogroup.embedded.machine.timers import Timers
from aiogroup.embedded.messages.framing import Batches

__all__ = ["Fetching"]

READ_COMMITTED = 1
ONLY_AS_A_WHOLE_SINCE = 13
"""For older clients Kafka repeats the error of a whole request at each partition."""
FIRST_WITH_RACK = 11
FIRST_WITH_REPLICA_STATE = 15
FIRST_WITH_ADDRESSES = 16

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The error codes of Fetch that apply to a whole request. A fault with another code applies to a partition."""
WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

# The defaults of an answered partition. They are made once, because each costs more than the rest of a partition.
NO_DIVERGENCE = EpochEndOffset()
NO_LEADER = LeaderIdAndEpoch()


class Fetching:
    """Serves Fetch at all nodes.

    Args:
        topics: what is read.
        timers: end the waits.
        faults: the codes that a test asked for.
        settings: of the cluster.
        nodes: their racks and addresses.
        troubles: where it is noted that a replica was refused.
        new_session_id: makes session ids, which are greater than 0.
    """

    def __init__(
        self,
        topics: Topics,
        timers: Timers,
        faults: Faults,
        settings: Settings,
        nodes: Nodes,
        troubles: Troubles,
        new_session_id: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._timers = timers
        self._faults = faults
        self._settings = settings
        self._nodes = nodes
        self._troubles = troubles
        self._new_session_id = new_session_id
        self._reads = Reads(topics, nodes, faults)
        self._sessions: dict[int, Sessions] = {}
        self._readers: dict[Peer, tuple[str, tuple[Wanted, ...]]] = {}
        """By connection: its client id, and the partitions of its last fetch."""
        self._max_bytes: int = settings["fetch.max.bytes"]
        self._is_by_rack = bool(settings["replica.selector.class"])

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {FetchRequest: self.fetch}

    def sessions(self, node_id: int) -> Sessions:
        """The sessions of a node."""
        found = self._sessions.get(node_id)
        if found is None:
            settings = self._settings
            found = self._sessions[node_id] = Sessions(
                self._new_session_id,
                settings["max.incremental.fetch.session.cache.slots"],
                settings["min.incremental.fetch.session.eviction.ms"],
                self._name_of,
            )
        return found

    def forget(self, node_id: int) -> None:
        """Forget the sessions of a node that died: they were in its memory."""
        self._sessions.pop(node_id, None)

    def _name_of(self, topic_id: UUID) -> str | None:
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.name

    def fetch(self, exchange: Exchange, request: FetchRequest, now_ms: int) -> None:
        version = exchange.version
        if code := self._faults.refusal(exchange, among=SESSION_ERRORS):
            exchange.answer(FetchResponse(error_code=code), now_ms)
            return
        if _replica_of(request, version) >= 0:
            self._troubles.note("replicas", f"{exchange.client_id or 'a client'} fetched as a replica", now_ms)
            self._refuse(exchange, request, ErrorCode.INVALID_REQUEST, now_ms)
            return
        if request.isolation_level not in ISOLATION_LEVELS:
            self._refuse(exchange, request, ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)
            return
        plan = self.sessions(exchange.node_id).plan(request, version, now_ms)
        self._note_reader(exchange, plan)
        params = self._params(exchange, request)
        reads: list[Read] = []
        lost: list[Read] = []
        for read in self._reads.read(plan.wanted, params, exchange):
            if read.partition is None:
                read.aborted = ()
                lost.append(read)
            else:
                reads.append(read)
        # Partitions that do not exist come last in the answer, and do not end the wait.
        if not reads or params.max_wait_ms <= 0 or _is_enough(reads, params.min_bytes):
            self._answer(exchange, plan, reads + lost, now_ms)
            return

        def finish(at_ms: int, is_touched: bool) -> None:
            if exchange.peer.is_closed:
                return
            is_old = is_touched or self._faults.is_set or any(map(_has_lost_its_begin, reads))
            latest = self._reads.read([read.wanted for read in reads], params, exchange) if is_old else reads
            self._answer(exchange, plan, latest + lost, at_ms)

        waiting = WaitingFetch(exchange.number, params, reads, self._reads, finish)
        exchange.give_up = waiting.give_up
        waiting.begin(self._timers, now_ms)

    def _note_reader(self, exchange: Exchange, plan: Plan) -> None:
        if exchange.peer not in self._readers:
            self._readers = {peer: each for peer, each in self._readers.items() if not peer.is_closed}
        self._readers[exchange.peer] = (exchange.client_id, plan.wanted)

    def positions(self, topic: str, client_id: str | None = None) -> dict[int, int]:
        """Where clients that are connected now read a topic: the offset of the last fetch by partition, if it lies
        within the log. If a partition has two readers, the one that connected later counts.
        """
        found: dict[int, int] = {}
        for peer, (name, all_wanted) in self._readers.items():
            if peer.is_closed or client_id not in (None, name):
                continue
            for wanted in all_wanted:
                partition = self._topics.partition(topic, wanted.index) if wanted.topic == topic else None
                if partition is None or peer.node_id not in partition.replicas:
                    continue
                if not wanted.is_of(partition.topic.topic_id):
                    continue
                if partition.log.start_offset <= wanted.ask.fetch_offset <= partition.log.end_offset:
                    found[wanted.index] = wanted.ask.fetch_offset
        return found

    def _params(self, exchange: Exchange, request: FetchRequest) -> Params:
        max_bytes = min(request.max_bytes, self._max_bytes)
        return Params(
            node_id=exchange.node_id,
            max_bytes=max_bytes,
            min_bytes=min(request.min_bytes, max_bytes),
            max_wait_ms=request.max_wait_ms,
            is_committed=request.isolation_level == READ_COMMITTED,
            only_leader=exchange.version < FIRST_WITH_RACK,
            rack=request.rack_id if self._is_by_rack else "",
        )

    def _refuse(self, exchange: Exchange, request: FetchRequest, code: ErrorCode, now_ms: int) -> None:
        """FetchRequest.getErrorResponse."""
        topics = tuple(
            FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                tuple(PartitionData(each.partition, code, -1, records=b"") for each in topic.partitions),
            )
            for topic in request.topics
        )
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and exchange.version >= ONLY_AS_A_WHOLE_SINCE:
            topics = ()
        exchange.answer(FetchResponse(error_code=code, responses=topics), now_ms)

    def _answer(self, exchange: Exchange, plan: Plan, reads: list[Read], now_ms: int) -> None:
        answered = self._reads.denied(reads, exchange)
        error, session_id, news = plan.settle(answered, now_ms)
        endpoints: dict[int, NodeEndpoint] = {}
        topics = []
        for (topic_id, name), of_topic in groupby(news, lambda read: (read.wanted.topic_id, read.wanted.topic)):
            partitions = tuple(self._told(read, exchange.version, endpoints) for read in of_topic)
            topics.append(FetchableTopicResponse(name or "", topic_id, partitions))
        response = FetchResponse(
            error_code=error,
            session_id=session_id,
            responses=tuple(topics),
            node_endpoints=tuple(endpoints.values()),
        )
        exchange.answer(response, now_ms)

    def _told(self, read: Read, version: int, endpoints: dict[int, NodeEndpoint]) -> PartitionData:
        leader = NO_LEADER
        if version >= FIRST_WITH_ADDRESSES and read.error in WRONG_LEADER and read.partition is not None:
            leader_id = read.partition.leader
            leader = LeaderIdAndEpoch(leader_id, read.partition.leader_epoch)
            address = self._nodes.get(leader_id)
            if address is not None and self._nodes.is_up(leader_id):
                endpoints[leader_id] = NodeEndpoint(leader_id, address.host, address.port, address.rack)
        return PartitionData(
            partition_index=read.wanted.index,
            error_code=read.error,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            diverging_epoch=NO_DIVERGENCE if read.diverging is None else EpochEndOffset(*read.diverging),
            current_leader=leader,
            aborted_transactions=read.aborted,
            preferred_read_replica=read.preferred,
            records=Batches.of(read.batches) if read.batches else b"",
        )


def _replica_of(request: FetchRequest, version: int) -> int:
    return request.replica_id if version < FIRST_WITH_REPLICA_STATE else request.replica_state.replica_id


def _has_lost_its_begin(read: Read) -> bool:
    """Whether records were deleted since the read. That does not end a wait in Kafka, but after the wait it reads
    again.
    """
    return read.partition is not None and read.partition.log.start_offset != read.log_start_offset


def _is_enough(reads: list[Read], min_bytes: int) -> bool:
    """Whether a fetch is answered without waiting (ReplicaManager.fetchMessages)."""
    total = 0
    for read in reads:
        if read.error or read.is_always_news:
            return True
        total += read.size_bytes
    return total >= min_bytes
