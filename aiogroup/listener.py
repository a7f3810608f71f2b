"""Rebalance callbacks, by which the application follows the partitions that it gains and loses."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, Protocol, TypeAlias

from aiogroup.errors import AiogroupError
from aiogroup.structs import ConsumerRebalanceListener, TopicPartition

__all__ = ["AnyListener", "ConsumerRebalanceListener", "RebalanceListener", "check_listener"]


class RebalanceListener(Protocol):
    """Derive from it and write the callbacks you need; any object with some of them will do too. Each may be async.

    In a rebalance that the group asks for, a callback runs while no record is in hand. After `subscribe`,
    `unsubscribe` or `assign`, and in a `stop` that did not wait for the end of the handler, some may be in hand:
    `commit()` without offsets leaves them out, as they may not be processed. Offsets that a callback names are
    committed.

    Heartbeats go on. `commit` and `seek` work inside a callback. Asking for records, `stop` and `subscribe` raise
    `IllegalStateError` until it has returned, also in tasks that it has started. So start workers for partitions at the
    end of `on_partitions_assigned`. An exception does not stop the rebalance: the application's next call raises it.
    """

    # Each body returns something: type checkers treat a method of a protocol without a body as abstract.

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions are about to leave; commit what belongs to them."""
        return None

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions were assigned; none of their records is delivered before this returns."""
        return None

    def on_partitions_lost(self, lost: frozenset[TopicPartition], /) -> Awaitable[None] | None:
        """Other members may own these partitions already: `commit` of their offsets raises CommitFailedError.

        By default it calls `on_partitions_revoked`.
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
"""The type of a listener, as far as types can express it: any object with at least one of the callbacks."""


def check_listener(listener: object) -> None:
    """Refuse an object that has none of the callbacks, or that has a method which looks like one and is never called.

    Raises:
        TypeError: it is not a listener, or the name of a callback is misspelt.
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
        Exception: the error of the callback.
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
        # Something that the callback awaited was cancelled. The CancelledError would silently end the calling task.
        raise AiogroupError(f"{callback} raised CancelledError: something that it awaited was cancelled") from error
