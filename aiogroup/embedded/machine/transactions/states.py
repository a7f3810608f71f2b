"""One transactional id: its producer, its epochs, the transaction that is under way (Kafka: TransactionMetadata)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from aiogroup._core.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from aiogroup.embedded.machine.timers import Timer

__all__ = ["STATE_NAMES", "Expected", "State", "TransactionalId"]

NO_ID = NO_EPOCH = NEVER = -1
LAST_EPOCH = 32_766
"""The last epoch that a producer can have. The next epoch only fences it; after that it gets another producer id."""


class State(Enum):
    """The state of a transaction. Kafka has two more states between Ongoing and the ends, because its markers take a
    while.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


STATE_NAMES = frozenset(
    {*(each.value for each in State), "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"},
)


class Expected(NamedTuple):
    """The id and epoch that a producer names when it asks for its id again (KIP-360)."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class TransactionalId:
    """What a coordinator knows of one transactional id."""

    name: str
    producer_id: int
    timeout_ms: int
    updated_at_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """The previous epoch, if the producer named it when it asked for this one: it may repeat that request."""
    last_producer_id: int = NO_ID
    state: State = State.EMPTY
    partitions: dict[tuple[str, int], None] = field(default_factory=dict)
    """The partitions in the order in which they were added. Offsets are represented by their groups' coordinator
    partitions.
    """
    started_at_ms: int = NEVER
    """When the current or the last transaction began."""
    timer: Timer | None = field(default=None, repr=False)

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH

    def refusal(self, producer_id: int, epoch: int) -> ErrorCode:
        """Why this producer may do nothing for the transactional id, or NONE."""
        if producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if epoch == self.epoch else ErrorCode.PRODUCER_FENCED

    def refusal_of_init(self, expected: Expected | None) -> ErrorCode:
        """Why the producer gets no epoch now, or NONE (TransactionCoordinator.prepareInitProducerIdTransit)."""
        if expected is not None and not self._may_have(expected):
            return ErrorCode.PRODUCER_FENCED
        if self.state is State.ONGOING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is None or self.epoch == NO_EPOCH or expected.epoch == self.epoch:
            return ErrorCode.NONE
        if self.is_exhausted:
            # Kafka's prepareIncrementProducerEpoch throws an exception that has no error code.
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE if expected.epoch == self.last_epoch else ErrorCode.PRODUCER_FENCED

    def _may_have(self, expected: Expected) -> bool:
        if self.epoch == NO_EPOCH or expected.producer_id == self.producer_id:
            return True
        # The producer did not get the answer with its new id, after its epochs were used up, and asks again.
        return expected.producer_id == self.last_producer_id and expected.epoch >= LAST_EPOCH

    def init(self, expected: Expected | None, timeout_ms: int, new_id: Callable[[], int], now_ms: int) -> None:
        """Give the producer its next epoch, or another id if the epochs are used up."""
        former_id, former_epoch = self.producer_id, self.epoch
        if expected is None or former_epoch == NO_EPOCH or expected.epoch == former_epoch:
            if self.is_exhausted:
                self.producer_id, self.epoch = new_id(), 0
            else:
                self.epoch += 1
            self.last_epoch = NO_EPOCH if expected is None else former_epoch
        # Otherwise it repeats its request, and gets the same answer.
        self.last_producer_id = former_id
        self.timeout_ms, self.updated_at_ms = timeout_ms, now_ms
        self.state, self.started_at_ms = State.EMPTY, NEVER

    def add(self, partitions: dict[tuple[str, int], None], now_ms: int) -> bool:
        """Make partitions part of the transaction, which begins with the first ones.

        Returns:
            whether it begins with these partitions.
        """
        begins = self.state is not State.ONGOING
        if begins:
            self.state, self.started_at_ms = State.ONGOING, now_ms
        elif partitions.keys() <= self.partitions.keys():
            return False
        self.partitions.update(partitions)
        self.updated_at_ms = now_ms
        return begins

    def fence(self) -> None:
        """Fence the producer: its transaction is aborted in an epoch that nobody has."""
        self.epoch += 1
        self.last_epoch = NO_EPOCH

    def end(self, *, is_committed: bool, now_ms: int) -> dict[tuple[str, int], None]:
        """End the transaction under way.

        Returns:
            its partitions.
        """
        self.stop_timer()
        partitions, self.partitions = self.partitions, {}
        self.state = State.COMMITTED if is_committed else State.ABORTED
        self.updated_at_ms = now_ms
        return partitions

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
