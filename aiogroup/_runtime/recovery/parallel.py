"""KIP-333's part of a consumer: its catch-up lanes, the tasks that read and watch them, and where they begin."""

from __future__ import annotations

from aiogroup._core.fetching.assignment import LaneTable
from aiogroup._core.fetching.range_cursor import RangeCursor
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.member import Outsider
from aiogroup._runtime.context import Context
from aiogroup._runtime.coordinator import Line
from aiogroup._runtime.fetching.fetcher import Fetchers
from aiogroup._runtime.fetching.positions import LaneStarts
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.offsets.leader_offsets import LeaderOffsets
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup._runtime.recovery.catch_up import CatchUp
from aiogroup._runtime.recovery.catch_up_fetchers import CatchUpRules
from aiogroup._runtime.recovery.job_progress import SecondLog
from aiogroup._runtime.recovery.recoveries import Recoveries

__all__ = ["ParallelRecovery"]


class ParallelRecovery:
    """A consumer with `enable_parallel_rebalance`. `beside` has the catch-up lanes that are fetched from."""

    def __init__(
        self,
        context: Context,
        refresher: Refresher,
        offsets: LeaderOffsets,
        beside: LaneTable[RangeCursor],
        commits: OwnCommits | None,
    ) -> None:
        self._context = context
        self._commits = commits
        self._catch_up = CatchUp(context, beside, offsets)
        self._fetchers = Fetchers(
            context.config,
            context.link,
            context.assignment,
            context.delivery,
            context.changes,
            context.emit,
            context.failures,
            context.supervisor,
            context.inbox,
            refresher,
            self._catch_up.fetched,
            CatchUpRules(context, self._catch_up),
        )
        self.starts: LaneStarts | None = Recoveries(context, refresher, offsets, self._catch_up)

    @property
    def buffered_bytes(self) -> int:
        return self._catch_up.fetched.buffered_bytes

    def is_catching_up(self) -> bool:
        return self._catch_up.is_catching_up()

    def follow(self) -> None:
        self._catch_up.follow()

    async def start(self) -> None:
        context, catch_up = self._context, self._catch_up
        spawn = context.supervisor.spawn
        if context.config.parallel_handoff:
            outsider = Outsider(Identity(context.config.second_group_id, context.config.instance_id))
            log = SecondLog(
                context,
                Line(context.config, context.link, context.changes, context.emit, outsider, needs="DESCRIBE"),
                catch_up,
                self._commits,
            )
            await log.check()
            spawn("second commit log", log.run)
        spawn("catch-up", catch_up.run)
        spawn("log starts", catch_up.run_log_starts)
        spawn("catch-up fetchers", self._fetchers.run)

    def end_sessions(self) -> None:
        self._fetchers.end_sessions()
