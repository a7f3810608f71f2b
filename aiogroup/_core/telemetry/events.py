"""All events of aiogroup: one frozen dataclass for each.

The class name in snake case is the log key, the fields are the log's fields, and `level` is the log level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from aiogroup._core.telemetry.event import Emit, Event, FailingEnded, FailingStill, Level, Observer
from aiogroup._core.telemetry.recovery_events import (
    CatchUpDone,
    CatchUpStarted,
    CaughtUp,
    ForeignToken,
    HandOffOverdue,
    JobProgressed,
    RangeDone,
    RangesDropped,
    RangeTruncated,
)
from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = [
    "CatchUpDone",
    "CatchUpStarted",
    "CaughtUp",
    "Emit",
    "Event",
    "FailingEnded",
    "FailingStill",
    "ForeignToken",
    "HandOffOverdue",
    "JobProgressed",
    "Observer",
    "RangeDone",
    "RangeTruncated",
    "RangesDropped",
]

RECREATED: Final = "the topic was deleted and recreated"
"""Why positions are reset if it was."""


@dataclass(frozen=True, slots=True)
class MemberMoved(Event):
    LEVEL: ClassVar[Level] = "debug"
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True)
class HeartbeatSent(Event):
    LEVEL: ClassVar[Level] = "debug"
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatAcknowledged(Event):
    LEVEL: ClassVar[Level] = "debug"
    generation: int
    latency_ms: int


@dataclass(frozen=True, slots=True)
class HeartbeatMissed(Event):
    LEVEL: ClassVar[Level] = "warning"
    why: str
    is_expected: bool = False

    @property
    def level(self) -> Level:
        return "info" if self.is_expected else self.LEVEL


@dataclass(frozen=True, slots=True)
class SessionUnanswered(Event):
    """No heartbeat was answered for a session, so another member may have the partitions: nothing is handed out.

    The next answer lets delivery go on, or says that the partitions are lost. With `deliver_while_unreachable` delivery
    goes on meanwhile. `setting` names the time-out after which the coordinator drops the member.
    """

    LEVEL: ClassVar[Level] = "warning"
    setting: str
    session_timeout_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorFound(Event):
    node_id: int


@dataclass(frozen=True, slots=True)
class CoordinatorLost(Event):
    LEVEL: ClassVar[Level] = "warning"
    node_id: int
    why: str
    is_expected: bool = False

    @property
    def level(self) -> Level:
        return "info" if self.is_expected else self.LEVEL


@dataclass(frozen=True, slots=True)
class StaticMembershipDowngraded(Event):
    """The coordinator is too old for static names: this member is a dynamic one from now on."""

    LEVEL: ClassVar[Level] = "warning"
    member_name: str
    node_id: int
    join_group_version: int


@dataclass(frozen=True, slots=True)
class PollIntervalWarning(Event):
    LEVEL: ClassVar[Level] = "warning"
    since_request_ms: int
    max_poll_interval_ms: int


@dataclass(frozen=True, slots=True)
class PollIntervalExceeded(Event):
    LEVEL: ClassVar[Level] = "warning"
    partitions: tuple[TopicPartition, ...]
    max_poll_interval_ms: int
    broker_acts_within_ms: int


@dataclass(frozen=True, slots=True)
class EventLoopBlocked(Event):
    blocked_ms: int
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class SessionEndangered(Event):
    """The loop was blocked for more than half of the session, and the heartbeats with it."""

    LEVEL: ClassVar[Level] = "warning"
    blocked_ms: int
    session_timeout_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class HeartbeatEventsDropped(Event):
    """The loop was blocked for a long time, and the oldest `events_count` events of the heartbeat thread are lost."""

    LEVEL: ClassVar[Level] = "warning"
    events_count: int


@dataclass(frozen=True, slots=True)
class MemberRemoved(Event):
    """The coordinator does not know this member any more; the member joins again as a new one."""

    LEVEL: ClassVar[Level] = "warning"
    member_id: str
    why: str


@dataclass(frozen=True, slots=True)
class RebalanceStarted(Event):
    why: str
    generation: int
    reason: str = "other"
    """`why` in one of eight words, which docs/metrics.md lists."""


@dataclass(frozen=True, slots=True)
class RebalanceWaitingForApplication(Event):
    LEVEL: ClassVar[Level] = "warning"
    why: str
    waited_ms: int
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True)
class RebalanceCompleted(Event):
    why: str
    generation: int
    partitions: tuple[TopicPartition, ...]
    duration_ms: int
    is_leader: bool
    reason: str = "other"


@dataclass(frozen=True, slots=True)
class RebalanceFailed(Event):
    LEVEL: ClassVar[Level] = "warning"
    why: str
    duration_ms: int
    is_expected: bool = False

    @property
    def level(self) -> Level:
        return "info" if self.is_expected else self.LEVEL


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(Event):
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsLost(Event):
    LEVEL: ClassVar[Level] = "warning"
    partitions: tuple[TopicPartition, ...]
    why: str


@dataclass(frozen=True, slots=True)
class MemberFailed(Event):
    """The member was fenced, is not authorized, or met another error for which no retry helps."""

    LEVEL: ClassVar[Level] = "error"
    why: str
    error: str = ""
    """The name of the error's type."""


@dataclass(frozen=True, slots=True)
class ListenerFailed(Event):
    LEVEL: ClassVar[Level] = "error"
    callback: str
    error: str


@dataclass(frozen=True, slots=True)
class ErrorDropped(Event):
    LEVEL: ClassVar[Level] = "error"
    error: str


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(Event):
    LEVEL: ClassVar[Level] = "debug"
    partitions_count: int
    latency_ms: int


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    LEVEL: ClassVar[Level] = "warning"
    partitions: tuple[TopicPartition, ...]
    why: str


@dataclass(frozen=True, slots=True)
class UncommittedAtRevoke(Event):
    """Processed records of a revoked partition were not committed: its next owner repeats them."""

    LEVEL: ClassVar[Level] = "warning"
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PositionFromPolicy(Event):
    """Nothing was committed for these partitions: the policy said where to start. `offsets` are in the same order."""

    LEVEL: ClassVar[Level] = "debug"
    partitions: tuple[TopicPartition, ...]
    offsets: tuple[int, ...]
    policy: str

    @classmethod
    def of_round(cls, found: Mapping[TopicPartition, tuple[str, int]]) -> list[PositionFromPolicy]:
        """One event for each policy, of partitions whose positions were looked up together."""
        policies = sorted({policy for policy, _ in found.values()})
        of = {policy: sorted(tp for tp in found if found[tp][0] == policy) for policy in policies}
        return [cls(tuple(tps), tuple(found[tp][1] for tp in tps), policy) for policy, tps in of.items()]


@dataclass(frozen=True, slots=True)
class OffsetReset(Event):
    """The log did not hold a position any more, and the policy moved it: records are skipped or come again.

    `skipped_count` is the number of offsets between the former position and the new one. With the policy `nearest`
    retention removed these before they were read.
    """

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    offset: int
    policy: str
    why: str
    skipped_count: int

    @property
    def level(self) -> Level:
        return "debug" if self.why == RECREATED else self.LEVEL  # `PartitionsStarted` warns of these topics


@dataclass(frozen=True, slots=True)
class PartitionsStarted(Event):
    """Where partitions go on that do not simply go on at their committed offset: the totals of one assignment.

    Each partition has an event of its own at the level debug: `position_from_policy`, `new_partition_from_earliest`,
    `catch_up_started` and `topic_recreated`.
    """

    from_policy_count: int
    """Nothing was committed for these partitions, so the reset policy chose."""
    new_count: int
    """These were added to their topic while it was read, and begin at their first record."""
    catching_up_count: int
    """Ranges of these are pending, and are read beside new records (KIP-333)."""
    pending_count: int
    """How many offsets are in these ranges."""
    recreated_count: int
    """The topics of these were deleted and recreated, and are read anew."""
    recreated_topics: tuple[str, ...]

    @property
    def level(self) -> Level:
        return "warning" if self.recreated_topics else self.LEVEL


@dataclass(frozen=True, slots=True)
class TopicRecreated(Event):
    """A topic was deleted and recreated, and has a new log. The `position` in the old log does not count any more.

    `position` is `None` if it was not known. `old_topic_id` is "" if only the checksum of a token shows the change.
    """

    LEVEL: ClassVar[Level] = "debug"
    topic: str
    partition: int
    position: int | None
    old_topic_id: str
    new_topic_id: str


@dataclass(frozen=True, slots=True)
class LogTruncated(Event):
    """The leader's log differs from what was read (KIP-320): it lacks the last `records_count` offsets read.

    `position` is the position that was reached.
    """

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    position: int
    leader_epoch: int
    diverging_offset: int | None
    records_count: int | None
    action: str


@dataclass(frozen=True, slots=True)
class NewPartitionFromEarliest(Event):
    LEVEL: ClassVar[Level] = "debug"
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class FetchFailed(Event):
    LEVEL: ClassVar[Level] = "warning"
    node_id: int
    topic: str | None
    partition: int | None
    why: str


@dataclass(frozen=True, slots=True)
class FetchSessionLost(Event):
    """A broker dropped its fetch session (KIP-227): the next request names every partition again."""

    node_id: int
    why: str
    partitions_count: int


@dataclass(frozen=True, slots=True)
class MetadataFailed(Event):
    LEVEL: ClassVar[Level] = "warning"
    why: str


@dataclass(frozen=True, slots=True)
class TopicMissing(Event):
    """No broker has had a subscribed topic for some seconds, or one refuses it. The topic is read when somebody creates
    it, or grants it.
    """

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    why: str


@dataclass(frozen=True, slots=True)
class RecordRedelivered(Event):
    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    offset: int
    redelivered_count: int


@dataclass(frozen=True, slots=True)
class PoisonRecord(Event):
    LEVEL: ClassVar[Level] = "error"
    topic: str
    partition: int
    offset: int
    why: str


@dataclass(frozen=True, slots=True)
class DeadLetterSent(Event):
    """A record was given up: all replicas have it in the topic of its dead letters."""

    LEVEL: ClassVar[Level] = "info"
    topic: str
    partition: int
    offset: int
    letter_topic: str
    letter_partition: int
    letter_offset: int
    error: str


@dataclass(frozen=True, slots=True)
class DeadLetterFailed(Event):
    LEVEL: ClassVar[Level] = "error"
    topic: str
    partition: int
    offset: int
    letter_topic: str
    why: str


@dataclass(frozen=True, slots=True)
class MergeEnforced(Event):
    """A merge goes on although these partitions have no record to compare with (KIP-695)."""

    LEVEL: ClassVar[Level] = "debug"
    partitions: tuple[TopicPartition, ...]
    enforced_count: int


@dataclass(frozen=True, slots=True)
class MergeStalled(Event):
    """A merge has waited for this partition for a long time, and no broker answered for it without an error."""

    LEVEL: ClassVar[Level] = "warning"
    topic: str
    partition: int
    state: str
    blocked_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class SlowDecoder(Event):
    """aiogroup's C extension is not used: records take several times as long."""

    LEVEL: ClassVar[Level] = "warning"
    why: str
    what_to_do: str


@dataclass(frozen=True, slots=True)
class ObserverFailed(Event):
    LEVEL: ClassVar[Level] = "error"
    observer: str
    event_name: str
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class TaskFailed(Event):
    LEVEL: ClassVar[Level] = "error"
    task: str
    error: str


@dataclass(frozen=True, slots=True)
class RecordsLeftInHand(Event):
    """`stop` has ended, and the application held records that were not said to be processed, though no error was under
    way: they come again.
    """

    LEVEL: ClassVar[Level] = "warning"
    partitions: tuple[TopicPartition, ...]
    records_count: int
    what_to_do: str


@dataclass(frozen=True, slots=True)
class StopIncomplete(Event):
    """`stop` could not do all before its time-out, or an error was left that no call raises any more. What was
    processed of these partitions is not committed, so it comes again. The offsets are in the `StopReport`.
    """

    LEVEL: ClassVar[Level] = "warning"
    partitions: tuple[TopicPartition, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsumerStopped(Event):
    clean: bool
    duration_ms: int


# The events of a service (aiogroup.asgi).


@dataclass(frozen=True, slots=True)
class ServiceNotStarted(Event):
    """A service is probed that nobody has started. Told once; `why` says what starts it."""

    LEVEL: ClassVar[Level] = "warning"
    consumers: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class EventLoopShared(Event):
    """The consumers share the server's event loop: what blocks it blocks their heartbeats too."""

    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StaticNameInWorker(Event):
    """A consumer with a static name runs in a worker process of a server: its siblings would have the same name."""

    LEVEL: ClassVar[Level] = "warning"
    consumer: str
    member_name: str


@dataclass(frozen=True, slots=True)
class NoBrokerYet(Event):
    """No broker has answered since the start. Told at once, and then each minute with the number of attempts."""

    LEVEL: ClassVar[Level] = "warning"
    consumer: str
    why: str
    attempts_count: int


@dataclass(frozen=True, slots=True)
class NoPartitionAssigned(Event):
    """The first assignment has no partition for this consumer: the group has more members than partitions."""

    consumer: str


@dataclass(frozen=True, slots=True)
class LoopFailed(Event):
    """A loop has ended: `why` is body_raised, body_ended, consumer_failed or fenced. It is started again after
    `restart_in_ms`, or not at all (`None`). `in_hand` has the first record in hand of up to five partitions, as
    topic-partition@offset: one of them may have made the body fail.
    """

    LEVEL: ClassVar[Level] = "error"
    consumer: str
    why: str
    error: str
    traceback: str
    restart_in_ms: int | None
    in_hand: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopDegraded(Event):
    """The application said that something which a loop needs is down: `service[name].degraded(what)`."""

    LEVEL: ClassVar[Level] = "warning"
    consumer: str
    what: str


@dataclass(frozen=True, slots=True)
class LoopRecovered(Event):
    """The application's block `degraded(what)` has ended."""

    consumer: str
    what: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class FencedStill(Event):
    """Told each minute: another process has this consumer's static name, and this one reads nothing."""

    LEVEL: ClassVar[Level] = "error"
    consumer: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class BodyNotEnded(Event):
    """The body has not ended within the time of the stop, nor when it was cancelled after it: it is left behind."""

    LEVEL: ClassVar[Level] = "error"
    consumer: str
    stop_timeout_ms: int
