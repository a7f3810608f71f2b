"""Reads the partitions of a fetch one by one, within its limits, as ReplicaManager.readFromLog does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import AbortedTransaction, FetchPartition
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.faults import Faults, Place
from aiogroup.embedded.machine.logs.batches import header_of
from aiogroup.embedded.machine.logs.log import Log
from aiogroup.embedded.machine.logs.topics import Partition, Topics
from aiogroup.embedded.machine.reading.replicas import Nodes, preferred_replica, why_not
from aiogroup.embedded.machine.reading.sessions import Wanted

__all__ = ["Params", "Read", "Reads"]

UNKNOWN = -1
NONE = ErrorCode.NONE
_NO_PARTITIONS: list[Partition] = []


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of a fetch for all its partitions (Kafka: FetchParams)."""

    node_id: int
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    is_committed: bool
    """Whether it reads only up to the last stable offset (read_committed)."""
    only_leader: bool
    rack: str
    """The rack whose replicas it prefers; empty if it names none, or no selector is set."""


class Read:
    """The result of reading one partition. The defaults are class attributes, since most partitions have no news."""

    high_watermark = last_stable_offset = log_start_offset = UNKNOWN
    batches: Sequence[memoryview] = ()
    size_bytes = 0
    diverging: tuple[int, int] | None = None
    """The epoch in which the reader's log and this one were last the same, and where it ends."""
    preferred = UNKNOWN
    """The replica to read from instead."""
    is_always_news = False
    aborted: tuple[AbortedTransaction, ...] | None = None
    """The aborted transactions among the batches; `None` if Kafka's answer has no list at all."""

    def __init__(self, wanted: Wanted, error: ErrorCode, partition: Partition | None) -> None:
        self.wanted = wanted
        self.error = error
        self.partition = partition

    def refused(self, error: ErrorCode) -> Read:
        """The same partition with an error in place of everything that was read."""
        return Read(self.wanted, error, self.partition)


class Reads:
    """Reads partitions.

    Args:
        topics: where they are.
        nodes: the nodes with their racks.
        faults: the codes that a test asked for.
    """

    def __init__(self, topics: Topics, nodes: Nodes, faults: Faults) -> None:
        self._topics = topics
        self._nodes = nodes
        self._faults = faults

    def read(self, wanted: Iterable[Wanted], params: Params, exchange: Exchange) -> list[Read]:
        """Read in order. The very first batch is read whatever its size is (KIP-74). After that the limits of the fetch
        and of each partition apply.
        """
        found: list[Read] = []
        limit_bytes = params.max_bytes
        is_first = True
        refusal = self._refusals(exchange)
        name, partitions = None, _NO_PARTITIONS
        for each in wanted:
            if each.topic is not name or name is None:
                name = each.topic
                topic = self._topics.get(name) if name is not None else None
                partitions = _NO_PARTITIONS if topic is None else topic.partitions
            partition = partitions[each.index] if 0 <= each.index < len(partitions) else None
            if partition is None:
                read = Read(each, _not_found(each), None)
            elif refusal is not None and (code := refusal(each)):
                read = Read(each, code, partition)
            else:
                read = self._one(each, partition, params, limit_bytes, is_first)
                if read.size_bytes:
                    is_first = False
                    limit_bytes = max(0, limit_bytes - read.size_bytes)
            found.append(read)
        return found

    def denied(self, reads: list[Read], exchange: Exchange) -> list[Read]:
        """The reads, with errors in place of records where a test asked for that."""
        faults = self._faults
        if not faults.is_set:
            return reads
        answered = []
        for read in reads:
            code = faults.denial(exchange, _place(read.wanted)) if not read.error else NONE
            answered.append(read.refused(code) if code else read)
        return answered

    def look(self, wanted: Wanted, params: Params) -> Read:
        """Look at one partition, without faults and without its records."""
        partition = self._topics.partition(wanted.topic or "", wanted.index)
        if partition is None:
            return Read(wanted, _not_found(wanted), None)
        return self._one(wanted, partition, params, 0, False)

    def _refusals(self, exchange: Exchange) -> Callable[[Wanted], ErrorCode] | None:
        faults = self._faults
        return (lambda wanted: faults.refusal(exchange, _place(wanted))) if faults.is_set else None

    def _one(self, wanted: Wanted, partition: Partition, params: Params, limit_bytes: int, is_first: bool) -> Read:
        ask, node_id = wanted.ask, params.node_id
        topic_id = wanted.topic_id
        if topic_id is not partition.topic.topic_id and topic_id not in (partition.topic.topic_id, ZERO_UUID):
            # The topic was deleted and created again, and a session or this request knows the old one.
            is_there = node_id in partition.replicas
            code = ErrorCode.INCONSISTENT_TOPIC_ID if is_there else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return Read(wanted, code, partition)
        preferred = preferred_replica(partition, node_id, params.rack, self._nodes) if params.rack else UNKNOWN
        error = why_not(partition, node_id, ask.current_leader_epoch, only_leader=params.only_leader)
        if error:
            return Read(wanted, error, partition)
        log = partition.log
        start_offset, end_offset, offset = log.start_offset, log.end_offset, ask.fetch_offset
        diverging: tuple[int, int] | None = None
        if preferred < 0:
            if ask.last_fetched_epoch >= 0:
                found = divergence(log, ask)
                if isinstance(found, ErrorCode):
                    return Read(wanted, found, partition)
                diverging = found
            if diverging is None and not start_offset <= offset <= end_offset:
                return Read(wanted, ErrorCode.OFFSET_OUT_OF_RANGE, partition)
        read = Read(wanted, NONE, partition)
        read.high_watermark, read.log_start_offset = end_offset, start_offset
        read.last_stable_offset = stable = log.last_stable_offset
        if preferred >= 0:
            read.preferred, read.is_always_news = preferred, True
        elif diverging is not None:
            read.diverging, read.is_always_news = diverging, True
        elif offset < (until := stable if params.is_committed else end_offset):
            max_bytes = min(ask.partition_max_bytes, limit_bytes)
            read.batches, read.size_bytes = _batches(log, offset, until, max_bytes, is_first=is_first)
        if params.is_committed and preferred < 0 and diverging is None:
            read.aborted = aborted_transactions(read, log)
        return read


def _not_found(wanted: Wanted) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if wanted.topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def divergence(log: Log, ask: FetchPartition) -> tuple[int, int] | ErrorCode | None:
    """Where a reader's log differs from this one, if the reader names its last record's epoch (Partition.readRecords).

    Returns:
        an epoch and its end, or an error, or `None` if the logs do not differ up to the reader's offset.
    """
    epoch, end_offset = log.end_of_epoch(ask.last_fetched_epoch)
    if epoch == UNKNOWN or end_offset == UNKNOWN or ask.fetch_offset < log.start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch < ask.last_fetched_epoch or end_offset < ask.fetch_offset:
        return epoch, end_offset
    return None


def _batches(log: Log, offset: int, until: int, max_bytes: int, *, is_first: bool) -> tuple[list[memoryview], int]:
    """The batches from the one that holds `offset` on, and their size.

    Kafka sends a range of a file's bytes (LogSegment.read), so the last batch may be cut off. A single batch is not cut
    off: it is sent whole if it is the first of the answer, and otherwise not at all.
    """
    if max_bytes <= 0 and not is_first:
        return [], 0
    batches = log.read(offset, max_bytes, until_offset=until)
    size_bytes = sum(map(len, batches))
    if size_bytes > max_bytes and not is_first:
        return [], 0
    if (room_bytes := max_bytes - size_bytes) > 0 and batches:
        behind = header_of(batches[-1]).last_offset + 1
        if behind < until and (cut := log.read(behind, 0, until_offset=until)):
            batches = [*batches, cut[0][:room_bytes]]
            size_bytes += len(batches[-1])
    return batches, size_bytes


def aborted_transactions(read: Read, log: Log) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions among what was read."""
    if not read.batches:
        return ()
    found = log.aborted(read.wanted.ask.fetch_offset, read.size_bytes)
    return tuple(AbortedTransaction(each.producer_id, each.first_offset) for each in found)


def _place(wanted: Wanted) -> Place:
    return Place(topic=wanted.topic, partition=wanted.index)
