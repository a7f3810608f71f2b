"""KIP-333's part of a consumer: its catch-up lanes, the tasks that read and watch them, and where they begin."""

from __future__ import annotations

from aiogroup._core.changes import Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment, LaneTable
from aiogroup._core.fetching.range_cursor import RangeCursor
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.member import Outsider
from aiogroup._core.telemetry.counts import Failures
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.coordinator import CoordinatorLine
from aiogroup._runtime.fetching.fetchers import Fetchers
from aiogroup._runtime.fetching.positions import LaneStarts
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.leader_offsets import LeaderOffsets
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup._runtime.recovery.catch_up import CatchUp
from aiogroup._runtime.recovery.catch_up_rules import CatchUpRules
from aiogroup._runtime.recovery.job_progress import SecondLog
from aiogroup._runtime.recovery.recoveries import Recoveries
from aiogroup.config import ConsumerConfig

__all__ = ["ParallelRecovery"]


class ParallelRecovery:
    """A consumer with `enable_parallel_rebalance`. `beside` has the catch-up lanes that are fetched from."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        failures: Failures,
        supervisor: Supervisor,
        inbox: Inbox,
        refresher: Refresher,
        offsets: LeaderOffsets,
        beside: LaneTable[RangeCursor],
        commits: OwnCommits | None,
    ) -> None:
        self._supervisor = supervisor
        self._catch_up = CatchUp(
            config=config,
            link=link,
            assignment=assignment,
            delivery=delivery,
            changes=changes,
            emit=emit,
            failures=failures,
            fetched=beside,
            offsets=offsets,
        )
        self._fetchers = Fetchers(
            config=config,
            link=link,
            assignment=assignment,
            delivery=delivery,
            changes=changes,
            emit=emit,
            failures=failures,
            supervisor=supervisor,
            inbox=inbox,
            refresher=refresher,
            lanes=beside,
            rules=CatchUpRules(config, self._catch_up),
        )
        self._second_log: SecondLog | None = None
        if config.parallel_handoff:
            outsider = Outsider(Identity(config.second_group_id, config.instance_id))
            self._second_log = SecondLog(
                config=config,
                link=link,
                assignment=assignment,
                delivery=delivery,
                emit=emit,
                failures=failures,
                coordinator=CoordinatorLine(config, link, changes, emit, outsider, needs="DESCRIBE"),
                catch_up=self._catch_up,
                commits=commits,
            )
        self.starts: LaneStarts | None = Recoveries(
            config=config, link=link, emit=emit, refresher=refresher, offsets=offsets, catch_up=self._catch_up
        )

    @property
    def buffered_bytes(self) -> int:
        return self._catch_up.fetched.buffered_bytes

    def is_catching_up(self) -> bool:
        return self._catch_up.is_catching_up()

    def follow(self) -> None:
        self._catch_up.follow()

    async def start(self) -> None:
        catch_up, spawn = self._catch_up, self._supervisor.spawn
        if self._second_log is not None:
            await self._second_log.check()
            spawn("second commit log", self._second_log.run)
        spawn("catch-up", catch_up.run)
        spawn("log starts", catch_up.run_log_starts)
        spawn("catch-up fetchers", self._fetchers.run)

    def end_sessions(self) -> None:
        self._fetchers.end_sessions()
