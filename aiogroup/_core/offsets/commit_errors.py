"""The errors of a commit whose partitions are not owned any more, and what the application can do about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiogroup.errors import CommitFailedError, named
from aiogroup.structs import TopicPartition

__all__ = ["gone_error", "lost_error", "not_owned_error"]


def gone_error(
    gone: Collection[TopicPartition],
    lost: Collection[TopicPartition] = (),
    committed: Mapping[TopicPartition, int] | None = None,
) -> CommitFailedError:
    """The error for offsets of records that are gone; `lost` are partitions that were lost for other reasons."""
    why = (
        f"not committed, since the topic was deleted and recreated, or its log truncated: {named(gone)}. The offsets "
        "are of records that are gone; what stands there now is still to be read"
    )
    if lost:
        why += f". Not committed either, since they were given up or lost meanwhile: {named(lost)}"
    return CommitFailedError(why, not_owned={*gone, *lost}, committed=committed)


def not_owned_error(
    not_owned: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    *,
    gone: Collection[TopicPartition] = (),
    is_stopping: bool,
) -> CommitFailedError:
    """The error for offsets whose partitions were no longer owned when they were to be sent, or of records that are
    gone.
    """
    if of_former := {tp for tp in not_owned if tp in gone}:
        return gone_error(of_former, {*not_owned} - of_former, committed)
    names = named(not_owned)
    why = (
        f"not committed, since they were given up or lost meanwhile: {names}. Their records come again to whom "
        "the group gives them next, perhaps to this member. In a rebalance that is the rule for what was not "
        "committed in on_partitions_revoked. If the poll interval or the session had expired, process faster "
        "(max_poll_records) or raise max_poll_interval_ms and session_timeout_ms"
    )
    if is_stopping:
        why = (
            f"not committed, since the consumer was stopped before the group's rebalance was over: {names}. Their "
            "records come again. Give stop() a larger timeout_ms"
        )
    return CommitFailedError(why, not_owned=not_owned, committed=committed)


def lost_error(lost: Collection[TopicPartition], committed: Mapping[TopicPartition, int]) -> CommitFailedError:
    """The error of `commit()` for partitions that were lost before the call: none of their offsets was to be sent."""
    return CommitFailedError(
        f"delivered, and lost before they were committed: {sorted(lost)}. Their new owner repeats the records; "
        "process faster (max_poll_records) or raise max_poll_interval_ms and session_timeout_ms. Where a topic "
        "was deleted and recreated, the old one's records are gone, and the new one is read from its start",
        not_owned=lost,
        committed=committed,
    )
