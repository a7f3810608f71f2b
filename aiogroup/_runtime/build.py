"""Makes the parts of a consumer, from the lowest up: each is given the parts that it calls, which stand below it.

Two parts must call upwards, since new metadata, and a member that has left its group, change what is to be read. Both
inform `Following`, which is made first and is given the parts that it directs last.
"""

from __future__ import annotations

from aiogroup._core.changes import Changes
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment, LaneTable
from aiogroup._core.fetching.range_cursor import RangeCursor
from aiogroup._core.membership.classic.machine import ClassicMembership
from aiogroup._core.membership.classic.requests import Offers
from aiogroup._core.membership.first_sight import FirstSight
from aiogroup._core.membership.identity import NO_GENERATION, Identity
from aiogroup._core.membership.liveness import PollClock
from aiogroup._core.membership.member import MemberObserver
from aiogroup._core.membership.settings import GroupSettings
from aiogroup._core.subscription import Subscription
from aiogroup._core.telemetry.events import Emit
from aiogroup._core.telemetry.meter import Meter
from aiogroup._core.telemetry.record_observer import RecordObserver, Whose
from aiogroup._runtime.context import Context
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.delivery.handling import Handling
from aiogroup._runtime.delivery.requests import Requests
from aiogroup._runtime.delivery.stopping import Stopping
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.fetching.fetcher import Fetchers
from aiogroup._runtime.fetching.lane_rules import LiveRules
from aiogroup._runtime.fetching.positions import Positions
from aiogroup._runtime.fetching.validator import Validator
from aiogroup._runtime.following import Following
from aiogroup._runtime.group import Group, GroupOrNone, NoGroup
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.membership.assignment_changes import AssignmentChanges
from aiogroup._runtime.membership.callback_runs import CallbackRuns
from aiogroup._runtime.membership.callbacks import Callbacks
from aiogroup._runtime.membership.classic.leader import Leader
from aiogroup._runtime.membership.classic.rounds import ClassicRounds
from aiogroup._runtime.membership.current_rebalance import CurrentRebalance
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
    changes = Changes(Signal)
    assignment, beside = Assignment(changes), LaneTable[RangeCursor](changes)
    context = Context(config, Link(config), changes, assignment, _delivery(config, assignment, beside), emit)
    stopping, callback_runs, meters = Stopping(), CallbackRuns(), list[Meter]()
    following = Following(context.config, context.link, context.emit, context.inbox, subscription, stopping)
    refresher = Refresher(context.config, context.link, context.emit, context.failures, context.inbox, following)
    leader_offsets = LeaderOffsets(context.config, context.link, context.supervisor, refresher)
    member = None if config.group_id is None else _Member(context, config.group_id, assignors, following, callback_runs)
    commits = None if member is None else member.commits
    recovery: ParallelRecoveryOrNone = NoParallelRecovery()
    if config.enable_parallel_rebalance:
        from aiogroup._runtime.recovery.parallel import ParallelRecovery  # noqa: PLC0415 (few consumers have it)

        recovery = ParallelRecovery(
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
            leader_offsets,
            beside,
            commits,
        )
    positions = Positions(
        context.config,
        context.link,
        context.assignment,
        context.delivery,
        context.changes,
        context.emit,
        context.failures,
        context.totals,
        context.inbox,
        leader_offsets,
        commits,
        recovery.starts,
    )
    validator = Validator(
        context.config,
        context.link,
        context.assignment,
        context.delivery,
        context.changes,
        context.emit,
        context.supervisor,
        context.inbox,
        refresher,
        positions,
    )
    context.link.on_metadata = validator.follow_leaders
    fetchers = Fetchers(
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
        assignment,
        LiveRules(context.config, context.delivery, positions),
    )
    poll_clock = PollClock(config.effective_poll_interval_ms, now_ms())
    assignments = AssignmentChanges(
        context.assignment, context.delivery, subscription, positions, fetchers, recovery, poll_clock
    )
    group: GroupOrNone = NoGroup(subscription)
    if member is not None:
        group = member.in_group(subscription, positions, assignments, poll_clock, refresher, stopping, meters)
    self_assignment = SelfAssignment(
        context.config,
        context.link,
        context.assignment,
        context.delivery,
        context.emit,
        following.topics,
        group,
        assignments,
        callback_runs,
    )
    following.set_parts(group, refresher, self_assignment)
    return Engine(
        subscription,
        context,
        stopping,
        callback_runs,
        meters,
        following,
        group,
        self_assignment,
        Requests(
            context.config,
            context.link,
            context.assignment,
            context.delivery,
            context.changes,
            context.emit,
            context.inbox,
            group,
            subscription,
            callback_runs,
            stopping,
        ),
        refresher,
        positions,
        validator,
        fetchers,
        OffsetQueries(
            context.config,
            context.link,
            context.assignment,
            context.delivery,
            context.changes,
            context.supervisor,
            context.inbox,
            refresher,
            leader_offsets,
        ),
        NamedOffsets(context.link, context.assignment, context.delivery, context.changes, context.inbox, positions),
        recovery,
        Handling(observers, emit, _Whose(context, group)) if observers else None,
    )


class _Whose:
    """Whose records the application gets now. It is asked for each of them, and is mostly as it was."""

    def __init__(self, context: Context, group: GroupOrNone) -> None:
        self._link = context.link
        self._coordinator = group.coordinator if isinstance(group, Group) else None
        self._last = Whose(context.config.group_id, context.config.client_id, NO_GENERATION, None)

    def __call__(self) -> Whose:
        generation = NO_GENERATION if self._coordinator is None else self._coordinator.identity.generation
        cluster_id, last = self._link.cluster.cluster_id, self._last
        if generation != last.generation or cluster_id != last.cluster_id:
            self._last = last._replace(generation=generation, cluster_id=cluster_id)
        return self._last


class _Member:
    """A member that is built in two steps: `Positions` needs its commits, and the rest of the member needs
    `Positions`.
    """

    def __init__(
        self,
        context: Context,
        group_id: str,
        assignors: tuple[Assignor, ...],
        observer: MemberObserver,
        callback_runs: CallbackRuns,
    ) -> None:
        self._callback_runs = callback_runs
        config = context.config
        settings = GroupSettings.of(config, is_cooperative=is_cooperative(assignors))
        self._offers = Offers(assignors, config.client_rack, context.assignment)
        membership = ClassicMembership(Identity(group_id, config.instance_id), settings, self._offers, observer)
        self._forms = membership.forms
        self._leadership = membership.leadership
        self._context = context
        self._assignors = assignors
        self._coordinator = Coordinator(
            context.config, context.link, context.delivery, context.changes, context.emit, membership
        )
        committer = Committer(
            context.config,
            context.link,
            context.assignment,
            context.delivery,
            context.changes,
            context.emit,
            context.supervisor,
            self._coordinator,
            callback_runs.speaks_of_what_is_in_hand,
            is_member=True,
        )
        self.commits = OwnCommits(
            context.config,
            context.assignment,
            context.delivery,
            context.emit,
            context.failures,
            context.supervisor,
            committer,
        )

    def in_group(
        self,
        subscription: Subscription,
        positions: Positions,
        changes: AssignmentChanges,
        poll_clock: PollClock,
        refresher: Refresher,
        stopping: Stopping,
        meters: list[Meter],
    ) -> Group:
        current = CurrentRebalance(self._context.emit)
        context, coordinator, commits = self._context, self._coordinator, self.commits
        callbacks = Callbacks(
            context.changes, context.emit, context.inbox, subscription, coordinator, poll_clock, self._callback_runs
        )
        ownership = Ownership(
            context.config,
            context.assignment,
            context.delivery,
            context.changes,
            context.emit,
            current,
            coordinator,
            commits,
            callbacks,
            changes,
        )
        leader = Leader(
            context.config,
            context.link,
            context.threads,
            current,
            coordinator,
            self._assignors,
            self._leadership,
            refresher,
        )
        rounds = ClassicRounds(
            context.config,
            context.supervisor,
            current,
            coordinator,
            leader,
            self._forms,
            self._leadership,
            self._offers,
        )
        default = parse_reset_policy(context.config.auto_offset_reset)
        first_sight = FirstSight(default, of_new=parse_reset_policy(context.config.new_partition_reset))
        rebalance = Rebalance(
            context.config,
            context.link,
            context.assignment,
            context.changes,
            context.emit,
            context.totals,
            context.inbox,
            current,
            coordinator,
            commits,
            positions,
            ownership,
            rounds,
            first_sight,
            refresher,
        )
        liveness = Liveness(
            context.config,
            context.link,
            context.assignment,
            context.delivery,
            context.changes,
            context.emit,
            context.inbox,
            coordinator,
            ownership,
            poll_clock,
            meters,
        )
        return Group(
            context.config,
            context.link,
            context.assignment,
            context.changes,
            context.supervisor,
            context.inbox,
            stopping,
            current,
            subscription,
            coordinator,
            commits,
            liveness,
            rebalance,
            poll_clock,
        )


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
