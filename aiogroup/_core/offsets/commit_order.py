"""The order of the commits under way: of two commits of a partition the later call's offset must stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from aiogroup._core.membership.identity import Identity
from aiogroup._core.offsets.commit_plan import CommitEntry
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.structs import TopicPartition

__all__ = ["Commit", "CommitOrder"]

MOST_BYTES: Final = 256 * 1024
LEAST_BYTES: Final = 8 * 1024
"""Even the smallest `max.message.bytes` in use takes this, and it holds the longest metadata of one partition."""
ENTRY_BYTES: Final = 100
"""What the coordinator writes for a partition, without the topic's name and the metadata, is less than this."""
UNWRITTEN: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE})
"""What a coordinator says of each partition if the batch that it would write for the request is too long."""
UNWRITTEN_COUNT: Final = 3
"""How often it says UNKNOWN_SERVER_ERROR of a short request before metadata are made shorter: a broker that restarts
says the same.
"""


class Commit:
    """One call of a commit: the entries that are still `pending`, those of them that were `sent` last, and the identity
    that they were `sent_as`.

    With `is_member` it is sent under the member's generation; without (manual `assign`) it is sent without any. That
    does not change during the call. `topic_ids` are the ids of the offsets' topics, as far as they are known.
    Partitions in `recreated` are of a topic that was deleted: the topic that has its name now holds other records. For
    those in `stale` the last answer said that the metadata may be out of date. Those in `refused` were refused for
    good. `not_owned` are those that were dropped because their ownership had ended. `unwritten_count` is how often the
    coordinator could not write a request that was short already.
    """

    __slots__ = (
        "gone", "is_member", "not_owned", "pending", "refused", "sent", "sent_as", "stale", "topic_ids",
        "tps", "unwritten_count",
    )  # fmt: skip

    def __init__(self, entries: Mapping[TopicPartition, CommitEntry]) -> None:
        self.tps = frozenset(entries)
        self.pending = dict(entries)
        self.is_member = True
        self.sent: dict[TopicPartition, CommitEntry] = {}
        self.sent_as = Identity("")
        self.topic_ids: dict[TopicPartition, UUID] = {}
        self.gone: set[TopicPartition] = set()
        self.stale: set[TopicPartition] = set()
        self.refused: set[TopicPartition] = set()
        self.not_owned: set[TopicPartition] = set()
        self.unwritten_count = 0

    def not_durable(self) -> tuple[TopicPartition, ...]:
        """The partitions of which nothing is durable by this commit, nor by a later one that it waited for."""
        return tuple(sorted(self.pending.keys() | self.not_owned | self.refused))


class CommitOrder:
    """The commits under way, for each partition in the order of their calls: the offset of the last call must stay.

    An earlier commit that has to be sent again would undo a later one. So the earlier one waits for the later one, and
    is done when the later one is durable.

    A coordinator writes a request as one batch, which must not be longer than the `max.message.bytes` of its topic of
    offsets. So a request holds a bounded part of a commit, and the rest follows.
    """

    def __init__(self) -> None:
        self._commits: dict[TopicPartition, list[Commit]] = {}
        self._most_bytes = MOST_BYTES

    def begin(self, entries: Mapping[TopicPartition, CommitEntry], *, automatic: bool) -> Commit:
        """Put a new commit in order: after all others, or an `automatic` one before the first that covers it.

        The ledger does not yet contain what an unfinished `commit(offsets)` names, so an auto-commit that was sent
        after it would move the committed offset back.
        """
        commit = Commit(entries)
        for tp, entry in entries.items():
            commits = self._commits.setdefault(tp, [])
            place = len(commits)
            if automatic and commits:
                covering = (at for at, other in enumerate(commits) if _covers(other.pending.get(tp), entry))
                place = next(covering, place)
            commits.insert(place, commit)
        return commit

    def due(self, commit: Commit) -> dict[TopicPartition, CommitEntry]:
        """The entries that may be sent now: those of partitions for which no later commit is under way, as many as fit
        into a request.
        """
        due: dict[TopicPartition, CommitEntry] = {}
        size_bytes = 0
        for tp, entry in commit.pending.items():
            if self._commits[tp][-1] is not commit and self._last(tp) is not commit:
                continue
            size_bytes += _size_bytes(tp, entry)
            if due and size_bytes > self._most_bytes:
                break
            due[tp] = entry
        return due

    def too_long(self, commit: Commit, codes: Collection[int]) -> tuple[Collection[int], Collection[int]]:
        """Which of these codes, the answers to what was sent, say that it was too long: the request, which will be
        shorter from now on, and the metadata of each partition.
        """
        about_metadata = {ErrorCode.OFFSET_METADATA_TOO_LARGE}
        if UNWRITTEN.isdisjoint(codes):
            return (), about_metadata
        if self._make_shorter(commit):
            return UNWRITTEN, about_metadata
        commit.unwritten_count += 1
        is_lasting = commit.unwritten_count >= UNWRITTEN_COUNT
        return (), about_metadata | (UNWRITTEN if is_lasting else {ErrorCode.INVALID_COMMIT_OFFSET_SIZE})

    def _make_shorter(self, commit: Commit) -> bool:
        """Let requests be half as long as what was sent, if that can help."""
        sent_bytes = sum(_size_bytes(tp, entry) for tp, entry in commit.sent.items())
        if sent_bytes <= LEAST_BYTES or len(commit.sent) == 1:
            return False
        self._most_bytes = min(self._most_bytes, max(LEAST_BYTES, sent_bytes // 2))
        return True

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


def _size_bytes(tp: TopicPartition, entry: CommitEntry) -> int:
    text = entry.metadata
    return ENTRY_BYTES + len(tp.topic) + (len(text) if text.isascii() else len(text.encode()))


def _covers(other: CommitEntry | None, entry: CommitEntry) -> bool:
    """Both are of the same ownership with no seek between them, and the other one's offset is not below this one's."""
    return (
        other is not None
        and other.beside is None  # with two lanes each commit also carries what the earlier ones said
        and (other.ownership, other.starts_count) == (entry.ownership, entry.starts_count)
        and other.offset >= entry.offset
    )
