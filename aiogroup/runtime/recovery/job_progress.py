"""The second commit log (KIP-333): what batch jobs have done of the ranges that are left to them.

It is the offsets of another group, which jobs join and services only read. What it says counts for the ownership that
asked, and under the token's id that is durable: everything is compared again when the answer is there.
"""

from __future__ import annotations

from typing import Final

from aiogroup.errors import AiogroupError
from aiogroup.recovery.token import read_done
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.loop.clock import now_ms, sleep_ms
from aiogroup.runtime.offsets.committed import CommittedOffsets
from aiogroup.runtime.recovery.catch_up import CatchUp
from aiogroup.telemetry import events

__all__ = ["SecondLog"]

LOOK_MS: Final = 2_000
"""So often is the second commit log read while ranges are pending."""


class SecondLog:
    """`coordinator` is that of the second group, which this consumer never joins."""

    def __init__(self, context: Context, coordinator: Coordinator, catch_up: CatchUp) -> None:
        self._context = context
        self._committed = CommittedOffsets(context, coordinator)
        self._catch_up = catch_up

    async def check(self) -> None:
        """Whether the second log may be read.

        Raises:
            GroupAuthorizationError: not by this principal.
            AiogroupError: its coordinator did not answer.
        """
        await self._committed.fetch((), now_ms() + self._context.config.request_timeout_ms)

    async def run(self) -> None:
        """Take in what jobs have done, as long as something is pending."""
        while True:
            pending = {each.live.tp: each for each in self._catch_up.lanes if each.is_owned and each.book.pending}
            if pending:
                try:
                    found = await self._committed.fetch(pending, now_ms() + self._context.config.request_timeout_ms)
                except AiogroupError as error:
                    self._context.tell(events.FetchFailed(-1, None, None, f"reading the second commit log: {error}"))
                    found = {}
                self._context.delivery.settle()
                for tp, lanes in pending.items():
                    if self._context.assignment.get(tp) is lanes.live and lanes.live.lanes is lanes:
                        done = found.get(tp)
                        lanes.fold(None if done is None else read_done(done.metadata, lanes.book.place))
                self._catch_up.wanted.pulse()
            await sleep_ms(LOOK_MS)
