"""Who this member is in the group: one value from which every request is made."""

from __future__ import annotations

import dataclasses
from typing import Final

from aiogroup._core.values import dataclass

__all__ = ["NO_GENERATION", "Identity", "NewMemberId"]

NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Identity:
    """Group, static name (`None` for a dynamic member), member id given by the coordinator, and generation.

    `member_id` is empty before the first join; `generation` is -1 whenever the member is in no round of the group.
    """

    group_id: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = NO_GENERATION

    @property
    def is_member(self) -> bool:
        """The member is in a generation, so it may heartbeat and commit."""
        return self.generation >= 0 and bool(self.member_id)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def with_member_id(self, member_id: str) -> Identity:
        """With the id that the coordinator gave, and in no generation yet."""
        return dataclasses.replace(self, member_id=member_id, generation=NO_GENERATION)

    def in_generation(self, member_id: str, generation: int) -> Identity:
        return dataclasses.replace(self, member_id=member_id, generation=generation)

    def without_generation(self) -> Identity:
        """Out of the generation; the coordinator still knows the member id (ILLEGAL_GENERATION)."""
        return dataclasses.replace(self, generation=NO_GENERATION)

    def set_aside(self) -> Identity:
        """Out of the group by the member's own decision.

        A static member keeps its id. If another process has taken the name meanwhile, the coordinator fences this one.
        """
        return self.without_generation() if self.is_static else self.forgotten()

    def without_name(self) -> Identity:
        """A dynamic member from now on: the coordinator is too old for static names."""
        return dataclasses.replace(self, instance_id=None)

    def forgotten(self) -> Identity:
        """Without a member id, to join as a newcomer: the coordinator does not know this one any more."""
        return dataclasses.replace(self, member_id="", generation=NO_GENERATION)


class NewMemberId:
    """Whether the group's log may lack the member id that a static member was given.

    A coordinator writes to its log which member id has a static name when a round is decided. A member that comes back
    gets a new id with JoinGroup. If the coordinator is lost before SyncGroup, the next one reads the old id from the
    log, and refuses the new one as fenced (ClassicGroup.validateMember). No other member has taken the name over then:
    whoever joins without an id gets it again.
    """

    def __init__(self) -> None:
        self.may_be_forgotten = False
        self._is_undecided = False  # no round was decided since the id was given

    def on_joined(self, old_id: str, new_id: str) -> None:
        self._is_undecided |= old_id != new_id

    def on_coordinator_doubtful(self) -> None:
        """The coordinator or an answer of it was lost, or it answered while it was about to move or to load its log."""
        self.may_be_forgotten |= self._is_undecided

    def start_over(self) -> None:
        """A round was decided, or the member id was given up."""
        self._is_undecided = self.may_be_forgotten = False
