"""The tree of errors. The type says what helps; the message says what happened and what to change.

If aiokafka has a class of the same meaning, aiogroup's derives from it too, so that an existing `except` still catches
it. Every error can be pickled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from aiogroup._core.native import Record
from aiogroup.structs import TopicPartition, aiokafka_errors

_HEAP_TYPE = 1 << 9
"""CPython's Py_TPFLAGS_HEAPTYPE, which is set for classes made by a class statement."""


def _rebuild(cls: type[AiogroupError], state: dict[str, Any]) -> AiogroupError:
    built_in: Any = cls
    while built_in.__flags__ & _HEAP_TYPE:
        built_in = built_in.__base__  # the built-in class whose memory layout `cls` has: OSError for a TimeoutError
    error: AiogroupError = built_in.__new__(cls)
    error.args = state.pop("args")
    error.__dict__.update(state)
    return error


def named(partitions: Collection[TopicPartition], most: int = 8) -> str:
    """The names of the first `most` partitions, and how many more there are: `orders-0, orders-1 and 998 more`."""
    names = [f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)[:most]]
    left_count = len(partitions) - len(names)
    return f"{', '.join(names)} and {left_count} more" if left_count else ", ".join(names)


def of_all_attempts(last: AiogroupError, what: str, attempts_count: int, took_ms: int) -> AiogroupError:
    """The error to raise when the time for `what` is over: for a time-out of the last attempt it names all of them."""
    if not isinstance(last, KafkaTimeoutError) or attempts_count <= 1:
        return last
    return KafkaTimeoutError(f"{what} was tried {attempts_count} times in {took_ms} ms; the last time {last}")


class AiogroupError(Exception):
    """The root of all errors. `retriable`: the same call may succeed later without any change."""

    retriable: bool = False

    def __str__(self) -> str:
        """The message alone: aiokafka's classes would put a number and a text of their own in front of it."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {"args": self.args, **self.__dict__})


# Errors of the caller: change the call.


class ConfigError(AiogroupError, aiokafka_errors.KafkaConfigurationError, ValueError):
    """A setting is unknown, out of range, or contradicts another; the message names both and the rule."""


class IllegalStateError(AiogroupError, aiokafka_errors.IllegalStateError):
    """The call does not fit what the consumer is doing now; the message says what to do first."""


class IllegalOperation(AiogroupError, aiokafka_errors.IllegalOperation):  # noqa: N818 (aiokafka's name)
    """The call needs a group, and the consumer has none: pass `group_id`."""


class ConcurrentConsumptionError(IllegalStateError):
    """Two tasks read at once: one waits for records, or holds one that the other's request would mark as processed.

    Let one task read, or give each its own partitions by `getone(tp)`; or use `auto_ack=False` and `record.ack()`.
    """


class ConsumerStoppedError(AiogroupError, aiokafka_errors.ConsumerStoppedError):
    """The consumer was stopped; make a new one."""


# Errors of the connection: the cluster cannot be reached, or its answers cannot be read.


class ConnectionLostError(AiogroupError, aiokafka_errors.KafkaConnectionError):
    """No connection to a broker, or it broke before the answer came."""

    retriable = True


class AuthenticationFailedError(AiogroupError, aiokafka_errors.AuthenticationFailedError):
    """The broker refused the credentials. Nothing is retried, as repeating them could lock the account."""


class KafkaTimeoutError(AiogroupError, aiokafka_errors.KafkaTimeoutError, TimeoutError):
    """The brokers did not answer within the time-out that the message names."""

    retriable = True


class ProtocolError(AiogroupError, aiokafka_errors.KafkaProtocolError):
    """A broker sent bytes that are not Kafka's protocol. The connection was closed; another one may succeed."""

    retriable = True


class UnsupportedVersionError(AiogroupError, aiokafka_errors.UnsupportedVersionError):
    """The broker does not speak any version of a request that aiogroup needs."""


class BrokerError(AiogroupError, aiokafka_errors.BrokerResponseError):
    """A broker answered with an error code. `code` is Kafka's number, `name` Kafka's name for it."""

    retriable = False  # each error has its own, set in `__init__`

    def __init__(self, code: int, name: str, message: str, *, retriable: bool = False) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.code = code
        self.name = name
        self.retriable = retriable

    @property
    def errno(self) -> int:  # type: ignore[override]
        """aiokafka's name for `code`."""
        return self.code


class GroupAuthorizationError(AiogroupError, aiokafka_errors.GroupAuthorizationFailedError):
    """The principal may not do this in the group: grant it the right that the message names. Fatal to a member."""


class TopicAuthorizationError(AiogroupError, aiokafka_errors.TopicAuthorizationFailedError):
    """The principal may not READ these topics: add the ACL. `topics` names them."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        super().__init__(
            f"not authorized to read {sorted(self.topics)}: grant READ on the topic, which includes DESCRIBE, to this "
            "principal"
        )


class UnknownTopicOrPartitionError(KafkaTimeoutError, aiokafka_errors.UnknownTopicOrPartitionError):  # type: ignore[misc]
    """The topic or partition still did not exist when the time-out ended."""

    retriable = True


class InvalidTopicError(AiogroupError, aiokafka_errors.InvalidTopicError, ValueError):
    """Kafka refuses this topic name: letters, digits, '.', '_' and '-', at most 249."""


# The group.


class GroupError(AiogroupError, aiokafka_errors.KafkaError):
    """Something ended or changed this consumer's membership."""


class PollIntervalExceeded(GroupError):  # noqa: N818 (the specification's name)
    """Nobody asked for records for `max_poll_interval_ms`, so the member gave its partitions up (KIP-62)."""

    def __init__(self, partitions: Iterable[TopicPartition], max_poll_interval_ms: int) -> None:
        self.partitions = frozenset(partitions)
        self.max_poll_interval_ms = max_poll_interval_ms
        super().__init__(
            f"no request for records for max_poll_interval_ms={max_poll_interval_ms}: lost "
            f"{sorted(self.partitions)}. Process smaller batches (max_poll_records) or raise max_poll_interval_ms; "
            "the next request rejoins the group"
        )


class FencedInstanceIdError(GroupError):
    """Another member uses this `group_instance_id` (member_name) now: give each process its own. Fatal."""


DuplicateStaticMember = FencedInstanceIdError
"""KIP-345 draft 41's name for `FencedInstanceIdError`."""


class StaticMemberInfoMissing(GroupError):  # noqa: N818 (the specification's name)
    """NO_STATIC_MEMBER_INFO_SET of KIP-345 draft 41: a commit lacks its name or member id. No real broker sends it."""


class GroupNotFoundError(GroupError):
    """The cluster has no such group, or the group is not one of classic consumers."""


class MemberNotFoundError(GroupError):
    """The group has no static member of this name; the message names those that it has."""


class CommitFailedError(GroupError, aiokafka_errors.CommitFailedError):
    """Offsets of partitions that are no longer owned were not committed; their new owner repeats the records.

    `not_owned` lists those partitions; `committed` has the offsets of the others, which were committed.
    """

    def __init__(
        self,
        message: str,
        *,
        not_owned: Iterable[TopicPartition] = (),
        committed: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        Exception.__init__(self, message)
        self.not_owned = frozenset(not_owned)
        self.committed = dict(committed or {})


class RebalanceInProgressError(GroupError, aiokafka_errors.RebalanceInProgressError):
    """The group was still rebalancing when the time-out ended: ask for records, then commit again."""

    retriable = True


class InvalidSessionTimeoutError(GroupError, aiokafka_errors.InvalidSessionTimeoutError):
    """The broker refuses `session_timeout_ms`: see its group.min/max.session.timeout.ms. Fatal."""


class InconsistentGroupProtocolError(GroupError, aiokafka_errors.InconsistentGroupProtocolError):
    """The members of the group have no assignor in common: see `partition_assignment_strategy`. Fatal."""


class AssignorError(GroupError):
    """This member leads the group, and its assignor failed or gave an answer that members could not use. Fatal."""


# Records and positions.


class MergeStalledError(AiogroupError, aiokafka_errors.KafkaError):
    """A merge waits for partitions for which no broker answers without an error; `partitions` names them. Ask again."""

    retriable = True

    def __init__(self, message: str, *, partitions: Iterable[TopicPartition] = ()) -> None:
        super().__init__(message)
        self.partitions = frozenset(partitions)


class RecordError(AiogroupError, aiokafka_errors.KafkaError):
    """One partition cannot go on by itself, while the others do; `tp` names it."""

    def __init__(self, tp: TopicPartition, message: str) -> None:
        Exception.__init__(self, message)
        self.tp = tp
        self._message = message

    def __str__(self) -> str:
        """The message, also for classes whose `args` are those of aiokafka's class instead."""
        return self._message


class OffsetOutOfRangeError(RecordError, aiokafka_errors.OffsetOutOfRangeError):
    """The log no longer holds the position, and `auto_offset_reset="none"`: `seek` to the offset at which to go on.

    `args[0]` is `{tp: offset}`, as in aiokafka.
    """

    def __init__(self, tp: TopicPartition, offset: int) -> None:
        super().__init__(
            tp,
            f"{tp.topic}-{tp.partition}: offset {offset} is outside of the log and auto_offset_reset is 'none'; "
            "seek() to where to go on",
        )
        self.offset = offset
        self.args = ({tp: offset},)


class LogTruncationError(OffsetOutOfRangeError):
    """The log lost records that were read, and `auto_offset_reset="none"`: `seek` to the offset at which to go on.

    An unclean leader election or a lost disk truncated the log (KIP-320). From `diverging_offset` on it holds other
    records than those that were read, or none yet; `None` if the leader does not know that offset. `offset` is the
    position that was reached.
    """

    def __init__(self, tp: TopicPartition, offset: int, diverging_offset: int | None) -> None:
        since = "an unknown offset" if diverging_offset is None else f"offset {diverging_offset}"
        RecordError.__init__(
            self,
            tp,
            f"{tp.topic}-{tp.partition}: read up to offset {offset}, but from {since} on the log was truncated: what "
            "was read there is gone, other records may have taken its place; auto_offset_reset is 'none': seek() to "
            "where to go on",
        )
        self.offset = offset
        self.args = ({tp: offset},)
        self.diverging_offset = diverging_offset


class NoOffsetForPartitionError(RecordError, aiokafka_errors.NoOffsetForPartitionError):
    """Nothing was committed and `auto_offset_reset="none"`: `seek` in `on_partitions_assigned`, or set a policy.

    `args[0]` is the partition, as in aiokafka.
    """

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(
            tp,
            f"{tp.topic}-{tp.partition}: no committed offset and auto_offset_reset is 'none'; seek() to where to "
            "start, or set auto_offset_reset",
        )
        self.args = (tp,)


class CorruptRecordError(RecordError, aiokafka_errors.CorruptRecordException):
    """Bytes of a batch are damaged (checksum, length, compression).

    `seek` to `offset` fetches it again, `seek` past it skips it.
    """

    def __init__(self, tp: TopicPartition, offset: int, message: str) -> None:
        super().__init__(
            tp,
            f"{tp.topic}-{tp.partition} at offset {offset}: {message}; seek() to it fetches it again, skip() goes "
            "on after it",
        )
        self.offset = offset


class RecordTooLargeError(RecordError, aiokafka_errors.RecordTooLargeError):
    """A batch never came whole, although its full size was asked for: a broker or a proxy cuts it off.

    `offset` is the offset from which it is fetched, `batch_bytes` the size in its header. It is fetched again, with
    backoff, until it comes whole. `seek` past the batch skips it.
    """

    def __init__(self, tp: TopicPartition, offset: int, batch_bytes: int, message: str) -> None:
        super().__init__(tp, f"{tp.topic}-{tp.partition} at offset {offset}: {message}; seek() past the batch skips it")
        self.offset = offset
        self.batch_bytes = batch_bytes


class TimestampError(RecordError):
    """A merge cannot place a record: its timestamp is negative, or could not be extracted. The position stays on it.

    `record` is the record. `seek(tp, record.offset + 1)` skips it; `on_bad_timestamp` can skip all such records.
    """

    def __init__(self, record: Record[Any, Any], why: object) -> None:
        super().__init__(
            record.tp,
            f"{record.topic}-{record.partition} at offset {record.offset} has no time to be merged by: {why}; seek() "
            "past it, or pass on_bad_timestamp to skip such records",
        )
        self.record = record
        self.topic = record.topic
        self.partition = record.partition
        self.offset = record.offset


class RecordDeserializationError(CorruptRecordError):
    """A record could not be deserialized. All records before it were delivered, and the position stays on it.

    `topic`, `partition` and `offset` name the record; `key`, `value`, `headers` and `timestamp` are what it holds, in
    bytes, if that could be read (KIP-1036); `lane` is "live" or "catch-up" (KIP-333). `__cause__` is the deserializer's
    error; the message has only its class, since what it says often shows the record. `await consumer.skip()` goes on
    after the record, as `seek(tp, offset + 1)` does.
    """

    _handed_out: Record | None = None
    """The record, if it was handed out before something refused it: the consumer may have replaced its bytes."""

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        message: str,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int | None = None,
        lane: str = "live",
    ) -> None:
        super().__init__(tp, offset, message)
        self.lane = lane
        self.topic = tp.topic
        self.partition = tp.partition
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp


class DeadLetterError(AiogroupError):
    """A record is not known to be in the topic of its dead letters: it must not count as processed.

    `tp` and `offset` name the record; they are `None` where `DeadLetters` could not begin. `__cause__` is the
    producer's error. If it is `retriable` the same call may succeed later, and the letter may then be there twice.
    """

    def __init__(
        self, message: str, *, tp: TopicPartition | None = None, offset: int | None = None, retriable: bool = False
    ) -> None:
        super().__init__(message)
        self.tp = tp
        self.offset = offset
        self.retriable = retriable
