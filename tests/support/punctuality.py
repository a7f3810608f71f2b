"""How late the event loop was: a busy machine adds this to every wait, and no bound in the library can prevent it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

STEP_S = 0.05


class Lateness:
    """`ms` is the loop's total lateness so far, including the time before `watch` first ran, and the present moment."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._past_ms = 0.0
        self._due_at = self._loop.time()

    @property
    def ms(self):
        return self._past_ms + self._late_ms()

    def _late_ms(self):
        return max(0.0, self._loop.time() - self._due_at) * 1_000

    async def watch(self):
        while True:
            self._past_ms += self._late_ms()
            self._due_at = self._loop.time() + STEP_S
            await asyncio.sleep(STEP_S)


@asynccontextmanager
async def lateness():
    late = Lateness()
    watching = asyncio.get_running_loop().create_task(late.watch())
    try:
        yield late
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def timed(work):
    """The result, how many milliseconds it took, and how many of these the loop was late."""
    loop = asyncio.get_running_loop()
    async with lateness() as late:
        began_at = loop.time()
        result = await work
        return result, (loop.time() - began_at) * 1_000, late.ms
