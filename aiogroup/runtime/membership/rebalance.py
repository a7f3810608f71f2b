"""The rebalance task: it carries out the steps that the membership asks for, in order, and reports their results to it.

The way of a rebalance: the hand-over point (nothing is in hand) -> revoked callback -> commit -> JoinGroup -> assign ->
SyncGroup -> positions -> assigned callback -> fetching resumes. Heartbeats go on through all of it.

With the cooperative protocol (KIP-429) records flow through all of it too. JoinGroup claims the held partitions. Those
that SyncGroup does not assign again are given up in the same way (hand-over point, callback, commit), and another round
follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from uuid import UUID

from aiogroup.assignors import Held
from aiogroup.config import ResetPolicy, parse_reset_policy
from aiogroup.errors import AiogroupError, ConnectionLostError, KafkaTimeoutError
from aiogroup.fetching.lane import Bar
from aiogroup.fetching.partition import Partition, PositionState
from aiogroup.membership import facts as f
from aiogroup.membership.assignments import Change, reconcile
from aiogroup.membership.identity import Identity
from aiogroup.membership.remedies import Remedy, Rpc, remedy_for
from aiogroup.membership.requests import Offers
from aiogroup.membership.states import MemberState
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup.protocol.messages.sync_group import SyncGroupResponse
from aiogroup.runtime.context import Context, Round
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.fetching.positions import Positions
from aiogroup.runtime.loop.clock import now_ms
from aiogroup.runtime.membership.leader import Leader
from aiogroup.runtime.membership.ownership import COMMIT_BEFORE_JOIN_MS, Ownership, Still
from aiogroup.runtime.net.link import COMMIT, JOIN
from aiogroup.runtime.offsets.committer import Committer
from aiogroup.structs import TopicPartition
from aiogroup.telemetry import events

__all__ = ["Rebalance"]


class Rebalance:
    def __init__(
        self,
        context: Context,
        coordinator: Coordinator,
        committer: Committer,
        positions: Positions,
        leader: Leader,
        ownership: Ownership,
        offers: Offers,
    ) -> None:
        self._context = context
        self._coordinator = coordinator
        self._committer = committer
        self._positions = positions
        self.leader = leader
        self._offers = offers
        self.ownership = ownership
        self._counts_at_first_sight: dict[str, int] = {}
        self._ids_at_first_sight: dict[str, UUID] = {}
        self.completed_count = 0
        self.is_ending = False
        """The step under way is finished, and no other round begins: a member that joins can commit nothing."""

    async def run(self) -> None:
        while not self.is_ending:
            async with self._coordinator.lock:
                step = self._coordinator.membership.poll(now_ms())
            for effect in step.effects:
                await self._perform(effect)
            for request in step.requests:
                await self._exchange(request)
            if not step.effects and not step.requests:
                await self._context.group_changed.wait(step.wake_at_ms)

    async def _perform(self, effect: f.Effect) -> None:
        match effect:
            case f.HandOver():
                await self._hand_over(effect)
            case f.ComputeAssignment():
                await self.leader.compute_assignment(effect)
            case f.Adopt():
                await self._adopt(effect)
            case f.Fail():
                await self._fail(effect.error)

    # Giving up.

    async def _hand_over(self, effect: f.HandOver) -> None:
        membership, ownership = self._coordinator.membership, self.ownership
        self._context.round = Round(effect.why, now_ms())
        self._context.tell(events.RebalanceStarted(effect.why, membership.identity.generation))

        def still() -> bool:
            return membership.identity.is_member and membership.state is MemberState.PREPARING

        leaving = self._context.assignment.names
        if effect.keeps:
            leaving = frozenset(tp for tp in leaving if tp.topic not in membership.topics)
        if still() and (leaving or not effect.keeps):
            await ownership.revoke(leaving, still)
        ownership.skips_hand_over = False
        if membership.state is not MemberState.PREPARING:
            return  # the poll interval passed, or the consumer stops
        if not membership.identity.is_member:
            await ownership.lose(effect.why)
        await self._settle_commits(keeps=effect.keeps)

    async def _settle_commits(self, *, keeps: bool) -> None:
        """Wait for the commits under way: after JoinGroup the coordinator refuses commits under the old generation.

        Kept partitions can still be committed: commits that begin from here on wait until the round is decided.
        """
        config, committer = self._context.config, self._committer
        if keeps and config.enable_auto_commit:
            timeout = min(COMMIT_BEFORE_JOIN_MS, config.effective_rebalance_timeout_ms)
            await committer.commit_processed(self._context.assignment, timeout)
        committer.is_held_back = keeps
        try:
            if not await committer.settled(config.request_timeout_ms):
                self._context.tell_rebalance_failed("a commit did not settle before JoinGroup")
            if not self.is_ending:
                await self._coordinator.tell(f.HandedOver())
        finally:
            committer.is_held_back = False

    # Joining.

    async def _exchange(self, request: f.Request) -> None:
        membership = self._coordinator.membership
        identity = membership.identity
        if isinstance(request, LeaveGroupRequest):
            try:
                await self._coordinator.leave(request)
            except AiogroupError as error:
                self._context.tell_rebalance_failed(f"LeaveGroup: {error}")
            return
        is_join = isinstance(request, JoinGroupRequest)
        if is_join:  # committed offsets are asked for as soon as the group has answered: connect for that now
            limit_ms = self._context.config.request_timeout_ms
            get_ready = partial(self._coordinator.get_ready, COMMIT, limit_ms)
            self._context.supervisor.begin("connection", get_ready)

        def still_wanted() -> f.Request | None:
            state = MemberState.JOINING if is_join else MemberState.SYNCING
            return request if membership.state is state and membership.identity == identity else None

        try:
            response = await self._coordinator.exchange(JOIN, self._context.config.join_timeout_ms, still_wanted)
        except (ConnectionLostError, KafkaTimeoutError) as error:
            self._context.tell_rebalance_failed(str(error))
            await self._coordinator.tell(f.RequestLost(identity, str(error)))
            return
        except AiogroupError as error:
            await self._coordinator.tell(f.Failed(error))
            return
        if response is None:
            await self._coordinator.tell(f.RequestDropped())
            return
        await self._take_answer(identity, response)

    async def _take_answer(self, identity: Identity, response: object) -> None:
        match response:
            case JoinGroupResponse():
                rpc, fact = Rpc.JOIN_GROUP, f.JoinAnswered(identity, response)
            case SyncGroupResponse():
                rpc, fact = Rpc.SYNC_GROUP, f.SyncAnswered(identity, response)  # type: ignore[assignment]
            case _:
                raise AssertionError(f"unexpected answer {response!r}")
        remedy, why = remedy_for(rpc, response.error_code), f"{rpc.name}: {lookup(response.error_code).name}"
        if remedy is Remedy.REDISCOVER:
            self._coordinator.lose(why)
        if remedy in (Remedy.REDISCOVER, Remedy.RETRY, Remedy.NEXT_GENERATION):
            self._context.tell_rebalance_failed(why)
        was_syncing = self._coordinator.membership.state is MemberState.SYNCING
        await self._coordinator.tell(fact)
        if remedy is Remedy.PROCEED and was_syncing and self._coordinator.membership.state is MemberState.JOINING:
            self._context.tell_rebalance_failed("SYNC_GROUP: the leader's assignment cannot be read")

    # Adopting.

    async def _adopt(self, effect: f.Adopt) -> None:
        await self.leader.know({tp.topic for tp in effect.partitions})
        self.leader.adopt(is_leader=effect.is_leader)
        self._offers.held = Held(effect.partitions, effect.generation)
        generation = effect.generation

        def still() -> bool:
            return self._is_current(generation)

        if still():
            await self._take_over(reconcile(self._context.assignment.names, effect.partitions), still)
        is_current = still()
        await self._coordinator.tell(f.Adopted(generation))
        if is_current:
            self._tell_completed(effect)
        else:
            self._context.tell_rebalance_failed(f"generation {generation} ended before its partitions were taken over")
        self._context.fetchable.pulse()
        self._context.positions_wanted.pulse()
        self._context.changed.pulse()

    def _tell_completed(self, effect: f.Adopt) -> None:
        self.completed_count += 1
        why, duration_ms = self._context.round.why, now_ms() - self._context.round.began_at_ms
        self._context.tell(
            events.RebalanceCompleted(why, effect.generation, effect.partitions, duration_ms, effect.is_leader)
        )

    async def _take_over(self, change: Change, still: Still) -> None:
        default = parse_reset_policy(self._context.config.auto_offset_reset)
        fresh = parse_reset_policy(self._context.config.new_partition_reset)
        policies: dict[TopicPartition, ResetPolicy] = {}
        self.note_sight()  # the metadata may have come in by another way than the refresher
        for tp in sorted(change.added):
            is_new = tp.partition >= self._counts_at_first_sight.get(tp.topic, 2**31)
            policies[tp] = fresh if is_new else default
        added = self._context.assignment.make(policies)
        if not change.revoked:
            self.ownership.take_over(added)
        await self._find_positions(added, still)
        for partition in added:
            if partition.reset_policy is fresh and partition.was_reset and fresh != default:
                self._context.tell(events.NewPartitionFromEarliest(partition.tp.topic, partition.tp.partition))
        if not change.revoked:
            await self.ownership.announce(added, still)
        elif await self.ownership.exchange(change.revoked, added, still):
            # Others can get these partitions once the group knows that they were given up: in another round (KIP-429).
            await self._coordinator.tell(f.RejoinWanted(f"gave up {len(change.revoked)} partitions for others"))
        if still():
            await self._committer.commit_held(added, self._context.config.request_timeout_ms // 3)
        if still():
            for partition in added:
                partition.lift(Bar.NEW)
            self.ownership.follow(self._coordinator.membership.topics)

    def _is_current(self, generation: int) -> bool:
        membership = self._coordinator.membership
        return membership.state is MemberState.ADOPTING and membership.identity.generation == generation

    async def _find_positions(self, added: list[Partition], still: Still) -> None:
        """Retry until the positions are known, or the generation ends. An error never counts as "nothing committed"."""
        while still():
            wanted = [each for each in added if each.state in (PositionState.COMMITTED, PositionState.RESET)]
            if not wanted:
                return
            try:
                await self._positions.resolve(wanted, now_ms() + self._context.config.request_timeout_ms // 3)
            except AiogroupError as error:
                if not any(each.state is PositionState.COMMITTED for each in wanted):
                    # Only leaders did not answer. The positions task asks on, and the rebalance need not wait for it.
                    self._context.tell(events.FetchFailed(-1, None, None, f"looking up positions: {error}"))
                    return
                self._context.tell_rebalance_failed(f"positions: {error}")
                if not error.retriable:
                    await self._coordinator.tell(f.Failed(error))
                    return

    def note_sight(self) -> None:
        """Remember how many partitions a topic had when it was first seen: later ones are new."""
        cluster = self._context.link.cluster
        for topic in self._coordinator.membership.topics:
            info = cluster.topics.get(topic)
            if info is not None and info.partitions:
                if self._ids_at_first_sight.setdefault(topic, info.topic_id) != info.topic_id:
                    self._counts_at_first_sight[topic] = 0
                self._counts_at_first_sight.setdefault(topic, len(info.partitions))
            elif cluster.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.note_appeared([topic])  # whatever the topic will hold once it exists is younger than this member

    def note_appeared(self, topics: Iterable[str]) -> None:
        """All partitions of these topics are new to the group, which is older than the topics."""
        self._counts_at_first_sight |= dict.fromkeys(topics, 0)

    # Failure.

    async def _fail(self, error: AiogroupError) -> None:
        self._context.tell(events.MemberFailed(str(error)))
        self._context.inbox.fail(error)
        self._context.changed.pulse()
        await self.ownership.lose(str(error))
