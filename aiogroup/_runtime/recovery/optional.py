"""The interface of KIP-333's part to the rest of a consumer, and its stand-in for a consumer that does not import that
part.
"""

from __future__ import annotations

from typing import Protocol

from aiogroup._runtime.fetching.positions import LaneStarts

__all__ = ["NoParallelRecovery", "ParallelRecoveryOrNone"]


class ParallelRecoveryOrNone(Protocol):
    """The interface of `ParallelRecovery` and `NoParallelRecovery`; no caller needs to know which of the two it has."""

    @property
    def starts(self) -> LaneStarts | None:
        """Where the lanes of a newly assigned partition begin; `None` if each partition has one lane."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """The bytes that the catch-up lanes have fetched and not delivered."""
        ...

    def is_catching_up(self) -> bool:
        """Whether a catch-up lane has work."""
        ...

    def follow(self) -> None:
        """The assignment has changed."""
        ...

    async def start(self) -> None:
        """Start the catch-up lane's tasks.

        Raises:
            GroupAuthorizationError: the second commit log may not be read.
            AiogroupError: its coordinator did not answer.
        """
        ...

    def end_sessions(self) -> None:
        """As `Fetchers.end_sessions`, for the catch-up lanes."""
        ...


class NoParallelRecovery:
    """A consumer without `enable_parallel_rebalance`: each partition is read in one lane."""

    starts: LaneStarts | None = None
    buffered_bytes: int = 0

    def is_catching_up(self) -> bool:
        return False

    def follow(self) -> None:
        pass

    async def start(self) -> None:
        pass

    def end_sessions(self) -> None:
        pass
