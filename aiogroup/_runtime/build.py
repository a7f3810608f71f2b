"""Makes the parts of a consumer, from the lowest up: each is given the parts that it calls, which stand below it.

Two parts must call upwards, since new metadata, and a member that has left its group, change what is to be read. Both
inform `Following`, which is made first and is given the parts that it directs last.
"""

from __future__ import annotations

from typing import NamedTuple

from aiogroup._core.changes import Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment, LaneTable
from aiogroup._core.fetching.range_cursor import RangeCursor
from aiogroup._core.membership.classic.machine import ClassicMembership
from aiogroup._core.membership.classic.requests import Offers
from aiogroup._core.membership.first_sight import FirstSight
from aiogroup._core.membership.identity import NO_GENERATION, Identity
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.membership.settings import GroupSettings
from aiogroup._core.subscription import Subscription
from aiogroup._core.telemetry.counts import Failures, Totals
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.meter import Meter
from aiogroup._core.telemetry.record_observer import RecordObserver, Whose
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.delivery.handling import Handling, NoHandling
from aiogroup._runtime.delivery.requests import Requests
from aiogroup._runtime.delivery.stopping import Stopping
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.fetching.fetchers import Fetchers
from aiogroup._runtime.fetching.lane_rules import LiveRules
from aiogroup._runtime.fetching.positions import Positions
from aiogroup._runtime.fetching.validator import Validator
from aiogroup._runtime.following import Following
from aiogroup._runtime.group import Group, GroupOrNone, NoGroup
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.loop.threads import Threads
from aiogroup._runtime.membership.assignment_followers import AssignmentFollowers
from aiogroup._runtime.membership.callback_runs import CallbackRuns
from aiogroup._runtime.membership.callbacks import Callbacks
from aiogroup._runtime.membership.classic.leader import Leader
from aiogroup._runtime.membership.classic.rounds import ClassicRounds
from aiogroup._runtime.membership.current_rebalance import CurrentRebalance
from aiogroup._runtime.membership.inspection import MemberInspection
from aiogroup._runtime.membership.liveness import Liveness
from aiogroup._runtime.membership.ownership import Ownership
from aiogroup._runtime.membership.rebalance import Rebalance
from aiogroup._runtime.membership.self_assignment import SelfAssignment
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.committer import Committer
from aiogroup._runtime.offsets.leader_offsets import LeaderOffsets
from aiogroup._runtime.offsets.named_offsets import NamedOffsets
from aiogroup._runtime.offsets.offset_queries import OffsetQueries
from aiogroup._runtime.offsets.own_commits import OwnCommits
from aiogroup._runtime.recovery.optional import NoParallelRecovery, ParallelRecoveryOrNone
from aiogroup.assignors import Assignor, is_cooperative
from aiogroup.config import RECORDS_PER_TURN, TURN_MS, ConsumerConfig, parse_reset_policy

__all__ = ["build"]


def build(
    config: ConsumerConfig,
    assignors: tuple[Assignor, ...],
    subscription: Subscription,
    emit: Emit,
    observers: tuple[RecordObserver, ...] = (),
) -> Engine:
    """Call this in the loop that is to run the consumer. Nothing runs yet, and nothing is connected."""
    return _Building(config, assignors, subscription, emit).engine(observers, emit)


class _Member(NamedTuple):
    """The parts of a member that `Positions` needs; the others need `Positions`."""

    membership: ClassicMembership
    offers: Offers
    coordinator: Coordinator
    commits: OwnCommits


class _Building:
    """What several parts are given. No part sees it."""

    def __init__(
        self, config: ConsumerConfig, assignors: tuple[Assignor, ...], subscription: Subscription, emit: Emit
    ) -> None:
        self._config = config
        self._assignors = assignors
        self._subscription = subscription
        self._link = link = Link(config)
        self._changes = Changes(Signal)
        self._assignment = Assignment(self._changes)
        self._beside = LaneTable[RangeCursor](self._changes)
        self._delivery = _delivery(config, self._assignment, self._beside)
        self._totals = Totals(emit)
        self._failures = Failures(emit, now_ms, self._totals)
        self._emit = self._failures.emit
        self._inbox = Inbox(self._delivery.interrupt, self._emit)
        self._supervisor = Supervisor(self._inbox.fail_by_task)
        self._threads = Threads()
        self._stopping = Stopping()
        self._callback_runs = CallbackRuns()
        self._meters: list[Meter] = []
        self._poll_clock = PollClock(config.effective_poll_interval_ms, now_ms())
        self._following = Following(
            config=config,
            link=link,
            emit=self._emit,
            inbox=self._inbox,
            subscription=subscription,
            stopping=self._stopping,
        )
        self._refresher = Refresher(
            config=config,
            link=link,
            emit=self._emit,
            failures=self._failures,
            inbox=self._inbox,
            reader=self._following,
        )
        self._leader_offsets = LeaderOffsets(
            config=config, link=link, supervisor=self._supervisor, refresher=self._refresher
        )

    def engine(self, observers: tuple[RecordObserver, ...], emit: Emit) -> Engine:
        config = self._config
        member = None if config.group_id is None else self._member(config.group_id)
        commits = None if member is None else member.commits
        recovery = self._recovery(commits)
        positions = self._positions(commits, recovery)
        validator = self._validator(positions)
        fetchers = self._fetchers(positions)
        assignment_followers = AssignmentFollowers(
            assignment=self._assignment,
            delivery=self._delivery,
            subscription=self._subscription,
            positions=positions,
            fetchers=fetchers,
            recovery=recovery,
            poll_clock=self._poll_clock,
        )
        group: GroupOrNone = NoGroup(self._subscription)
        inspection = None
        if member is not None:
            group, inspection = self._group(member, positions, assignment_followers)
        self_assignment = self._self_assignment(group, assignment_followers)
        self._following.set_parts(group, self._refresher, self_assignment)
        whose = _Whose(config, self._link, group)
        return Engine(
            subscription=self._subscription,
            config=config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            supervisor=self._supervisor,
            threads=self._threads,
            inbox=self._inbox,
            stopping=self._stopping,
            callback_runs=self._callback_runs,
            meters=self._meters,
            following=self._following,
            group=group,
            member=inspection,
            self_assignment=self_assignment,
            requests=self._requests(group),
            refresher=self._refresher,
            positions=positions,
            validator=validator,
            fetchers=fetchers,
            offset_queries=self._offset_queries(),
            named_offsets=self._named_offsets(positions),
            recovery=recovery,
            handling=Handling(observers, emit, whose) if observers else NoHandling(),
        )

    def _member(self, group_id: str) -> _Member:
        config = self._config
        settings = GroupSettings.of(config, is_cooperative=is_cooperative(self._assignors))
        offers = Offers(self._assignors, config.client_rack, self._assignment)
        membership = ClassicMembership(Identity(group_id, config.instance_id), settings, offers, self._following)
        coordinator = Coordinator(
            config=config,
            link=self._link,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            membership=membership,
        )
        committer = Committer(
            config=config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            supervisor=self._supervisor,
            coordinator=coordinator,
            speaks_of_what_is_in_hand=self._callback_runs.speaks_of_what_is_in_hand,
            is_member=True,
        )
        commits = OwnCommits(
            config=config,
            assignment=self._assignment,
            delivery=self._delivery,
            emit=self._emit,
            failures=self._failures,
            supervisor=self._supervisor,
            committer=committer,
        )
        return _Member(membership, offers, coordinator, commits)

    def _recovery(self, commits: OwnCommits | None) -> ParallelRecoveryOrNone:
        if not self._config.enable_parallel_rebalance:
            return NoParallelRecovery()
        from aiogroup._runtime.recovery.parallel import ParallelRecovery  # noqa: PLC0415 (few consumers have it)

        return ParallelRecovery(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            failures=self._failures,
            supervisor=self._supervisor,
            inbox=self._inbox,
            refresher=self._refresher,
            offsets=self._leader_offsets,
            beside=self._beside,
            commits=commits,
        )

    def _positions(self, commits: OwnCommits | None, recovery: ParallelRecoveryOrNone) -> Positions:
        return Positions(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            failures=self._failures,
            totals=self._totals,
            inbox=self._inbox,
            supervisor=self._supervisor,
            offsets=self._leader_offsets,
            commits=commits,
            recoveries=recovery.starts,
        )

    def _validator(self, positions: Positions) -> Validator:
        validator = Validator(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            supervisor=self._supervisor,
            inbox=self._inbox,
            refresher=self._refresher,
            positions=positions,
        )
        self._link.on_metadata = validator.follow_leaders
        return validator

    def _fetchers(self, positions: Positions) -> Fetchers:
        return Fetchers(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            failures=self._failures,
            supervisor=self._supervisor,
            inbox=self._inbox,
            refresher=self._refresher,
            lanes=self._assignment,
            rules=LiveRules(self._config, self._delivery, positions),
        )

    def _self_assignment(self, group: GroupOrNone, assignment_followers: AssignmentFollowers) -> SelfAssignment:
        return SelfAssignment(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            emit=self._emit,
            topics=self._following.topics,
            group=group,
            assignment_followers=assignment_followers,
            callback_runs=self._callback_runs,
        )

    def _requests(self, group: GroupOrNone) -> Requests:
        return Requests(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            inbox=self._inbox,
            group=group,
            subscription=self._subscription,
            callback_runs=self._callback_runs,
            stopping=self._stopping,
        )

    def _offset_queries(self) -> OffsetQueries:
        return OffsetQueries(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            supervisor=self._supervisor,
            inbox=self._inbox,
            refresher=self._refresher,
            offsets=self._leader_offsets,
        )

    def _named_offsets(self, positions: Positions) -> NamedOffsets:
        return NamedOffsets(
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            inbox=self._inbox,
            positions=positions,
        )

    # The rest of a member.

    def _group(
        self, member: _Member, positions: Positions, assignment_followers: AssignmentFollowers
    ) -> tuple[Group, MemberInspection]:
        current = CurrentRebalance(self._emit)
        ownership = self._ownership(member, current, assignment_followers)
        liveness = self._liveness(member, ownership)
        rebalance = self._rebalance(member, current, positions, ownership)
        inspection = MemberInspection(
            config=self._config,
            assignment=self._assignment,
            subscription=self._subscription,
            coordinator=member.coordinator,
            commits=member.commits,
            current=current,
            liveness=liveness,
            rebalance=rebalance,
            poll_clock=self._poll_clock,
        )
        group = Group(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            changes=self._changes,
            supervisor=self._supervisor,
            inbox=self._inbox,
            stopping=self._stopping,
            subscription=self._subscription,
            coordinator=member.coordinator,
            commits=member.commits,
            liveness=liveness,
            rebalance=rebalance,
            poll_clock=self._poll_clock,
        )
        return group, inspection

    def _ownership(
        self, member: _Member, current: CurrentRebalance, assignment_followers: AssignmentFollowers
    ) -> Ownership:
        callbacks = Callbacks(
            changes=self._changes,
            emit=self._emit,
            inbox=self._inbox,
            subscription=self._subscription,
            coordinator=member.coordinator,
            poll_clock=self._poll_clock,
            runs=self._callback_runs,
        )
        return Ownership(
            config=self._config,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            current=current,
            coordinator=member.coordinator,
            commits=member.commits,
            callbacks=callbacks,
            assignment_followers=assignment_followers,
        )

    def _liveness(self, member: _Member, ownership: Ownership) -> Liveness:
        return Liveness(
            config=self._config,
            link=self._link,
            assignment=self._assignment,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            inbox=self._inbox,
            coordinator=member.coordinator,
            ownership=ownership,
            poll_clock=self._poll_clock,
            meters=self._meters,
        )

    def _rebalance(
        self, member: _Member, current: CurrentRebalance, positions: Positions, ownership: Ownership
    ) -> Rebalance:
        config = self._config
        default = parse_reset_policy(config.auto_offset_reset)
        return Rebalance(
            config=config,
            link=self._link,
            assignment=self._assignment,
            changes=self._changes,
            emit=self._emit,
            totals=self._totals,
            inbox=self._inbox,
            current=current,
            coordinator=member.coordinator,
            commits=member.commits,
            positions=positions,
            ownership=ownership,
            protocol=self._rounds(member, current),
            first_sight=FirstSight(default, of_new=parse_reset_policy(config.new_partition_reset)),
            refresher=self._refresher,
        )

    def _rounds(self, member: _Member, current: CurrentRebalance) -> ClassicRounds:
        leader = Leader(
            config=self._config,
            link=self._link,
            threads=self._threads,
            current=current,
            coordinator=member.coordinator,
            assignors=self._assignors,
            leadership=member.membership.leadership,
            refresher=self._refresher,
        )
        return ClassicRounds(
            config=self._config,
            supervisor=self._supervisor,
            current=current,
            coordinator=member.coordinator,
            leader=leader,
            forms=member.membership.forms,
            leadership=member.membership.leadership,
            offers=member.offers,
        )


class _Whose:
    """Whose records the application gets now. It is asked for each of them, and is mostly as it was."""

    def __init__(self, config: ConsumerConfig, link: Link, group: GroupOrNone) -> None:
        self._link = link
        self._coordinator = group.coordinator if isinstance(group, Group) else None
        self._last = Whose(config.group_id, config.client_id, NO_GENERATION, None)

    def __call__(self) -> Whose:
        generation = NO_GENERATION if self._coordinator is None else self._coordinator.identity.generation
        cluster_id, last = self._link.cluster.cluster_id, self._last
        if generation != last.generation or cluster_id != last.cluster_id:
            self._last = last._replace(generation=generation, cluster_id=cluster_id)
        return self._last


def _delivery(config: ConsumerConfig, assignment: Assignment, beside: LaneTable[RangeCursor]) -> Delivery:
    """The delivery: from both lanes with `enable_parallel_rebalance`, from the live lane alone without."""
    return Delivery(
        assignment,
        auto_ack=config.auto_ack,
        records_per_turn=RECORDS_PER_TURN,
        turn_ms=TURN_MS,
        max_bytes=config.max_buffered_bytes,
        catch_up=beside.tally if config.enable_parallel_rebalance else None,
        share=config.parallel_share,
    )
