"""The offsets that a commit may send: checked at the call, bound to the ownership that delivered the records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from aiogroup.config import MAX_COMMIT_METADATA
from aiogroup.errors import CommitFailedError, named
from aiogroup.offsets.ledger import Ledger
from aiogroup.structs import OffsetAndMetadata, TopicPartition
from aiogroup.values import dataclass

__all__ = [
    "Commit",
    "CommitEntry",
    "CommitOrder",
    "Committed",
    "LaneCommit",
    "LaneCommits",
    "Offsets",
    "entries_of",
    "lost_error",
    "not_owned_error",
    "read_offsets",
    "recreated_error",
]

Offsets: TypeAlias = Mapping[TopicPartition, "int | tuple[int, str] | OffsetAndMetadata"]
MAX_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LaneCommit:
    """One commit of a partition with two lanes (KIP-333): offset, metadata, and the processed offset of each lane.

    `seeks_count` is that of the book when it was made: the commit does not cover records that a later seek took back.
    """

    offset: int
    metadata: str
    leader_epoch: int
    id: str
    live: int
    ranges: tuple[tuple[int, int], ...]
    seeks_count: int
    user: str


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One partition of a commit. `ownership` is the number of the ownership that it is about, -1 without a group.

    `leader_epoch` is the epoch of the record before `offset`, -1 when it is not known: by it the next owner can tell
    whether the log still holds that record (KIP-320). `starts_count` is the partition's when the commit was made: the
    commit does not cover records that a later seek took back. `lanes` holds the offsets of both lanes, where there are
    two (KIP-333).
    """

    offset: int
    metadata: str
    ownership: int
    leader_epoch: int = -1
    starts_count: int = 0
    lanes: LaneCommit | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed offset of a partition. `leader_epoch` is -1 if the client that committed it knew no epochs."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class LaneCommits(Protocol):
    """The commits of a partition with two lanes (KIP-333). The caller has settled the delivery."""

    @property
    def has_uncommitted(self) -> bool:
        """Some delivered offset is not durable."""
        ...

    def begun(self) -> CommitEntry | None:
        """The commit of what is pending as the ownership begins, so that jobs see it. It moves no committed offset.

        `None` when it is durable already, or when the application has committed or sought meanwhile.
        """
        ...

    def processed(self, *, again: bool = False) -> CommitEntry | None:
        """The commit of each lane's processed offset, for auto-commit; `None` when it is durable already."""
        ...

    def delivered(self) -> CommitEntry | None:
        """The commit of all that was delivered, for `commit()` with `auto_ack`; `None` when it is durable already."""
        ...

    def check(self, offset: int, metadata: str) -> None:
        """Check that `commit({tp: offset})` names an offset of a lane. Changes nothing.

        Raises:
            ValueError: no lane was delivered up to there, or the metadata leaves no space for a token.
        """
        ...

    def named(self, offset: int, metadata: str) -> CommitEntry:
        """The commit of `commit({tp: offset})`.

        Raises:
            ValueError: as `check`.
        """
        ...

    def shorter(self, commit: LaneCommit) -> CommitEntry:
        """The same commit in half the characters, or without a token: the broker refused its length (error 12)."""
        ...

    def note_durable(self, commit: LaneCommit) -> bool:
        """The commit is durable. Recommits False if a seek after it took back records that it covers."""
        ...


class Committing(Protocol):
    """What a commit must know of an assigned partition."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def position(self) -> int | None: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def lanes(self) -> LaneCommits | None: ...
    @property
    def committed(self) -> Committed | None: ...
    @property
    def was_reset(self) -> bool: ...
    @property
    def ownership(self) -> int: ...
    @property
    def starts_count(self) -> int: ...
    def epoch_before(self, offset: int) -> int: ...


def entries_of(
    partitions: Iterable[Committing], *, delivered: bool = False, unmoved: bool = False, again: bool = False
) -> dict[TopicPartition, CommitEntry]:
    """The entries of a commit of these partitions. The caller has settled the delivery.

    For each partition the processed offset is sent, or with `delivered` the offset behind all that was handed out. An
    offset that is durable already is sent only with `again`. A position that the reset policy gave is always committed,
    because a restart would find another one. Any other position from which no record came yet, and which was never
    committed, is sent only with `unmoved`.
    """
    entries = {}
    for partition in partitions:
        lanes = partition.lanes
        if lanes is not None:
            entry = lanes.delivered() if delivered else lanes.processed(again=again)
        else:
            entry = _entry_of(partition, delivered=delivered, unmoved=unmoved, again=again)
        if entry is not None:
            entries[partition.tp] = entry
    return entries


def _entry_of(partition: Committing, *, delivered: bool, unmoved: bool, again: bool) -> CommitEntry | None:
    if partition.position is None:
        return None
    offset, committed = partition.ledger.position if delivered else partition.ledger.committable, partition.committed
    text = ""
    if committed is not None and committed.offset == offset:
        if not again:
            return None
        text = committed.metadata
    elif committed is None and not (unmoved or partition.was_reset or offset > 0):
        return None
    return CommitEntry(offset, text, partition.ownership, partition.epoch_before(offset), partition.starts_count)


class Commit:
    """One call of a commit: the entries that are still `pending`, and those of them that were `sent` last.

    With `is_member` it is sent under the member's generation; without (manual `assign`) it is sent without any. That
    does not change during the call. `topic_ids` are the ids of the offsets' topics, as far as they are known.
    Partitions in `recreated` are of a topic that was deleted: the topic that has its name now holds other records. For
    those in `stale` the last answer said that the metadata may be out of date.
    """

    __slots__ = ("is_member", "pending", "recreated", "sent", "stale", "topic_ids", "tps")

    def __init__(self, entries: Mapping[TopicPartition, CommitEntry]) -> None:
        self.tps = frozenset(entries)
        self.pending = dict(entries)
        self.is_member = True
        self.sent: dict[TopicPartition, CommitEntry] = {}
        self.topic_ids: dict[TopicPartition, UUID] = {}
        self.recreated: set[TopicPartition] = set()
        self.stale: set[TopicPartition] = set()


class CommitOrder:
    """The commits under way, for each partition in the order of their calls: the offset of the last call must stay.

    An earlier commit that has to be sent again would undo a later one. So the earlier one waits for the later one, and
    is done when the later one is durable.
    """

    def __init__(self) -> None:
        self._commits: dict[TopicPartition, list[Commit]] = {}

    def begin(self, entries: Mapping[TopicPartition, CommitEntry], *, automatic: bool) -> Commit:
        """Put a new commit in order: behind all others, or an `automatic` one before the first that covers it.

        The ledger does not yet contain what an unfinished `commit(offsets)` names, so an auto-commit that was sent
        behind it would move the committed offset back.
        """
        commit = Commit(entries)
        for tp, entry in entries.items():
            commits = self._commits.setdefault(tp, [])
            place = (at for at, other in enumerate(commits) if automatic and _covers(other.pending.get(tp), entry))
            commits.insert(next(place, len(commits)), commit)
        return commit

    def due(self, commit: Commit) -> dict[TopicPartition, CommitEntry]:
        """The entries that may be sent now: those of partitions for which no later commit is under way."""
        return {tp: entry for tp, entry in commit.pending.items() if self._last(tp) is commit}

    def acknowledge(self, commit: Commit, tp: TopicPartition) -> None:
        """The commit's offset of `tp` is durable: earlier commits of it are done, unless made in a former ownership."""
        ownership, commits = commit.pending[tp].ownership, self._commits[tp]
        for earlier in commits[: commits.index(commit)]:
            entry = earlier.pending.get(tp)
            is_of_same_log = earlier.topic_ids.get(tp) == commit.topic_ids.get(tp)
            if entry is not None and (entry.ownership == ownership or (not earlier.is_member and is_of_same_log)):
                del earlier.pending[tp]

    def end(self, commit: Commit) -> None:
        for tp in commit.tps:
            self._commits[tp].remove(commit)
            if not self._commits[tp]:
                del self._commits[tp]

    def _last(self, tp: TopicPartition) -> Commit | None:
        return next((commit for commit in reversed(self._commits[tp]) if tp in commit.pending), None)


def _covers(other: CommitEntry | None, entry: CommitEntry) -> bool:
    """Both are of the same ownership with no seek between them, and the other one's offset is not below this one's."""
    return (
        other is not None
        and other.lanes is None  # with two lanes each commit also carries what the earlier ones said
        and (other.ownership, other.starts_count) == (entry.ownership, entry.starts_count)
        and other.offset >= entry.offset
    )


def recreated_error(
    recreated: Collection[TopicPartition],
    lost: Collection[TopicPartition] = (),
    committed: Mapping[TopicPartition, int] | None = None,
) -> CommitFailedError:
    """The error for offsets of a deleted topic's records; `lost` are partitions that were lost for other reasons."""
    why = (
        f"not committed, since the topic was deleted and recreated: {named(recreated)}. The offsets are of the old "
        "topic's records; the new topic is read from its start"
    )
    if lost:
        why += f". Not committed either, since they were given up or lost meanwhile: {named(lost)}"
    return CommitFailedError(why, not_owned={*recreated, *lost}, committed=committed)


def not_owned_error(
    not_owned: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    *,
    recreated: Collection[TopicPartition] = (),
    is_stopping: bool,
) -> CommitFailedError:
    """The error for offsets whose partitions were no longer owned when they were to be sent, or are of another log."""
    if of_former := {tp for tp in not_owned if tp in recreated}:
        return recreated_error(of_former, {*not_owned} - of_former, committed)
    names = named(not_owned)
    why = (
        f"not committed, since they were given up or lost meanwhile: {names}. Their records come again to whom "
        "the group gives them next, perhaps to this member. Process faster (max_poll_records) or raise "
        "max_poll_interval_ms and session_timeout_ms"
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


def read_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read the argument of `commit`: an offset, (offset, metadata) or `OffsetAndMetadata` for each partition.

    Raises:
        ValueError, TypeError: not of that shape, a negative offset, or metadata above 4096 bytes.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ValueError("commit takes a non-empty mapping of TopicPartition to offset, or nothing at all")
    read = {}
    for tp, given in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"commit: Key should be TopicPartition instance, not {tp!r}")
        if isinstance(given, tuple) and len(given) != 2:
            raise ValueError(f"commit: {given!r} for {tp} is neither an offset nor (offset, metadata)")
        offset, metadata = given if isinstance(given, tuple) else (given, "")
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(f"commit: the offset of {tp} is {offset!r}; a whole number is needed")
        if not isinstance(metadata, str):
            raise TypeError(f"commit: Metadata should be a string, not {type(metadata).__name__} (for {tp})")
        if not 0 <= offset <= MAX_OFFSET:
            raise ValueError(f"commit: the offset of {tp} is {offset}; it must lie between 0 and {MAX_OFFSET}")
        if len(metadata.encode()) > MAX_COMMIT_METADATA:
            raise ValueError(f"commit: the metadata of {tp} has more than {MAX_COMMIT_METADATA} bytes")
        read[tp] = OffsetAndMetadata(offset, metadata)
    return read
