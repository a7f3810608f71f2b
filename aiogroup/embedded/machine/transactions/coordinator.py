"""Begins, checks, ends and expires transactions (Kafka: TransactionCoordinator). A transaction ends in one step. Kafka
needs two, because its markers travel to other nodes, and it refuses requests in between with CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.internal_topics import OFFSETS
from aiogroup.embedded.machine.logs.batches import End, marker
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.transactions.states import Expected, State, TransactionalId

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.settings import Settings
    from aiogroup.embedded.machine.timers import Timers
    from aiogroup.embedded.machine.transactions.seats import Seat, Seats

__all__ = ["Groups", "TransactionCoordinator"]

Partitions = dict[tuple[str, int], None]


class Groups(Protocol):
    """The calls to groups when a transaction ends."""

    def number_of(self, group_id: str, /) -> int:
        """The group's coordinator partition."""

    def end_transaction(self, producer_id: int, /, *, is_committed: bool) -> None:
        """Commit or forget the pending offsets of the producer's transaction."""


class TransactionCoordinator:
    """All coordinators of transactions together; `seats` knows which of them a node may ask."""

    def __init__(
        self,
        seats: Seats,
        settings: Settings,
        timers: Timers,
        new_id: Callable[[], int],
        topics: Topics,
        groups: Groups,
    ) -> None:
        self.seats = seats
        self._timers = timers
        self._new_id = new_id
        self._topics = topics
        self._groups = groups
        self._max_timeout_ms: int = settings["transaction.max.timeout.ms"]
        self._expiration_ms: int = settings["transactional.id.expiration.ms"]
        seats.on_load = self._on_load

    # Questions.

    def find(self, seat: Seat, transactional_id: str, now_ms: int) -> TransactionalId | None:
        found = seat.ids.get(transactional_id)
        if found is not None and self._is_expired(found, now_ms):
            del seat.ids[transactional_id]
            return None
        return found

    def at_node(self, node_id: int, now_ms: int) -> Iterator[TransactionalId] | ErrorCode:
        """All transactional ids that a node coordinates, or why it cannot tell."""
        mine = [seat for seat in self.seats if seat.node_id == node_id]
        if any(not seat.is_served for seat in mine):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return (each for seat in mine for each in seat.ids.values() if not self._is_expired(each, now_ms))

    def _is_expired(self, each: TransactionalId, now_ms: int) -> bool:
        return each.state is not State.ONGOING and each.updated_at_ms + self._expiration_ms <= now_ms

    def offsets_of(self, group_id: str) -> tuple[str, int]:
        """The partition that stands for a group's offsets in a transaction."""
        return OFFSETS, self._groups.number_of(group_id)

    # Snapshots.

    def kept(self) -> tuple[TransactionalId, ...]:
        """Copies of the states of all transactional ids.

        Raises:
            BrokerRefusal: a transaction is under way.
        """
        found = [each for seat in self.seats for each in seat.ids.values()]
        for each in found:
            if each.state is State.ONGOING:
                raise BrokerRefusal(f"the transaction of {each.name} is under way: wait for its end")
        return tuple(replace(each, partitions={}) for each in found)

    def put_back(self, kept: Iterable[TransactionalId]) -> None:
        """Replace the states of all transactional ids."""
        for seat in self.seats:
            for each in seat.ids.values():
                each.stop_timer()
            seat.ids.clear()
        for each in kept:
            self.seats.of(each.name).ids[each.name] = replace(each, partitions={})

    # Requests.

    def init(
        self, node_id: int, transactional_id: str, timeout_ms: int, expected: Expected | None, now_ms: int
    ) -> TransactionalId | ErrorCode:
        """Give a producer its id and the next epoch. The owner of the previous epoch is fenced, and its transaction is
        aborted.
        """
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < timeout_ms <= self._max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        seat = self.seats.at(node_id, transactional_id)
        if isinstance(seat, ErrorCode):
            return seat
        found = self.find(seat, transactional_id, now_ms)
        if found is None:
            found = TransactionalId(transactional_id, self._new_id(), timeout_ms, now_ms)
            seat.ids[transactional_id] = found
        if code := found.refusal_of_init(expected):
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                # The producer asks again, and then gets the epoch after this one.
                self._fence(seat, found, now_ms)
            return code
        found.init(expected, timeout_ms, self._new_id, now_ms)
        return found

    def add(
        self, node_id: int, transactional_id: str, producer: Expected, partitions: Partitions, now_ms: int
    ) -> ErrorCode:
        """Make partitions part of the producer's transaction."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        seat = self.seats.at(node_id, transactional_id)
        if isinstance(seat, ErrorCode):
            return seat
        return self._add(seat, transactional_id, producer, partitions, now_ms)

    def _add(
        self, seat: Seat, transactional_id: str, producer: Expected, partitions: Partitions, now_ms: int
    ) -> ErrorCode:
        found = self._producer(seat, transactional_id, producer, now_ms)
        if isinstance(found, ErrorCode):
            return found
        if found.add(partitions, now_ms):
            self._watch(found)
        return ErrorCode.NONE

    def end(
        self, node_id: int, transactional_id: str, producer: Expected, *, is_committed: bool, now_ms: int
    ) -> ErrorCode:
        """Commit or abort. A repeated request for the same end gets the same answer."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        seat = self.seats.at(node_id, transactional_id)
        if isinstance(seat, ErrorCode):
            return seat
        found = self._producer(seat, transactional_id, producer, now_ms)
        if isinstance(found, ErrorCode):
            return found
        if found.state is State.ONGOING:
            self._end(seat, found, is_committed=is_committed, now_ms=now_ms)
            return ErrorCode.NONE
        is_repeated = found.state is (State.COMMITTED if is_committed else State.ABORTED)
        return ErrorCode.NONE if is_repeated else ErrorCode.INVALID_TXN_STATE

    def _producer(
        self, seat: Seat, transactional_id: str, producer: Expected, now_ms: int
    ) -> TransactionalId | ErrorCode:
        found = self.find(seat, transactional_id, now_ms)
        if found is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return found.refusal(*producer) or found

    def verify(
        self, transactional_id: str, producer: Expected, partition: tuple[str, int], now_ms: int, *, adds: bool = False
    ) -> ErrorCode:
        """Whether a partition's leader may take the first records of a transaction, or a group's coordinator its first
        offsets: the partition must have been added (KIP-890).

        Args:
            transactional_id: of the producer.
            producer: its id and epoch.
            partition: where the records are to go.
            now_ms: now.
            adds: add the partition to the transaction if it is not in it.
        """
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        seat = self.seats.anywhere(transactional_id)
        if isinstance(seat, ErrorCode):
            return seat
        code = ErrorCode.NONE
        if adds:
            code = self._add(seat, transactional_id, producer, {partition: None}, now_ms)
        else:
            found = self._producer(seat, transactional_id, producer, now_ms)
            if isinstance(found, ErrorCode):
                code = found
            elif partition not in found.partitions:
                code = ErrorCode.TRANSACTION_ABORTABLE
        return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code

    # The end.

    def _end(self, seat: Seat, each: TransactionalId, *, is_committed: bool, now_ms: int) -> None:
        for topic, index in each.end(is_committed=is_committed, now_ms=now_ms):
            partition = self._topics.partition(topic, index)
            if partition is not None and not partition.topic.is_internal:
                batch = marker(End(is_committed, seat.epoch), each.producer_id, each.epoch, now_ms)
                partition.log.append(batch, partition.leader_epoch)
                partition.appended(len(batch), now_ms)
        self._groups.end_transaction(each.producer_id, is_committed=is_committed)

    def _fence(self, seat: Seat, each: TransactionalId, now_ms: int) -> None:
        each.fence()
        self._end(seat, each, is_committed=False, now_ms=now_ms)

    # Time.

    def _watch(self, each: TransactionalId) -> None:
        # Kafka looks every ten seconds (transaction.abort.timed.out.transaction.cleanup.interval.ms).
        due_at_ms = max(each.started_at_ms + each.timeout_ms + 1, self._timers.now_ms)
        each.timer = self._timers.at(due_at_ms, lambda at_ms: self._expire(each, at_ms))

    def _expire(self, each: TransactionalId, now_ms: int) -> None:
        seat = self.seats.of(each.name)
        if seat.is_served:
            self._fence(seat, each, now_ms)

    def _on_load(self, seat: Seat, _now_ms: int) -> None:
        for each in seat.ids.values():
            if each.state is State.ONGOING:
                each.stop_timer()
                self._watch(each)
