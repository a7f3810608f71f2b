"""The second commit log (KIP-333): the progress of batch jobs in the ranges that are left to them.

Its entries are the offsets of another group, which jobs join and services only read. An entry counts only for the
ownership that asked for it, and only under the id of the durable token. Both are compared when the answer has come.
"""

from __future__ import annotations

from typing import Final

from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.recovery.token import read_done
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import FETCH_FAILED, Failures
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import CoordinatorLine
from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.committed import CommittedOffsets
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup._runtime.recovery.catch_up import CatchUp
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError

__all__ = ["SecondLog"]

LOOK_MS: Final = 2_000
"""How often the second commit log is read while ranges are pending."""
SECOND_LOG: Final = "reading the second commit log"


class SecondLog:
    """Reads the second commit log. `coordinator` talks to the coordinator of the log's group, which this consumer never
    joins. `commits` commits the progress that it finds, in the consumer's own group.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        emit: Emit,
        failures: Failures,
        coordinator: CoordinatorLine,
        catch_up: CatchUp,
        commits: OwnCommits | None,
    ) -> None:
        self._config = config
        self._assignment = assignment
        self._delivery = delivery
        self._emit = emit
        self._failures = failures
        self._commits = commits
        self._committed = CommittedOffsets(config, link, coordinator)
        self._catch_up = catch_up

    async def check(self) -> None:
        """Check that the second commit log may be read.

        Raises:
            GroupAuthorizationError: this principal may not read it.
            AiogroupError: its coordinator did not answer.
        """
        await self._committed.fetch((), now_ms() + self._config.request_timeout_ms)

    async def run(self) -> None:
        """Take in what jobs have done, while ranges are pending."""
        while True:
            pending = {each.live.tp: each for each in self._catch_up.lanes if each.is_owned and each.book.pending}
            if pending:
                try:
                    found = await self._committed.fetch(pending, now_ms() + self._config.request_timeout_ms)
                except AiogroupError as error:
                    self._emit(events.FetchFailed(-1, None, None, f"{SECOND_LOG}: {error}"))
                    found = {}
                else:
                    self._failures.end(FETCH_FAILED, -1, why=SECOND_LOG)
                self._delivery.settle()
                for tp, lanes in pending.items():
                    if self._assignment.get(tp) is lanes.live and lanes.live.lanes is lanes:
                        done = found.get(tp)
                        lanes.fold(None if done is None else read_done(done.metadata, lanes.book.log_id))
                self._catch_up.wanted.pulse()
            if self._commits is not None:
                await self._commits.commit_folded(self._assignment, self._config.request_timeout_ms)
            await sleep_ms(LOOK_MS)
