"""What a test may wait for: `broker.wait(stable("billing", members=2))`, `await broker.until(caught_up("billing"))`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from aiogroup.embedded.machine.refusals import group_named
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from aiogroup.embedded.machine.faults.rules import Api
    from aiogroup.embedded.views import ByPartition, CommittedOffset, GroupView

__all__ = ["Condition", "asked", "caught_up", "committed", "reading", "stable"]


class Shown(Protocol):
    """What conditions look at: a `Broker`."""

    def group(self, group_id: str, /) -> GroupView: ...

    def committed(self, group_id: str, /) -> ByPartition[CommittedOffset]: ...

    def lag(self, group_id: str, /) -> ByPartition[int]: ...

    def count(self, api: Api | None = None, /) -> int: ...

    def unread(self, topic: str, /, *, client_id: str | None = None) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that `wait` and `until` wait for. `str` describes it."""

    group_id: str | None = None
    """The group that it is about; the error of a time-out shows the group's state."""

    def holds(self, broker: Shown) -> bool:
        """Whether the condition holds now."""
        raise NotImplementedError

    def detail(self, broker: Shown) -> str:
        """The progress so far, besides the group's state; `""` if there is nothing to add."""
        return ""


@dataclass(frozen=True, slots=True)
class _Stable(Condition):
    members: int | None = None

    def holds(self, broker: Shown) -> bool:
        group = broker.group(self.group_id or "")
        return group.state == "Stable" and self.members in (None, len(group.members))

    def __str__(self) -> str:
        of = "" if self.members is None else f", members={self.members}"
        return f"stable({self.group_id!r}{of})"


@dataclass(frozen=True, slots=True)
class _Committed(Condition):
    topic: str = ""
    partition: int = 0
    offset: int = 0

    def holds(self, broker: Shown) -> bool:
        offsets = broker.committed(self.group_id or "")
        place = TopicPartition(self.topic, self.partition)
        return place in offsets and offsets[place] >= self.offset

    def detail(self, broker: Shown) -> str:
        offsets = ", ".join(
            f"{tp.topic}-{tp.partition} {offset}" for tp, offset in broker.committed(self.group_id or "").items()
        )
        return f"committed: {offsets or 'nothing'}"

    def __str__(self) -> str:
        return f"committed({self.group_id!r}, {self.topic!r}, {self.partition}, offset={self.offset})"


@dataclass(frozen=True, slots=True)
class _CaughtUp(Condition):
    def holds(self, broker: Shown) -> bool:
        lags = broker.lag(self.group_id or "")
        return bool(lags) and not any(lags.values())

    def __str__(self) -> str:
        return f"caught_up({self.group_id!r})"


@dataclass(frozen=True, slots=True)
class _Reading(Condition):
    topic: str = ""
    client_id: str | None = None

    def holds(self, broker: Shown) -> bool:
        return not broker.unread(self.topic, client_id=self.client_id)

    def detail(self, broker: Shown) -> str:
        return (
            f"nobody fetches the partitions {', '.join(map(str, broker.unread(self.topic, client_id=self.client_id)))}"
        )

    def __str__(self) -> str:
        by = "" if self.client_id is None else f", client_id={self.client_id!r}"
        return f"reading({self.topic!r}{by})"


@dataclass(frozen=True, slots=True)
class _Asked(Condition):
    api: Api = ""
    times: int = 1

    def holds(self, broker: Shown) -> bool:
        return broker.count(self.api) >= self.times

    def detail(self, broker: Shown) -> str:
        return f"it was asked {broker.count(self.api)} times"

    def __str__(self) -> str:
        return f"asked({self.api!r}, {self.times})"


def stable(group_id: str, *, members: int | None = None) -> Condition:
    """The group is Stable: its members have their partitions. If `members` is given, it has that many members."""
    return _Stable(group_named(group_id), members)


def committed(group_id: str, topic: str, partition: int, offset: int) -> Condition:
    """The group has committed this offset for the partition, or a greater one. An offset is the next record's: after
    one record it is 1.
    """
    return _Committed(group_named(group_id), topic, partition, offset)


def caught_up(group_id: str) -> Condition:
    """The group's lag is 0 in every partition that it has committed or whose topic a member has subscribed to. If there
    is no such partition, the condition does not hold.
    """
    return _CaughtUp(group_named(group_id))


def reading(topic: str, *, client_id: str | None = None) -> Condition:
    """Each partition of the topic is fetched at a position within its log, by clients that are still connected. If
    `client_id` is given, only clients with this id count. Records that are produced from now on are seen even by a
    client that begins at the end. A Fetch request does not name its group.
    """
    return _Reading(None, topic, client_id)


def asked(api: Api, times: int = 1) -> Condition:
    """At least `times` requests of this API have come since the broker started. To wait for one more request than so
    far: `asked(api, broker.count(api) + 1)`.
    """
    return _Asked(None, api, times)
