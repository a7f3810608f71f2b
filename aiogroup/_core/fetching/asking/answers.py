"""What an answer to Fetch means for one lane. What concerns more than the lane itself is returned, and left to the
caller.

As Java's FetchCollector, except that the log's bounds are taken from every answer: in a session a broker sends them
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from aiogroup._core.fetching.asking.remedies import FetchRemedy, fetch_remedy_for
from aiogroup._core.fetching.asking.sessions import Asked
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.fetching.records.decode import Acknowledge, DecodeSettings
from aiogroup._core.native import extent
from aiogroup._core.offsets.ledger import Ledger
from aiogroup._core.protocol.messages.fetch import PartitionData
from aiogroup.config import ConsumerConfig
from aiogroup.errors import RecordTooLargeError

__all__ = ["Taken", "ask_for_whole", "is_out_of_range", "standing_alone", "take"]

ALONE_SHARE: Final = 0.9
"""Records that are at least this share of the buffer that they keep in memory are not copied."""


class Taken(NamedTuple):
    """What an answer to Fetch meant for its lane.

    `is_current`: the answer is for the offset at which the lane reads now. An answer for an offset from before a seek,
    a reset or a revocation brings no usable records. If the leader moved meanwhile, the old and the new one may both
    answer for one offset: the second answer is dropped.
    """

    is_current: bool
    remedy: FetchRemedy = FetchRemedy.PROCEED
    is_diverged: bool = False
    """The leader's log diverges from the records that were read (KIP-320)."""
    names_replica: bool = False
    """The answer names another replica to read from (KIP-392)."""
    is_buffered: bool = False
    incomplete_bytes: int = 0
    """The length that the first batch declares, if only a part of it arrived; otherwise 0."""


_BUFFERED: Final = Taken(is_current=True, is_buffered=True)


def take(
    asked: Asked,
    data: PartitionData,
    received_at_ms: int,
    settings: DecodeSettings,
    acknowledge: Callable[[Ledger], Acknowledge],
) -> Taken:
    """Note in the lane what the answer reports, and buffer its records."""
    lane, target = asked.lane, asked.lane.target
    is_current = (target.changes_count, target.offset) == (asked.changes_count, asked.fetch_offset)
    if data.error_code:
        remedy = fetch_remedy_for(data.error_code)
        if remedy is not FetchRemedy.PROCEED:
            return Taken(is_current, remedy)
    if data.diverging_epoch.end_offset >= 0:
        return Taken(is_current, is_diverged=True)
    lane.log.hear(data.log_start_offset, data.high_watermark, data.last_stable_offset, received_at_ms)
    if not is_current:
        return Taken(is_current)
    lane.log.received_at_ms = received_at_ms
    names_replica = data.preferred_read_replica >= 0
    if names_replica:
        target.prefer(data.preferred_read_replica, received_at_ms)
    if not data.records:
        # Otherwise the answer may have had no space for the long batch, or it is the replica that has the records.
        if not (target.batch_bytes or names_replica):
            lane.heal()
        return Taken(is_current, names_replica=names_replica)
    aborted: Sequence[tuple[int, int]] = ()
    if data.aborted_transactions:
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions]
    records = standing_alone(data.records)
    decoder = lane.decoder(records, asked.fetch_offset, aborted, settings, acknowledge)
    if decoder.incomplete_batch_bytes:
        return Taken(is_current, names_replica=names_replica, incomplete_bytes=decoder.incomplete_batch_bytes)
    end, epochs = extent(records, asked.fetch_offset)
    target.fetched(end)
    lane.error = None
    lane.put(decoder, epochs)
    return Taken(is_current, names_replica=True, is_buffered=True) if names_replica else _BUFFERED


def ask_for_whole(
    asked: Asked, batch_bytes: int, received_bytes: int, now_ms: int, config: ConsumerConfig
) -> str | None:
    """From the next fetch on ask for the whole batch, of which only a part arrived. Returns the problem, if there is
    one.

    A broker that follows KIP-74 then sends the whole first batch. With a broker that does not, or with a damaged
    length, we would ask for the same batch for ever: so from the second time on there is a backoff, and the application
    sees the problem.
    """
    lane = asked.lane
    is_again = lane.target.batch_bytes > 0
    lane.target.was_cut_off(batch_bytes)
    if not is_again:
        return None
    setting = config.max_partition_fetch_bytes
    why = (
        f"its batch says that it takes {batch_bytes} bytes, and {received_bytes} of them came although "
        f"{asked.max_bytes} were asked for (max_partition_fetch_bytes={setting}, raised where a batch needs more)"
    )
    lane.target.failed(why)
    lane.back_off(now_ms, config)
    if lane.target.failures_count > 1:  # the first time, other partitions may have filled the answer
        lane.fail(RecordTooLargeError(lane.tp, asked.fetch_offset, batch_bytes, why))
    return why


def is_out_of_range(partition: Partition, offset: int) -> bool:
    """Whether the leader's OFFSET_OUT_OF_RANGE concerns the position. If it concerns a later offset, the buffered
    records before that are still delivered.
    """
    buffer = partition.buffer
    return not buffer.pieces and (buffer.slice is None or partition.position == offset)


def standing_alone(records: bytes | memoryview) -> bytes | memoryview:
    """The records, copied if they are a small part of the answer: otherwise they would keep the whole answer in
    memory.
    """
    whole_bytes = memoryview(records.obj).nbytes if isinstance(records, memoryview) else len(records)
    return bytes(records) if len(records) < ALONE_SHARE * whole_bytes else records
