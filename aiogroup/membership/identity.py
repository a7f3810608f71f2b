"""Who we are in the group: one value that every request takes whole."""

from __future__ import annotations

import dataclasses
from typing import Final

from aiogroup.values import dataclass

__all__ = ["NO_GENERATION", "Identity"]

NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Identity:
    """Group, static name (`None` for a dynamic member), member id given by the coordinator, and generation.

    `member_id` is empty before the first join; `generation` is -1 whenever we are in no round of the group.
    """

    group_id: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = NO_GENERATION

    @property
    def is_member(self) -> bool:
        """In a generation: may heartbeat and commit."""
        return self.generation >= 0 and bool(self.member_id)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def with_member_id(self, member_id: str) -> Identity:
        """Named by the coordinator, in no generation yet."""
        return dataclasses.replace(self, member_id=member_id, generation=NO_GENERATION)

    def in_generation(self, member_id: str, generation: int) -> Identity:
        return dataclasses.replace(self, member_id=member_id, generation=generation)

    def without_generation(self) -> Identity:
        """The round is over for us, the coordinator still knows our id (ILLEGAL_GENERATION)."""
        return dataclasses.replace(self, generation=NO_GENERATION)

    def set_aside(self) -> Identity:
        """Out of the group of our own accord. A static member keeps its id: who took its name meanwhile keeps it."""
        return self.without_generation() if self.is_static else self.forgotten()

    def without_name(self) -> Identity:
        """The coordinator is too old for static names: a dynamic member."""
        return dataclasses.replace(self, instance_id=None)

    def forgotten(self) -> Identity:
        """The coordinator no longer knows us: join as a newcomer."""
        return dataclasses.replace(self, member_id="", generation=NO_GENERATION)
