"""The partitions that requests wait for by name: the buffers of others must not take the memory that these need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiogroup._core.fetching.assignment import Assignment
    from aiogroup.structs import TopicPartition

__all__ = ["Needs"]

ASKED_AGAIN_MS: Final = 1_000
"""For how long the partitions of a request that ended without a record still count: such requests are often repeated.
"""


class Needs:
    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        # What requests named and got no record of; for a request that has ended, until when that counts.
        self._needed: dict[frozenset[TopicPartition], int | None] = {}

    def begin(self, only: frozenset[TopicPartition], now_ms: int) -> None:
        """A request begins; it names these partitions, or none."""
        if self._needed:
            self._needed.pop(only, None)
            self._needed = {each: at for each, at in self._needed.items() if at is None or (only and at > now_ms)}
            self._announce()

    def look(self, only: frozenset[TopicPartition], *, is_met: bool) -> None:
        """A request that names partitions has looked for a record."""
        if is_met and only in self._needed:
            del self._needed[only]
            self._announce()
        elif not is_met:
            self._needed[only] = None
            self._announce()

    def end(self, only: frozenset[TopicPartition], now_ms: int) -> None:
        if only in self._needed:
            self._needed[only] = now_ms + ASKED_AGAIN_MS

    def _announce(self) -> None:
        self._assignment.need(frozenset().union(*self._needed))
