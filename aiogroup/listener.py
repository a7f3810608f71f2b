"""Rebalance callbacks: what the application may do when partitions come and go."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, Protocol, TypeAlias

from aiogroup.errors import AiogroupError
from aiogroup.structs import ConsumerRebalanceListener, TopicPartition

__all__ = ["AnyListener", "ConsumerRebalanceListener", "RebalanceListener", "check_listener"]


class RebalanceListener(Protocol):
    """Derive from it and write what you need; any object with some of the methods will do, too. Each may be async.

    They run while nothing is in hand and heartbeats go on. `commit` and `seek` work inside; asking for records,
    `stop` and `subscribe` raise `IllegalStateError`, also in a task that the callback has started, until the callback
    has returned. So a worker for each partition may be started in `on_partitions_assigned`, as the last thing it does.
    An exception does not stop the rebalance: the application's next call raises it.
    """

    # Each body returns something: a type checker takes a method that has none for one that must be written.

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions are about to leave; commit what belongs to them."""
        return None

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions came; nothing of them is delivered before this returns."""
        return None

    def on_partitions_lost(self, lost: frozenset[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions belong to somebody else already: `commit` of their offsets raises CommitFailedError.

        Default: as revoked.
        """
        return self.on_partitions_revoked(lost)


class HearsRevoked(Protocol):
    """Has `on_partitions_revoked`, sync or async."""

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition], /) -> object: ...


class HearsAssigned(Protocol):
    """Has `on_partitions_assigned`, sync or async."""

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition], /) -> object: ...


class HearsLost(Protocol):
    """Has `on_partitions_lost`, sync or async."""

    def on_partitions_lost(self, lost: frozenset[TopicPartition], /) -> object: ...


AnyListener: TypeAlias = HearsRevoked | HearsAssigned | HearsLost
"""What is taken as a listener, as far as types can say it: any object with at least one of the callbacks."""


def check_listener(listener: object) -> None:
    """Refuse what has none of the callbacks, or one more that nobody would call.

    Raises:
        TypeError: it is not a listener, or one of its names is misspelt.
    """
    names = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")
    if listener is None:
        return
    if isinstance(listener, type):
        raise TypeError(f"listener {listener!r} is a class: give an object of it")
    for name in dir(type(listener)):
        if name.startswith("on_partition") and name not in names and callable(getattr(type(listener), name)):
            import difflib  # noqa: PLC0415 (for the message alone)

            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise TypeError(
                f"listener {listener!r} has {name}, which is never called: did you mean {nearest}? Give a method of "
                "your own another name"
            )
    if not any(callable(getattr(listener, name, None)) for name in names):
        raise TypeError(f"listener {listener!r} has none of {', '.join(names)}")


async def call_listener(listener: Any, callback: str, partitions: frozenset[TopicPartition]) -> None:  # noqa: ANN401
    """Call one of the callbacks and wait for it; `on_partitions_lost` falls back to revoked, as in Java.

    Raises:
        AiogroupError: something that the callback awaited was cancelled.
        Exception: what the callback raised.
    """
    method = getattr(listener, callback, None)
    if method is None and callback == "on_partitions_lost":
        method = getattr(listener, "on_partitions_revoked", None)
    if method is None:
        return
    task = asyncio.current_task()
    cancelled_count = task.cancelling() if task is not None else 0
    try:
        result = method(partitions)
        if inspect.isawaitable(result):
            await result
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling() > cancelled_count:
            raise
        # It awaited something that was cancelled. Passed on, that would end the task that called it, without a word.
        raise AiogroupError(f"{callback} raised CancelledError: something that it awaited was cancelled") from error
