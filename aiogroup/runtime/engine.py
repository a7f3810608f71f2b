"""Builds a consumer's tasks and starts and ends them in order; keeps the subscription and the tasks in step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio

from aiogroup.assignors import Assignor, Held, is_cooperative
from aiogroup.cluster import Cluster
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConsumerStoppedError, IllegalStateError
from aiogroup.fetching.assignment import Assignment, LaneTable
from aiogroup.fetching.partition import Partition
from aiogroup.fetching.range_cursor import RangeCursor
from aiogroup.membership import facts as f
from aiogroup.membership.blobs import write_subscription
from aiogroup.membership.classic import ClassicMembership
from aiogroup.membership.expansion import hold_back_ms
from aiogroup.membership.identity import Identity
from aiogroup.membership.settings import GroupSettings
from aiogroup.membership.states import MemberState
from aiogroup.membership.topics import Topics
from aiogroup.native import IS_COMPILED
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.delivery.requests import Requests
from aiogroup.runtime.fetching.fetcher import Fetchers
from aiogroup.runtime.fetching.inflater import inflate
from aiogroup.runtime.fetching.positions import Positions
from aiogroup.runtime.fetching.validator import Validator
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.runtime.loop.supervisor import Supervisor
from aiogroup.runtime.membership.callbacks import Callbacks
from aiogroup.runtime.membership.leader import Leader
from aiogroup.runtime.membership.liveness import Liveness
from aiogroup.runtime.membership.ownership import Ownership
from aiogroup.runtime.membership.rebalance import Rebalance
from aiogroup.runtime.membership.self_assignment import SelfAssignment
from aiogroup.runtime.metadata.refresher import Refresher
from aiogroup.runtime.net.link import Link
from aiogroup.runtime.offsets.committer import Committer
from aiogroup.runtime.offsets.named_offsets import NamedOffsets
from aiogroup.runtime.offsets.offset_queries import OffsetQueries
from aiogroup.runtime.recovery.catch_up import CatchUp
from aiogroup.runtime.recovery.catch_up_fetchers import make_delivery, start_catch_up
from aiogroup.runtime.recovery.recovery import Recoveries
from aiogroup.subscription import Subscription
from aiogroup.telemetry import events
from aiogroup.telemetry.events import Tell

__all__ = ["Engine", "Group"]


@dataclass(slots=True)
class Group:
    """The tasks of a group member. With partitions assigned by hand only the committer of them is used."""

    coordinator: Coordinator
    committer: Committer
    liveness: Liveness
    rebalance: Rebalance
    scopes: list[anyio.CancelScope] = field(default_factory=list)

    @property
    def membership(self) -> ClassicMembership:
        return self.coordinator.membership


class Engine:
    """Everything below the face. Made in the loop that runs it."""

    def __init__(
        self, config: ConsumerConfig, assignors: tuple[Assignor, ...], subscription: Subscription, tell: Tell
    ) -> None:
        self.subscription = subscription
        self.supervisor = Supervisor(self._on_task_failed)
        assignment, beside = Assignment(), LaneTable[RangeCursor]()
        delivery = make_delivery(config, assignment, beside)
        self.context = Context(config, Link(config), self.supervisor, assignment, delivery, tell)
        self.refresher = Refresher(self.context, self._topics_wanted, self._on_refreshed, subscription.names)
        self.offset_queries = OffsetQueries(self.context, self.refresher)
        coordinator = committer = None
        if config.group_id is not None:
            coordinator = Coordinator(self.context, self._make_membership(config.group_id, assignors))
            committer = Committer(self.context, coordinator, is_member=True)
        self.catch_up = CatchUp(self.context, beside, self.refresher) if config.enable_parallel_rebalance else None
        recoveries = None if self.catch_up is None else Recoveries(self.context, self.refresher, self.catch_up)
        self.positions = Positions(self.context, self.refresher, committer, recoveries)
        self.named_offsets = NamedOffsets(self.context, self.positions)
        self.validator = Validator(self.context, self.refresher, self.positions)
        self.context.link.on_metadata = self.validator.follow_leaders
        self.fetchers = Fetchers(self.context, self.refresher, self.positions)
        self.group: Group | None = None
        if coordinator is not None and committer is not None:
            self.group = self._make_group(coordinator, committer, assignors)
        self.requests = Requests(
            self.context,
            self.may_deliver,
            self._on_request,
            self._on_answer,
            self._check_subscribed,
            self.is_settled,
        )
        self.topics = Topics()
        self.self_assignment = SelfAssignment(self.context, self.topics, self._commit_leaving, self._on_assignment)
        self._looked_through_for: re.Pattern[str] | None = None
        self._group_started = False
        self._auto_commit_started = False

    # Making.

    def _make_membership(self, group_id: str, assignors: tuple[Assignor, ...]) -> ClassicMembership:
        config = self.context.config
        settings = GroupSettings(
            config.session_timeout_ms,
            config.effective_rebalance_timeout_ms,
            config.retry_backoff_ms,
            max(config.retry_backoff_ms, config.retry_backoff_max_ms),
            config.registration_timeout_ms,
            hold_back_ms(
                config.expansion_timeout_ms, config.effective_rebalance_timeout_ms, config.heartbeat_interval_ms
            ),
            config.leave_on_poll_interval,
            is_cooperative=is_cooperative(assignors),
        )

        def subscriptions(topics: frozenset[str]) -> list[tuple[str, bytes]]:
            assert self.group is not None
            last, claim = self.group.rebalance.held, self.group.membership.claim
            owned = Held((), last.generation)
            if claim >= 0:
                owned = last = Held(tuple(self.context.assignment.names), claim)
            return [
                (
                    each.name,
                    write_subscription(topics, each.subscription_user_data(topics, last), config.client_rack, owned),
                )
                for each in assignors
            ]

        return ClassicMembership(
            Identity(group_id, config.instance_id), settings, subscriptions, self._on_move, self._on_removed
        )

    def _make_group(self, coordinator: Coordinator, committer: Committer, assignors: tuple[Assignor, ...]) -> Group:
        callbacks = Callbacks(self.context, lambda: self.subscription.listener, self._on_callback)
        return Group(
            coordinator,
            committer,
            Liveness(self.context, coordinator, self._drop_for_later, self._is_asking),
            Rebalance(
                self.context,
                coordinator,
                committer,
                self.positions,
                self.refresher,
                Leader(self.context, coordinator, assignors),
                Ownership(self.context, committer, callbacks, self._on_assignment),
            ),
        )

    # Starting and ending.

    async def start(self) -> None:
        """Reach the cluster, then start the tasks.

        Raises:
            AiogroupError: no bootstrap server answered, or one refused the credentials.
            ConsumerStoppedError: it was stopped meanwhile.
        """
        if not IS_COMPILED:
            from aiogroup.native.diagnosis import why_not_compiled  # noqa: PLC0415 (looks at folders: few need it)

            if (slow := why_not_compiled()) is not None:
                self.context.tell(events.SlowDecoder(slow.why, slow.what_to_do))
        await self.supervisor.start()
        try:
            await self.supervisor.finish("first metadata", self.refresher.refresh)
        except BaseException:
            await self.close()
            raise
        if self.requests.is_stopped:
            raise ConsumerStoppedError("the consumer was stopped while it started")
        spawn = self.supervisor.spawn
        if self.group is not None:  # the bootstrap server is asked for the coordinator meanwhile
            self.supervisor.begin("connection", self.context.link.get_ready)
        spawn("refresher", self.refresher.run)
        spawn("positions", self.positions.run)
        spawn("validator", self.validator.run)
        spawn("fetchers", self.fetchers.run)
        spawn("inflater", inflate, self.context)
        if self.catch_up is not None:
            second = self._make_membership(self.context.config.second_group_id, ())
            await start_catch_up(self.context, self.refresher, self.positions, self.catch_up, second)
        self.follow_subscription("start")

    async def wait_for_assignment(self, until_ms: int) -> None:
        """Wait for the first assignment, or until something is wrong, at most until `until_ms`.

        Raises:
            AiogroupError: the group refused the member.
            ConsumerStoppedError: it was stopped meanwhile.
        """
        group = self.group
        while group is not None and self._group_started and self.subscription.names():
            self.context.inbox.raise_fatal()
            if self.requests.is_stopped:
                raise ConsumerStoppedError("the consumer was stopped while it waited for an assignment")
            if group.membership.state in (MemberState.STABLE, MemberState.PARKED) or now_ms() >= until_ms:
                return
            await self.context.changed.wait(until_ms)

    async def close(self) -> None:
        """End every task and close every connection, at once."""
        try:
            await self.supervisor.close()
        finally:
            closing = self.context.link.close()  # after the tasks: none of them shall see its connection break
            self.context.changed.pulse()  # whoever waits still, waits for nothing
        await self.context.link.wait_closed(closing)

    def end_group_tasks(self) -> None:
        """No rebalance and no commit of its own accord any more; heartbeats go on until `close`."""
        if self.group is not None:
            for scope in self.group.scopes:
                scope.cancel()

    # Following the subscription.

    def follow_subscription(self, why: str) -> None:
        """Make the tasks do what the subscription says now."""
        subscription, group = self.subscription, self.group
        subscription.match(self.context.link.cluster, exclude_internal=self.context.config.exclude_internal_topics)
        if why != "start":  # before which all topics were asked for
            self._looked_through_for = None
        if group is not None:
            # What the group gave us is given up, and committed for it, first: see _on_move.
            has_left = group.membership.state is MemberState.LEFT
            if has_left and not subscription.is_manual and self.context.assignment:
                self.self_assignment.assign(frozenset())  # what was assigned by hand: the group knows nothing of it
            group.committer.is_member = not (subscription.is_manual and has_left)
            self.self_assignment.prepare(subscription.assigned)
            if subscription.is_manual and not has_left:
                return
        if subscription.is_manual:
            self.self_assignment.assign(subscription.assigned)
            if group is not None:
                self._start_auto_commit(group)
        elif group is None:
            self.self_assignment.assign_all_of(subscription.names())
        elif subscription.is_by_topic or self._group_started:
            self._start_group(group)
            if group.membership.topics != subscription.names():
                group.rebalance.ownership.why_at_once = why if why not in ("start", "metadata") else ""
                self._change_topics(group, subscription.names(), why)
            elif why == "subscribe":  # the same topics, perhaps with another listener: it hears what is assigned
                group.rebalance.ownership.why_at_once = why
                group.coordinator.handle(f.RejoinWanted(why))
            group.rebalance.note_sight()  # of the topics that are wanted now
        if why != "start" or self.refresher.is_incomplete():
            self.refresher.want()

    def _change_topics(self, group: Group, names: frozenset[str], why: str) -> None:
        group.coordinator.handle(f.SubscriptionChanged(names, why))
        group.rebalance.ownership.follow(names)

    def _start_group(self, group: Group) -> None:
        if self._group_started or self.requests.is_stopped:
            return
        self._group_started = True
        spawn = self.supervisor.spawn
        for name, run in group.liveness.tasks().items():
            spawn(name, run)
        group.scopes.append(spawn("rebalance", group.rebalance.run))
        self._start_auto_commit(group)

    def _start_auto_commit(self, group: Group) -> None:
        if self.context.config.enable_auto_commit and not self._auto_commit_started:
            self._auto_commit_started = True
            group.scopes.append(self.supervisor.spawn("committer", group.committer.run))

    # What the tasks tell each other.

    def may_deliver(self) -> bool:
        """The gate: closed while a rebalance wants, or has, what we held."""
        group = self.group
        if group is None:
            return True
        if self.subscription.is_manual:
            return group.membership.state is MemberState.LEFT
        return group.membership.may_deliver and not group.rebalance.ownership.is_closed

    def is_settled(self) -> bool:
        """What is assigned now stays so, as far as is known: no rebalance brings what is missing."""
        if self.group is None or self.subscription.is_manual:
            return self.may_deliver()
        return not self.group.membership.is_rebalancing

    def _check_subscribed(self) -> None:
        """A request that waits already goes on: another task may be between unsubscribe() and subscribe()."""
        if self.subscription.is_empty:
            self.context.inbox.raise_next()
            raise IllegalStateError(
                "Not subscribed to any topics and no partitions assigned: subscribe() or assign() before asking for "
                "records"
            )

    def _on_request(self, now: int) -> None:
        group = self.group
        if group is None:
            return
        group.liveness.poll_clock.on_request(now)
        if group.rebalance.ownership.is_waiting:
            self.context.group_changed.pulse()
        if group.membership.state is MemberState.PARKED:
            group.coordinator.handle(f.RecordsWanted())

    def _on_answer(self) -> None:
        group = self.group
        if group is not None:
            group.liveness.poll_clock.on_answer(now_ms())

    def _on_assignment(self) -> None:
        context = self.context
        self.positions.follow_topics()  # they may have been looked up before the topic was made anew
        if self.group is not None:
            holds = bool(context.assignment) and not self.subscription.is_manual
            self.group.liveness.poll_clock.on_assignment(holds, now_ms())
        if self.catch_up is not None:
            self.catch_up.follow()
        self.fetchers.note_assignment()
        context.fetchable.pulse()
        context.positions_wanted.pulse()
        context.interrupt()  # a merge must see what is new

    def _on_callback(self, begins: bool) -> None:
        group = self.group
        assert group is not None
        group.liveness.poll_clock.on_callback(now_ms(), begins=begins)
        if not begins and self.requests.is_asking and group.membership.state is MemberState.PARKED:
            group.coordinator.handle(f.RecordsWanted())  # it took too long, and records are waited for all the time

    def _is_asking(self) -> bool:
        return (
            self.requests.is_asking
            and self.group is not None
            and not self.group.rebalance.ownership.callbacks.is_running
        )

    def _drop_for_later(self) -> None:
        if self.group is not None:
            self.group.rebalance.ownership.drop_for_later()

    def _on_move(self, old: MemberState, new: MemberState, why: str) -> None:
        self.context.tell(events.MemberMoved(old.value, new.value, why))
        if new is MemberState.LEFT and self.subscription.is_manual and not self.requests.is_stopped:
            self.follow_subscription("the group was left")

    def _on_removed(self, member_id: str, why: str) -> None:
        self.context.tell(events.MemberRemoved(member_id, why))

    def _topics_wanted(self) -> frozenset[str] | re.Pattern[str]:
        """What we read, and as leader what the others read too."""
        wanted = self.subscription.wanted()
        if isinstance(wanted, re.Pattern) or self.group is None or not self._group_started:
            return wanted
        return wanted | self.group.rebalance.leader.topics_led()

    def _on_refreshed(self, cluster: Cluster) -> None:
        subscription, group = self.subscription, self.group
        news = self.topics.look(self.topics_named(), cluster, now_ms())
        for error in news.refused:
            self.context.inbox.put(error)
        for name, code in news.missing:
            self.context.tell(events.TopicMissing(name, code))
        if self.requests.is_stopped or subscription.is_manual:
            return
        appeared = self._match()
        names = subscription.names()
        if group is None:
            self.self_assignment.assign_all_of(names, appeared)
        elif self._group_started:
            group.rebalance.note_sight()
            group.rebalance.note_appeared(appeared)
            if names != group.membership.topics:
                self._change_topics(group, names, "the topics that match the pattern changed")
            elif (why := group.rebalance.leader.stale_assignment()) is not None:
                group.coordinator.handle(f.RejoinWanted(why))

    def topics_named(self) -> frozenset[str]:
        """All topics that are subscribed to, or of which partitions are assigned by hand."""
        return self.subscription.names() | {tp.topic for tp in self.subscription.assigned}

    def _match(self) -> frozenset[str]:
        """Look which topics the pattern matches. Returns those that were made since all were last looked through."""
        subscription, cluster = self.subscription, self.context.link.cluster
        before, pattern, was_looked_through_for = subscription.names(), subscription.pattern, self._looked_through_for
        subscription.match(
            cluster,
            exclude_internal=self.context.config.exclude_internal_topics,
            keep=before - self.topics.gone(cluster),
        )
        if cluster.is_of_all:
            self._looked_through_for = pattern
        return subscription.names() - before if pattern is was_looked_through_for is not None else frozenset()

    def _commit_leaving(self, partitions: Iterable[Partition]) -> None:
        if self.group is not None:
            self.group.committer.commit_leaving(partitions)

    def _on_task_failed(self, name: str, error: BaseException) -> None:
        self.context.tell(events.TaskFailed(name, repr(error)))
        self.context.inbox.fail(error)
