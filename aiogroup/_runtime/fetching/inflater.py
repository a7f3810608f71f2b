"""The inflater task: decompresses big batches in a worker thread, while the loop goes on."""

from __future__ import annotations

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._runtime.loop.clock import Signal
from aiogroup._runtime.loop.threads import Threads

__all__ = ["inflate"]


async def inflate(delivery: Delivery, changes: Changes[Signal], threads: Threads) -> None:
    """Decompress one batch after another, as far as the memory bound allows.

    Several batches may have been queued while memory was free. The first one is decompressed in any case, so that
    records come however narrow the bound is. A batch that does not fit is queued again when its lane is next in turn.
    """
    supply = delivery.supply
    is_first = True
    while True:
        if not supply.to_inflate:
            await changes[Waiter.INFLATER].wait()
            is_first = True
            continue
        lane = supply.to_inflate.popleft()
        pieces = lane.buffer.pieces
        if pieces and pieces[0].needs_inflate() and (is_first or delivery.has_room(lane)):
            is_first = False
            supply.inflating = pieces[0]
            try:
                await threads.compute(pieces[0].inflate)
            finally:
                supply.inflating = None
                lane.buffer.weigh()
        delivery.look_again(Change.READABLE)
