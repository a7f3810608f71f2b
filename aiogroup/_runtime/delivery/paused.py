"""What `Consumer.paused` returns: the set of the paused partitions, which is also a block that pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Self

from aiogroup.structs import TopicPartition

__all__ = ["Paused"]


class Paused(frozenset[TopicPartition]):
    """The partitions that were paused at the moment of the call. `async with` it pauses more; see `Consumer.paused`."""

    _pause: Callable[[], AbstractContextManager[None]]
    _entered: list[AbstractContextManager[None]]

    def __new__(cls, paused: Iterable[TopicPartition], pause: Callable[[], AbstractContextManager[None]]) -> Self:
        made = super().__new__(cls, paused)
        made._pause, made._entered = pause, []
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is a plain set."""
        return frozenset, (tuple(self),)

    async def __aenter__(self) -> Self:
        block = self._pause()
        block.__enter__()
        self._entered.append(block)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._entered.pop().__exit__(None, None, None)
