"""What Kafka's leader checks before it appends a client's batch: UnifiedLog, LogValidator, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.logs.batches import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    OVERHEAD_BYTES,
    Header,
    UnreadableBatchError,
    header_of,
    is_intact,
    read_records,
    recompressed,
    restamp,
    stamp,
)
from aiogroup.embedded.machine.logs.unpacking import MOST_RECORDS, MOST_UNPACKED_BYTES, unpacks_within

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.log import Log
    from aiogroup.embedded.machine.logs.topics import Topic
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["AppendRules", "Appended", "append", "has_flag", "only_batch"]

NO_TIMESTAMP = -1
LEAST_LENGTH = 14
"""The length field of the shortest batch that Kafka can read, which is of format 0."""
UP_TO_MAGIC_BYTES = 17
FORMAT = 2
ZSTD = 4
ATTRIBUTES_AT = 22
"""The position of the attributes' second byte, which has the codec and the flags."""
FIRST_VERSION_WITH_ZSTD = 7
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": ZSTD}
"""The values of compression.type, except `producer`."""


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The settings of a topic that say which batches it takes."""

    max_batch_bytes: int
    segment_bytes: int
    is_compacted: bool
    stamps: bool
    """Records get the instant of the append (LogAppendTime)."""
    before_max_ms: int
    after_max_ms: int
    codec: int | None
    """How batches are kept compressed; `None`: as producers sent them."""

    @classmethod
    def of(cls, settings: Settings, topic: Topic) -> AppendRules:
        return cls(
            max_batch_bytes=settings.of_topic(topic, "max.message.bytes"),
            segment_bytes=settings.of_topic(topic, "segment.bytes"),
            is_compacted="compact" in settings.of_topic(topic, "cleanup.policy"),
            stamps=settings.of_topic(topic, "message.timestamp.type") == "LogAppendTime",
            before_max_ms=settings.of_topic(topic, "message.timestamp.before.max.ms"),
            after_max_ms=settings.of_topic(topic, "message.timestamp.after.max.ms"),
            codec=CODECS.get(settings.of_topic(topic, "compression.type")),
        )


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome for one batch, as in a Produce answer."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str], ...] = ()
    """(place in the batch, message)"""
    message: str | None = None
    size_bytes: int = 0
    """How many bytes were appended: 0 if the batch is a repetition or refused."""


class RefusedBatchError(Exception):
    """A batch that is not appended."""

    def __init__(self, appended: Appended) -> None:
        super().__init__(appended.error.name)
        self.appended = appended


def _refused(error: ErrorCode, log: Log | None = None, message: str | None = None) -> RefusedBatchError:
    """Kafka's answer has the log's start offset only for errors that it did not foresee. For these, `log` is given."""
    return RefusedBatchError(
        Appended(error, log_start_offset=-1 if log is None else log.start_offset, message=message),
    )


def has_flag(records: bytes | bytearray | memoryview | None, flag: int) -> bool | ErrorCode:
    """Whether the first batch of a request has a flag among its attributes (RequestUtils.hasTransactionalRecords), or
    why the whole request is refused because of it.
    """
    size_bytes = _first_batch_bytes(records)
    if isinstance(size_bytes, ErrorCode):
        return size_bytes
    return records is not None and size_bytes > ATTRIBUTES_AT and bool(records[ATTRIBUTES_AT] & flag)


def only_batch(records: bytes | bytearray | memoryview | None, version: int) -> bytearray | ErrorCode:
    """The one batch that a Produce request of `version` holds for a partition, copied, or why it is refused before the
    partition is looked at (ProduceRequest.validateRecords). Bytes after it that are no whole batch are dropped, as in
    Kafka.
    """
    size_bytes = _first_batch_bytes(records)
    if isinstance(size_bytes, ErrorCode):
        return size_bytes
    if records is None or not size_bytes:
        return ErrorCode.INVALID_RECORD
    with memoryview(records) as view:
        if view[16] != FORMAT:
            return ErrorCode.INVALID_RECORD
        if version < FIRST_VERSION_WITH_ZSTD and size_bytes >= HEADER_BYTES:
            codec = view[ATTRIBUTES_AT] & CODEC_MASK
            if codec == ZSTD:
                return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            if codec > ZSTD:
                return ErrorCode.UNKNOWN_SERVER_ERROR
        behind = _first_batch_bytes(view[size_bytes:])
        if isinstance(behind, ErrorCode):
            return behind
        if behind:
            return ErrorCode.INVALID_RECORD
        return bytearray(view[:size_bytes])


def _first_batch_bytes(records: bytes | bytearray | memoryview | None) -> int | ErrorCode:
    """The size of the first batch, 0 if it is not complete (ByteBufferLogInputStream)."""
    if records is None or len(records) < OVERHEAD_BYTES:
        return 0
    length = int.from_bytes(records[8:12], "big", signed=True)
    if length < LEAST_LENGTH:
        return ErrorCode.CORRUPT_MESSAGE
    if len(records) < UP_TO_MAGIC_BYTES:
        return 0
    if records[16] > FORMAT:
        return ErrorCode.CORRUPT_MESSAGE
    size_bytes = OVERHEAD_BYTES + length
    return size_bytes if size_bytes <= len(records) else 0


def append(log: Log, batch: bytearray, leader_epoch: int, rules: AppendRules, now_ms: int) -> Appended:
    """Check a client's batch, and append it. Returns the outcome, also for a repetition or a refusal."""
    try:
        header = _checked_header(log, batch, rules)
        latest_ms = _check_records(log, batch, header, rules, now_ms)
        if rules.codec is not None and rules.codec != header.codec:
            batch = recompressed(batch, rules.codec)
            if len(batch) > rules.max_batch_bytes:
                raise _refused(ErrorCode.MESSAGE_TOO_LARGE)
        if rules.stamps:
            stamp(batch, now_ms)
        elif latest_ms != header.max_timestamp or header.attributes & LOG_APPEND_TIME:
            restamp(batch, latest_ms)
        if len(batch) > rules.segment_bytes:
            raise _refused(ErrorCode.RECORD_LIST_TOO_LARGE)
        if header.producer_id >= 0:
            if (kept := log.producers.repeated(header)) is not None:
                return Appended(
                    base_offset=kept.base_offset,
                    append_time_ms=kept.max_timestamp,
                    log_start_offset=log.start_offset,
                )
            if (error := log.producers.refusal(header)) is not ErrorCode.NONE:
                raise _refused(error, log)
        if not log.budget.has_room(len(batch)):
            raise _refused(
                ErrorCode.POLICY_VIOLATION,
                log,
                f"the embedded broker holds {log.budget.used_bytes} bytes of record batches, {len(batch)} more came, "
                f"and its max_bytes is {log.budget.max_bytes}: give Broker a greater max_bytes, or delete topics or "
                "records",
            )
    except RefusedBatchError as refused:
        return refused.appended
    return Appended(
        base_offset=log.append(batch, leader_epoch),
        append_time_ms=now_ms if rules.stamps else NO_TIMESTAMP,
        log_start_offset=log.start_offset,
        size_bytes=len(batch),
    )


def _checked_header(log: Log, batch: bytearray, rules: AppendRules) -> Header:
    """UnifiedLog.analyzeAndValidateRecords, and LogValidator.validateBatch."""
    if len(batch) < HEADER_BYTES:
        raise _refused(ErrorCode.CORRUPT_MESSAGE)
    header = header_of(batch)
    if header.base_offset != 0:
        raise _refused(ErrorCode.INVALID_RECORD, log)
    if len(batch) > rules.max_batch_bytes:
        raise _refused(ErrorCode.MESSAGE_TOO_LARGE)
    if not is_intact(batch, header.crc):
        raise _refused(ErrorCode.CORRUPT_MESSAGE)
    if header.codec > ZSTD:
        # Kafka's CompressionType.forId throws an exception that has no error code.
        raise _refused(ErrorCode.UNKNOWN_SERVER_ERROR, log)
    if header.records_count <= 0 or header.last_offset_delta + 1 != header.records_count:
        raise _refused(ErrorCode.INVALID_RECORD, log)
    if header.is_control or (header.producer_id >= 0 and header.base_sequence < 0):
        raise _refused(ErrorCode.INVALID_RECORD, log)
    return header


def _look_how_much_it_is(log: Log, batch: bytearray, header: Header) -> None:
    """Refuse a batch that unpacks to too many bytes. Kafka has no such bound."""
    if header.records_count > MOST_RECORDS:
        much = f"{header.records_count} records are in one batch"
    else:
        with memoryview(batch) as view:
            if unpacks_within(header.codec, view[HEADER_BYTES:]):
                return
        much = f"a batch of {len(batch)} bytes unpacks to more than {MOST_UNPACKED_BYTES} bytes"
    raise _refused(ErrorCode.POLICY_VIOLATION, log, f"the embedded broker unpacks batches at once, and {much}")


def _check_records(log: Log, batch: bytearray, header: Header, rules: AppendRules, now_ms: int) -> int:
    """LogValidator.validateRecord, for each record.

    Returns:
        the records' greatest timestamp.
    """
    if header.codec:
        _look_how_much_it_is(log, batch, header)
    try:
        records = read_records(batch)
    except UnreadableBatchError as error:
        # Kafka's decompressors throw exceptions that have no error code.
        code = ErrorCode.UNKNOWN_SERVER_ERROR if error.is_compression else ErrorCode.INVALID_RECORD
        raise _refused(code, log) from None
    if header.codec and any(record.offset != place for place, record in enumerate(records)):
        # Kafka tries to rebuild the batch, and fails.
        raise _refused(ErrorCode.UNKNOWN_SERVER_ERROR, log)
    times_ms = [record.timestamp for record in records]
    earliest_allowed_ms, latest_allowed_ms = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    is_stamped = bool(header.attributes & LOG_APPEND_TIME)
    latest_ms = max(times_ms)
    is_in_time = rules.stamps or (min(times_ms) >= earliest_allowed_ms and latest_ms <= latest_allowed_ms)
    if is_in_time and not is_stamped and not rules.is_compacted:
        return max(latest_ms, NO_TIMESTAMP)
    errors: list[tuple[int, str]] = []
    has_wrong_time = False
    for place, record in enumerate(records):
        time_ms = times_ms[place]
        if rules.is_compacted and record.key is None:
            errors.append((place, "Compacted topic cannot accept message without key"))
        elif rules.stamps or time_ms == NO_TIMESTAMP:
            if is_stamped:
                has_wrong_time = True
                errors.append((place, "Producer should not set timestamp type to LogAppendTime"))
        elif not earliest_allowed_ms <= time_ms <= latest_allowed_ms:
            has_wrong_time = True
            bounds = f"[{earliest_allowed_ms}, {latest_allowed_ms}]"
            errors.append((place, f"Timestamp {time_ms} is out of range: it should be within {bounds}"))
    if errors:
        why = "invalid timestamp" if has_wrong_time else f"{len(errors)} record errors in total"
        raise RefusedBatchError(
            Appended(
                ErrorCode.INVALID_TIMESTAMP if has_wrong_time else ErrorCode.INVALID_RECORD,
                log_start_offset=log.start_offset,
                record_errors=tuple(errors),
                message=f"One or more records have been rejected due to {why}",
            )
        )
    return max(latest_ms, NO_TIMESTAMP)
