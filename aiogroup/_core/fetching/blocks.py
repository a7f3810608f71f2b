"""The blocks `async with consumer.paused()` that the application is in: what they pause, and what they set aside."""

from __future__ import annotations

from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = ["Block", "Blocks"]


@dataclass(frozen=True, slots=True)
class Block:
    """It pauses the partitions `only`, or all where it names none.

    Nobody processes the records in hand of those that are `set_aside` before the block ends.
    """

    only: frozenset[TopicPartition]
    set_aside: frozenset[TopicPartition]


class Blocks:
    def __init__(self) -> None:
        self.set_aside: frozenset[TopicPartition] = frozenset()
        """The partitions that any of the blocks sets aside."""
        self._open: list[Block] = []

    def begin(self, block: Block) -> None:
        self._open.append(block)
        self.set_aside |= block.set_aside

    def end(self, block: Block) -> None:
        self._open.remove(block)
        self.set_aside = frozenset().union(*(each.set_aside for each in self._open))

    def cover(self, tp: TopicPartition) -> bool:
        """Whether one of them pauses this partition."""
        return any(not each.only or tp in each.only for each in self._open)
