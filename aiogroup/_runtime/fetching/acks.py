"""What `record.ack()` does, in the consumer's thread and in any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from weakref import ref

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.records.decode import Acknowledge
from aiogroup._core.offsets.ledger import Ledger
from aiogroup.records import Record

__all__ = ["acknowledging"]


def acknowledging(delivery: Delivery) -> Callable[[Ledger], Acknowledge]:
    """What makes, for each ledger, the function that `record.ack()` calls."""
    return partial(_Acknowledge, ref(delivery), ref(asyncio.get_running_loop()), get_ident())


class _Acknowledge:
    """The function that `record.ack()` calls. There is one for each ledger, so that a record need not refer to its
    partition.

    Its references are weak: the garbage collector does not track records, so a cycle through them would stay for ever.
    """

    __slots__ = ("_delivery", "_ledger", "_loop", "_thread_id")

    def __init__(
        self, delivery: ref[Delivery], loop: ref[asyncio.AbstractEventLoop], thread_id: int, ledger: Ledger
    ) -> None:
        self._delivery = delivery
        self._loop = loop
        self._thread_id = thread_id
        self._ledger = ledger

    def __call__(self, record: Record) -> None:
        delivery = self._delivery()
        if delivery is None:
            return
        if get_ident() == self._thread_id:
            delivery.ack(self._ledger, record.offset)
        elif (loop := self._loop()) is not None:
            with suppress(RuntimeError):  # the loop is closed, so nothing is committed any more
                loop.call_soon_threadsafe(delivery.ack, self._ledger, record.offset)
