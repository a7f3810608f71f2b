"""The groups' log, which outlives a coordinator. Each group has a list of entries, which is only appended to or cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from aiogroup.embedded.machine.groups.members import Member

__all__ = [
    "Commit",
    "Committed",
    "CoordinatorLog",
    "GroupLog",
    "PendingCommit",
    "StoredGroup",
    "Tombstone",
    "TransactionEnd",
]


class Committed(NamedTuple):
    """What was committed for one partition."""

    offset: int
    metadata: str
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One request's offsets by (topic, partition)."""

    offsets: dict[tuple[str, int], Committed]


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Offsets that become committed when the producer's transaction is committed."""

    producer_id: int
    offsets: dict[tuple[str, int], Committed]


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a producer's transaction: its marker."""

    producer_id: int
    is_committed: bool


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Offsets that are forgotten, because they or their topic were deleted."""

    keys: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The group as it was when it last became stable or empty."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    members: tuple[Member, ...]


Entry = Commit | PendingCommit | TransactionEnd | Tombstone | StoredGroup
Key = tuple[str, int]


class _Written(NamedTuple):
    """An offset, and the number of the log entry that brought it."""

    number: int
    committed: Committed


@dataclass(slots=True)
class _State:
    """The state that results from the entries up to a position."""

    offsets: dict[Key, Committed] = field(default_factory=dict)
    group: StoredGroup | None = None
    pending: dict[int, dict[Key, _Written]] = field(default_factory=dict)
    """The offsets of transactions under way, by producer."""
    numbers: dict[Key, int] = field(default_factory=dict)
    """The number of the entry that brought each committed offset."""
    count: int = 0

    def copy(self) -> _State:
        pending = {producer_id: dict(offsets) for producer_id, offsets in self.pending.items()}
        return _State(dict(self.offsets), self.group, pending, dict(self.numbers), self.count)

    def apply(self, entry: Entry) -> None:
        self.count += 1
        match entry:
            case Commit():
                self.offsets.update(entry.offsets)
                self.numbers.update(dict.fromkeys(entry.offsets, self.count))
            case PendingCommit():
                written = {key: _Written(self.count, each) for key, each in entry.offsets.items()}
                self.pending.setdefault(entry.producer_id, {}).update(written)
            case TransactionEnd():
                self._end(self.pending.pop(entry.producer_id, {}), is_committed=entry.is_committed)
            case Tombstone():
                for key in entry.keys:
                    self.offsets.pop(key, None)
                    for offsets in self.pending.values():
                        offsets.pop(key, None)
            case StoredGroup():
                self.group = entry

    def _end(self, offsets: dict[Key, _Written], *, is_committed: bool) -> None:
        if not is_committed:
            return
        for key, (number, committed) in offsets.items():
            # The offset that was written later wins, even if it was committed earlier (OffsetMetadataManager).
            if key not in self.offsets or number > self.numbers[key]:
                self.offsets[key], self.numbers[key] = committed, number


class GroupLog:
    """The entries of one group. The oldest are folded into one state, so that a group that commits for hours does not
    grow.
    """

    KEPT = 1_000

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0
        """The position of the first entry that is not folded."""
        self._base = _State()
        self._state = _State()

    def copy(self) -> GroupLog:
        """Another log with the same entries, which never change."""
        copied = GroupLog()
        copied.entries, copied.start = list(self.entries), self.start
        copied._base, copied._state = self._base.copy(), self._state.copy()
        return copied

    @property
    def end(self) -> int:
        """The position after the last entry."""
        return self.start + len(self.entries)

    @property
    def offsets(self) -> dict[tuple[str, int], Committed]:
        """The committed offsets. The caller must not change them."""
        return self._state.offsets

    @property
    def group(self) -> StoredGroup | None:
        return self._state.group

    @property
    def has_pending(self) -> bool:
        """Whether any transaction under way has offsets here."""
        return bool(self._state.pending)

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether a transaction under way has an offset for the partition."""
        return any((topic, partition) in offsets for offsets in self._state.pending.values())

    def append(self, entry: Entry) -> int:
        """Returns the entry's position."""
        self.entries.append(entry)
        self._state.apply(entry)
        position = self.end - 1
        if len(self.entries) >= 2 * self.KEPT:
            for each in self.entries[: self.KEPT]:
                self._base.apply(each)
            del self.entries[: self.KEPT]
            self.start += self.KEPT
        return position

    def cut(self, position: int) -> None:
        """Forget what was appended from `position` on, and replay the rest.

        Raises:
            ValueError: the position lies in the folded part, or beyond the end.
        """
        if not self.start <= position <= self.end:
            raise ValueError(f"the groups' log cannot be cut at {position}: it is kept from {self.start} to {self.end}")
        del self.entries[position - self.start :]
        self._state = self._base.copy()
        for each in self.entries:
            self._state.apply(each)

    @property
    def has_commits(self) -> bool:
        """Whether any commit is not folded, and can be lost."""
        return any(
            isinstance(each, Commit) or (isinstance(each, TransactionEnd) and each.is_committed)
            for each in self.entries
        )

    def position_of_commit(self, last: int) -> int:
        """The position of commit number `last`, counted from the end: 1 is the latest commit. If there are fewer, it is
        the start. The commit of a transaction begins with its first offset.
        """
        for position in range(self.end - 1, self.start - 1, -1):
            entry = self.entries[position - self.start]
            if isinstance(entry, Commit) or (isinstance(entry, TransactionEnd) and entry.is_committed):
                last -= 1
                if not last:
                    return position if isinstance(entry, Commit) else self._begin_of(entry.producer_id, position)
        return self.start

    def _begin_of(self, producer_id: int, end: int) -> int:
        """The position of the first offset of the transaction that ends at `end`."""
        found = end
        for position in range(end - 1, self.start - 1, -1):
            match self.entries[position - self.start]:
                case PendingCommit(producer_id=found_id) if found_id == producer_id:
                    found = position
                case TransactionEnd(producer_id=found_id) if found_id == producer_id:
                    break
        return found

    def forget(self, topic: str) -> None:
        """Forget the offsets of a deleted topic."""
        state = self._state
        known = [*state.offsets, *(key for offsets in state.pending.values() for key in offsets)]
        self.forget_offsets(key for key in known if key[0] == topic)

    def forget_offsets(self, keys: Iterable[tuple[str, int]]) -> None:
        """Forget what was committed for these, and what transactions under way would commit."""
        if forgotten := tuple(keys):
            self.append(Tombstone(forgotten))


class CoordinatorLog:
    """The logs of all groups of one coordinator, by group id."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupLog] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def items(self) -> Iterator[tuple[str, GroupLog]]:
        return iter(self._groups.items())

    def get(self, group_id: str) -> GroupLog | None:
        return self._groups.get(group_id)

    def of(self, group_id: str) -> GroupLog:
        """The group's log; a new one if the group has none."""
        found = self._groups.get(group_id)
        if found is None:
            found = self._groups[group_id] = GroupLog()
        return found

    def take(self, group_id: str) -> GroupLog | None:
        """Take a group's log out: another coordinator gets it."""
        return self._groups.pop(group_id, None)

    def put(self, group_id: str, log: GroupLog) -> None:
        self._groups[group_id] = log

    def forget(self, topic: str) -> None:
        """Let every group forget the offsets of a deleted topic."""
        for log in self._groups.values():
            log.forget(topic)
