"""Newcomers of a static group: they wait until the expansion time-out, and then cause one rebalance together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.groups.form import FormedGroup
from aiogroup.embedded.machine.groups.members import Member
from aiogroup.embedded.machine.timers import Timer

__all__ = ["Named", "Newcomers"]


@dataclass(slots=True)
class Named:
    """The draft's data about a member, in addition to the group's."""

    registration_timeout_ms: int
    expansion_timeout_ms: int
    known_as: str
    """The id under which the leader of this generation knows the member."""


class Newcomers:
    """The waiting newcomers, by name. They are not members yet: the group stays stable and works on."""

    def __init__(self, group: FormedGroup) -> None:
        self._group = group
        self._waiting: dict[str, tuple[Member, Named]] = {}
        self._count: Timer | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: object) -> bool:
        return name in self._waiting

    def offers(self) -> Iterator[set[str]]:
        """The assignors that each of them offers."""
        for member, _ in self._waiting.values():
            yield {each.name for each in member.protocols}

    def wait(self, name: str, member: Member, named: Named, now_ms: int) -> None:
        """Add a newcomer. The first one's time-out counts, from its join. A name that comes again keeps its place."""
        former = self._waiting.get(name)
        self._waiting[name] = member, named
        if former is not None:
            self._refuse(former[0], ErrorCode.FENCED_INSTANCE_ID)
        elif self._count is None and named.expansion_timeout_ms:
            self._count = self._group.timers.at(now_ms + named.expansion_timeout_ms, self._end_of_count)
        elif self._count is None:
            self._group.rebalance(now_ms)

    def leave(self, name: str, member_id: str) -> ErrorCode:
        """An administrator removes the name; the member itself does not know its id yet."""
        member, _ = self._waiting[name]
        if member_id not in ("", member.member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        del self._waiting[name]
        self._refuse(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if not self._waiting:
            self.stop()
        return ErrorCode.NONE

    def take(self) -> list[tuple[Member, Named]]:
        """Take all of them into a round that begins."""
        self.stop()
        taken, self._waiting = list(self._waiting.values()), {}
        return taken

    def resign(self) -> None:
        """The coordinator has moved: they join the new one again, where the time-out starts again."""
        for member, _ in self.take():
            self._refuse(member, ErrorCode.NOT_COORDINATOR)

    def stop(self) -> None:
        """Stop the time-out."""
        if self._count is not None:
            self._count.cancel()
            self._count = None

    def _end_of_count(self, now_ms: int) -> None:
        self._count = None
        self._group.rebalance(now_ms)

    def _refuse(self, member: Member, code: ErrorCode) -> None:
        self._group.refuse_join(member.joining, member.member_id, code)
