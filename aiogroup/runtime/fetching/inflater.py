"""The inflater task: big batches are decompressed in a worker thread, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio

from aiogroup.runtime.context import Context

__all__ = ["inflate"]


async def inflate(context: Context) -> None:
    """One batch after the other, as far as there is room for them.

    They were queued, perhaps several at once, when there was. The first is decompressed in any case: however narrow the
    bound is, records come. Those that are left over are queued again when it is their turn.
    """
    delivery, supply = context.delivery, context.delivery.supply
    is_first = True
    while True:
        if not supply.to_inflate:
            await context.inflate_wanted.wait()
            is_first = True
            continue
        partition = supply.to_inflate.popleft()
        pieces = partition.buffer.pieces
        if pieces and pieces[0].needs_inflate() and (is_first or delivery.has_room(partition)):
            is_first = False
            supply.inflating = pieces[0]
            try:
                await asyncio.to_thread(pieces[0].inflate)
            finally:
                supply.inflating = None
                partition.buffer.weigh()
        delivery.look_again()
        context.changed.pulse()
