"""Who holds the records in hand, so that no other reader's request marks them as processed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from aiogroup._runtime.delivery.readers import Readers, note_readers, readers
from aiogroup.errors import ConcurrentConsumptionError

if TYPE_CHECKING:
    from aiogroup._core.delivery.delivery import Delivery
    from aiogroup.structs import TopicPartition

__all__ = ["EVERYTHING", "Holders"]

EVERYTHING: Final = (object(),)
"""What a merge gives records of: it may be any partition."""


class Holders:
    def __init__(self, delivery: Delivery, *, auto_ack: bool) -> None:
        self._delivery = delivery
        self._auto_ack = auto_ack
        # With auto_ack: the readers that may hold records, by partition. Without: all readers that asked, each under
        # itself.
        self._holders: dict[object, Readers] = {}
        self._last: Readers = ()
        self._has_several = False  # other readers than the last ones may be among the holders

    def ask(self, only: frozenset[TopicPartition]) -> Readers:
        """The running task asks for records, of these partitions if any are named. Returns on whose behalf.

        Raises:
            ConcurrentConsumptionError: a task whose records this request would mark as processed still runs.
        """
        who = readers(self._last)
        if who is not self._last or self._has_several:
            self._check(only, who)
            if self._auto_ack and only:
                self._has_several = True
            elif self._auto_ack:  # no record that any reader held stays in hand
                self._holders.clear()
                self._has_several = False
            self._last = who
            note_readers(who)
        if not self._auto_ack:
            self._holders = {each: each for each in self._holders.values() if not each[-1].done()}
            if who:
                self._holders[who] = who
        return who

    def give(self, who: Readers, places: Iterable[object]) -> None:
        """They were given records of these partitions, in the same step that ends the request."""
        if self._auto_ack:
            for place in places:
                self._holders[place] = who

    def check(self) -> None:
        """Raise if a task other than the running one still holds a record."""
        self._check(frozenset(), readers())

    def others(self, only: frozenset[TopicPartition], *, inherits: bool = True) -> set[TopicPartition]:
        """The partitions (of these, if any are named) whose records another task than the running one still holds."""
        return {tp for tp, _ in self._of_others(only, readers(inherits=inherits))}

    def elsewhere(self, who: Readers) -> frozenset[asyncio.Task[Any]]:
        """The tasks other than these that may hold a record and may still process it."""
        if not self._delivery.is_in_hand():
            return frozenset()
        here = set(who)
        return frozenset(each[-1] for each in self._holders.values() if not each[-1].done() and not here & set(each))

    def _of_others(
        self, only: frozenset[TopicPartition], who: Readers
    ) -> Iterator[tuple[TopicPartition, asyncio.Task[Any]]]:
        """The partitions with records in hand that a request of `who` would mark as processed while the task that holds
        them still runs, each with that task.
        """
        holders = self._holders
        if not self._auto_ack or all(each == who for each in holders.values()):
            return
        for tp in self._delivery.in_hand():
            holder = holders.get(tp) or holders.get(EVERYTHING[0])
            if (not only or tp in only) and holder and not holder[-1].done() and not set(holder) & set(who):
                yield tp, holder[-1]

    def _check(self, only: frozenset[TopicPartition], who: Readers) -> None:
        for tp, holder in self._of_others(only, who):
            raise ConcurrentConsumptionError(
                f"the task {holder.get_name()!r} still holds a record of {tp.topic}-{tp.partition}, and reading on "
                "would say that it is processed. Let one task read, or name other partitions in getone() and "
                "getmany(); or let that task call commit() or skip() first; or use auto_ack=False and record.ack() for "
                "several workers"
            )
