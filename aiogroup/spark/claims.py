"""Claims of partitions for a job: it may work on what the group of the second commit log assigns to it.

The consumer in this file reads no record. It joins the group, which may take seconds and delays only `hold`. It sends
heartbeats while Spark works in another thread. It commits under its generation, so that the broker refuses the commits
of a dead or frozen driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from aiogroup._runtime.loop.clock import Signal, are_done, now_ms, sleep_ms
from aiogroup._runtime.loop.supervisor import start_task
from aiogroup.consumer import Consumer
from aiogroup.errors import AiogroupError, CommitFailedError, RebalanceInProgressError
from aiogroup.spark.access import Access
from aiogroup.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiogroup.spark.standing import Pending

__all__ = ["IDLE_MS", "REBALANCE_TIMEOUT_MS", "SESSION_TIMEOUT_MS", "Claims"]

SESSION_TIMEOUT_MS: Final = 30_000
IDLE_MS: Final = 1_000
"""How long a driver that has nothing to do waits before it looks again, unless its claims change."""
REBALANCE_TIMEOUT_MS: Final = 900_000
"""How long the group waits for a driver to end its slice; as long as a service waits before it takes a range back."""
RENEW_MS: Final = 60_000
"""How often a driver says that it is at work. A service takes a range back only after a much longer silence."""
NO_LIMIT_MS: Final = 2**31 - 1


class Claims:
    """The claimed partitions, each with a number that tells one claim of the partition from the next.

    Partitions that `hold` returned are kept until `release`. A driver that joins meanwhile gets its share then.
    """

    @staticmethod
    def settings(access: Access, session_timeout_ms: int) -> dict[str, Any]:
        """The settings of the consumer that joins."""
        return {
            **access.settings(),
            "group_id": access.catchup_group_id,
            "client_id": "aiogroup-spark",
            "enable_auto_commit": False,
            "auto_offset_reset": "latest",  # nothing is read; until partitions are paused, nothing should be fetched
            "partition_assignment_strategy": ("cooperative-sticky",),
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": max(1, min(3_000, session_timeout_ms // 3)),
            "max_poll_interval_ms": NO_LIMIT_MS,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        }

    def __init__(self, access: Access, session_timeout_ms: int) -> None:
        self._consumer = Consumer(*access.topics, listener=self, **self.settings(access, session_timeout_ms))
        self._numbers = count(1)
        self._claimed: dict[TopicPartition, int] = {}
        self._held: frozenset[TopicPartition] = frozenset()
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._changed = Signal()
        self._joining: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._joining = start_task("claim", self._consumer.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if self._joining is not None:
            self._joining.cancel()
            await are_done([self._joining], None)
            if not self._joining.cancelled():
                self._joining.exception()  # mark it as retrieved, or asyncio logs it once more
        await self._consumer.__aexit__(kind, error, trace)

    async def hold(self, at_work: Collection[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """The claimed partitions with their numbers; none of them is handed over until `release` or the next `hold`.

        Partitions that another driver is waiting for are left out, unless they are `at_work`.

        Raises:
            AiogroupError: the membership ended for good, or did not begin; the message says why.
        """
        if self._joining is not None:
            await self._joining
        self._consumer.paused()  # raises the error that ended the membership, if one did
        numbers = {tp: number for tp, number in self._claimed.items() if tp not in self._leaving or tp in at_work}
        self._held = frozenset(numbers)
        self._changed.pulse()
        return numbers

    async def release(self, wait_ms: int = 0) -> None:
        """Let partitions go to others, then wait up to `wait_ms` for a change of the claims."""
        self._release()
        if wait_ms:
            await self._changed.wait(now_ms() + wait_ms)

    async def commit(
        self, entries: Mapping[TopicPartition, OffsetAndMetadata], numbers: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        """Commit under the claims with these numbers.

        Returns:
            The partitions whose entries are durable. The claims of all other partitions have ended.

        Raises:
            AiogroupError: it is not known whether the offsets are durable; the records may be repeated.
        """
        mine = {tp: entry for tp, entry in entries.items() if self._claimed.get(tp) == numbers[tp]}
        if not mine:
            return frozenset()
        try:
            await self._consumer.commit(mine)
        except CommitFailedError as error:
            return frozenset(error.committed)
        except RebalanceInProgressError:
            return frozenset()
        return frozenset(mine)

    async def renew(self, standing: Mapping[TopicPartition, Pending], numbers: Mapping[TopicPartition, int]) -> None:
        """Commit the progress so far again, at once and then each minute, until cancelled: this says that the driver
        works.
        """
        while True:
            with suppress(AiogroupError):  # the claim may have ended: the next real commit will say so
                await self.commit({tp: each.entry() for tp, each in standing.items()}, numbers)
            await sleep_ms(RENEW_MS)

    # The rebalance callbacks.

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._consumer.pause(*assigned)
        self._claimed |= {tp: next(self._numbers) for tp in assigned}
        self._changed.pulse()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        until_ms = now_ms() + REBALANCE_TIMEOUT_MS
        self._leaving = frozenset(revoked)
        while self._held & self._leaving and now_ms() < until_ms:
            await self._changed.wait(until_ms)
        self._end(revoked)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._end(lost)

    def _end(self, gone: Collection[TopicPartition]) -> None:
        for tp in gone:
            self._claimed.pop(tp, None)
        self._leaving = frozenset()
        self._changed.pulse()

    def _release(self) -> None:
        self._held = frozenset()
        self._changed.pulse()
