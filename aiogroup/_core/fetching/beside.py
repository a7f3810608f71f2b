"""The interface of the lanes that are read beside a partition (KIP-333).

`PartitionLanes` (`_core/recovery/partition_lanes.py`) implements it. The interface is declared here because nothing in
`_core/fetching/` may import from `_core/recovery/`, which stands above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from aiogroup._core.fetching.lane import Lane
from aiogroup._core.offsets.commit_plan import Committed, LaneCommits
from aiogroup.records import CatchUpProgress

__all__ = ["DeliveredBefore", "LanesBeside"]


class DeliveredBefore(Protocol):
    """A range whose records come before those of the live lane."""

    @property
    def is_delivered(self) -> bool:
        """Whether all records of this range and of those before it are handed out."""
        ...


class LanesBeside(LaneCommits, Protocol):
    """The lanes of one partition's ranges. The partition itself is the live lane."""

    @property
    def waits_for(self) -> DeliveredBefore | None:
        """The range that the live lane waits for, in ordered mode."""
        ...

    @property
    def cursors(self) -> Sequence[Lane]:
        """The lanes of the ranges, in ascending order."""
        ...

    @property
    def left_count(self) -> int:
        """Offsets between the positions of the catch-up lane and the ends of its ranges."""
        ...

    @property
    def is_overdue(self) -> bool:
        """A job should have read some of what is pending, and did not."""
        ...

    def progress(self) -> CatchUpProgress:
        """The progress of the catch-up lane. The caller has settled the delivery."""
        ...

    def seek(
        self,
        offset: int,
        lane: Literal["live", "catch-up"] | None = None,
        *,
        drop_pending: bool = False,
        why: str = "seek",
    ) -> None:
        """Go on at `offset`, in the named lane or in the one that `offset` lies in.

        Raises:
            ValueError: the named lane cannot go there.
        """
        ...

    def truncate(self, offset: int, leader_epoch: int) -> None:
        """The log was truncated at `offset`, after a record of `leader_epoch`."""
        ...

    def return_to_durable(self, committed: Committed | None) -> None:
        """Each lane goes back to its committed offset, or without one to the first offset it has not processed."""
        ...

    def return_to(self, offset: int) -> None:
        """The reset policy says where the live lane goes on.

        It must neither enter a range nor skip unprocessed offsets.
        """
        ...

    def abandon(self, why: str) -> None:
        """The pending ranges mean nothing any more; from now on the partition is read in one lane."""
        ...
