"""Compaction and retention. They happen when a test asks for them, and never by a timer."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from aiogroup.embedded.machine.logs.batches import Record, UnreadableBatchError, header_of, read_records, rebuilt
from aiogroup.embedded.machine.refusals import BrokerRefusal

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Partition
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["compact", "expire"]


def compact(partition: Partition, settings: Settings, now_ms: int, *, with_tombstones: bool = False) -> int:
    """Keep the last record of each key, as Kafka's cleaner does. Records keep their offsets and batches keep their
    bounds, so readers meet holes. The last batch stays whole: Kafka does not clean the segment that it appends to, and
    without that batch a reader would not reach the end. Aborted records are removed. Everything stays from the first
    record on that belongs to a transaction under way or is not older than min.compaction.lag.ms. Producers that have
    been silent for producer.id.expiration.ms are forgotten.

    Args:
        partition: a partition of a compacted topic.
        settings: the cluster's.
        now_ms: the time of day.
        with_tombstones: remove records without a value too, as if delete.retention.ms had passed since the last time.

    Returns:
        how many records were removed.

    Raises:
        BrokerRefusal: the topic is not compacted.
    """
    if "compact" not in settings.of_topic(partition.topic, "cleanup.policy"):
        raise BrokerRefusal(f"{partition.topic.name} is not compacted: create it with cleanup.policy=compact")
    log = partition.log
    dirty_until = min(log.last_stable_offset, _first_young(partition, settings, now_ms))
    last_offsets: dict[bytes, int] = {}
    counts: list[int] = []
    batches = list(log.batches())
    for batch in batches:
        try:
            records = read_records(batch)
        except UnreadableBatchError:
            counts.append(0)
            continue
        counts.append(len(records))
        header = header_of(batch)
        if not header.is_control and not log.is_aborted(header) and header.base_offset < dirty_until:
            last_offsets.update((each.key, each.offset) for each in records if each.key is not None)

    def stays(record: Record) -> bool:
        if record.key is None or last_offsets.get(record.key) != record.offset:
            return False
        return record.value is not None or not with_tombstones

    kept: list[memoryview | bytearray] = []
    removed_count = 0
    for count, batch in zip(counts[:-1], batches[:-1], strict=True):
        header = header_of(batch)
        if not count or header.is_control or header.base_offset >= dirty_until:
            kept.append(batch)
            continue
        new = rebuilt(batch, stays)
        left = 0 if new is None else header_of(new).records_count
        removed_count += count - left
        if new is not None:
            kept.append(batch if left == count else new)
    if removed_count:
        log.replace([*kept, *batches[-1:]])
    _forget_producers(partition, settings, now_ms)
    return removed_count


def _first_young(partition: Partition, settings: Settings, now_ms: int) -> int:
    """The offset of the first batch that min.compaction.lag.ms protects, or the log's end."""
    lag_ms: int = settings.of_topic(partition.topic, "min.compaction.lag.ms")
    headers = (header_of(batch) for batch in partition.log.batches())
    young = (each.base_offset for each in headers if lag_ms and each.max_timestamp > now_ms - lag_ms)
    return next(young, partition.log.end_offset)


def _forget_producers(partition: Partition, settings: Settings, now_ms: int) -> None:
    partition.log.producers.forget_silent(now_ms - settings["producer.id.expiration.ms"])


def expire(partition: Partition, settings: Settings, now_ms: int) -> int:
    """Delete what is older than retention.ms or exceeds retention.bytes, from the log's start and in whole batches:
    here each batch counts as a segment of its own. Producers that have been silent for producer.id.expiration.ms are
    forgotten.

    Returns:
        the log's first offset.

    Raises:
        BrokerRefusal: the topic's records do not expire.
    """
    topic, log = partition.topic, partition.log
    if "delete" not in settings.of_topic(topic, "cleanup.policy"):
        raise BrokerRefusal(f"{topic.name} is compacted only: its records do not expire")
    kept_ms: int = settings.of_topic(topic, "retention.ms")
    kept_bytes = settings.of_topic(topic, "retention.bytes")
    excess_bytes = log.size_bytes - kept_bytes if kept_bytes >= 0 else 0

    def is_old(batch: memoryview) -> bool:
        return kept_ms >= 0 and now_ms - header_of(batch).max_timestamp > kept_ms

    start_offset = log.start_offset
    for batch in takewhile(is_old, log.batches()):
        start_offset = header_of(batch).last_offset + 1
        excess_bytes -= len(batch)
    for batch in log.batches(start_offset):
        if excess_bytes < len(batch):
            break
        start_offset = header_of(batch).last_offset + 1
        excess_bytes -= len(batch)
    log.delete_before(start_offset)
    _forget_producers(partition, settings, now_ms)
    return log.start_offset
