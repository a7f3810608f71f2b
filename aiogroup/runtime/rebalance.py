"""The rebalance task: does what the membership asks for, in its order, and tells it what came of it.

The way of a rebalance: the hand-over point (nothing is in hand) -> revoked callback -> commit -> JoinGroup -> assign ->
SyncGroup -> positions -> assigned callback -> fetching resumes. Heartbeats go on through all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

from aiokafka.structs import TopicPartition

from aiogroup.assignors import Held
from aiogroup.config import ResetPolicy, parse_reset_policy
from aiogroup.errors import AiogroupError, ConnectionLostError, KafkaTimeoutError
from aiogroup.fetching.position import Partition, PositionState
from aiogroup.membership import facts as f
from aiogroup.membership.identity import Identity
from aiogroup.membership.remedies import Remedy, Rpc, remedy_for
from aiogroup.membership.states import MemberState
from aiogroup.protocol.errors import ErrorCode
from aiogroup.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup.protocol.messages.sync_group import SyncGroupResponse
from aiogroup.runtime.callbacks import Callbacks
from aiogroup.runtime.clock import now_ms
from aiogroup.runtime.committer import Committer
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.leader import Leader
from aiogroup.runtime.link import JOIN
from aiogroup.runtime.positions import Positions
from aiogroup.runtime.refresher import Refresher
from aiogroup.telemetry import events

__all__ = ["Rebalance"]

COMMIT_BEFORE_JOIN_MS: Final = 10_000
"""How long a commit may hold a rebalance up; what it does not save is repeated, never lost."""


class Rebalance:
    """`on_assignment()` is called after every change of what is assigned."""

    def __init__(
        self,
        context: Context,
        coordinator: Coordinator,
        committer: Committer,
        positions: Positions,
        refresher: Refresher,
        leader: Leader,
        callbacks: Callbacks,
        on_assignment: Callable[[], None],
    ) -> None:
        self._context = context
        self._coordinator = coordinator
        self._committer = committer
        self._positions = positions
        self._refresher = refresher
        self.leader = leader
        self.held = Held()  # also after it was given up or lost: sticky assignors ask for it
        self.callbacks = callbacks
        self._on_assignment = on_assignment
        self._started_at_ms = now_ms()
        self._counts_at_first_sight: dict[str, int] = {}
        self._ids_at_first_sight: dict[str, UUID] = {}
        self.completed_count = 0
        self.why_rejoin_at_once = ""  # set by the application's own subscribe, which waits for no hand-over

    async def run(self) -> None:
        while True:
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
                await self._hand_over(effect.why)
            case f.ComputeAssignment():
                await self.leader.compute_assignment(effect)
            case f.Adopt():
                await self._adopt(effect)
            case f.Fail():
                await self._fail(effect.error)

    # Giving up.

    async def _hand_over(self, why: str) -> None:
        membership = self._coordinator.membership
        self._started_at_ms = now_ms()
        self._context.tell(events.RebalanceStarted(why, membership.identity.generation))
        await self._wait_for_hand_over()
        self.why_rejoin_at_once = ""
        if membership.state is not MemberState.PREPARING:
            return  # the poll interval passed, or the consumer stops
        if membership.identity.is_member:
            await self.revoke(self._context.assignment.names)
        else:
            await self.lose(why)
        settled = await self._committer.settled(self._context.config.request_timeout_ms)
        if not settled:
            self._context.tell(events.RebalanceFailed("a commit did not settle before JoinGroup"))
        await self._coordinator.tell(f.HandedOver())

    async def _wait_for_hand_over(self) -> None:
        """Until nothing is in hand, the generation is over, or the member is parked."""
        membership, delivery = self._coordinator.membership, self._context.delivery
        timeout = self._context.config.effective_rebalance_timeout_ms
        warnings = [self._started_at_ms + timeout // 2, self._started_at_ms + timeout * 4 // 5]
        self._context.delivery.close_cursor()
        while delivery.is_in_hand and membership.identity.is_member and membership.state is MemberState.PREPARING:
            if self.why_rejoin_at_once:
                break
            if warnings and now_ms() >= warnings[0]:
                warnings.pop(0)
                waited_ms = now_ms() - self._started_at_ms
                self._context.tell(events.RebalanceWaitingForApplication(waited_ms, timeout))
            await self._context.group_changed.wait(warnings[0] if warnings else None)

    async def revoke(self, tps: Collection[TopicPartition]) -> None:
        """Give partitions up in good order: callback, then commit, then they are gone."""
        assignment = self._context.assignment
        await self.callbacks.revoked(tps)
        leaving = [assignment[tp] for tp in tps if tp in assignment]
        if self._context.config.enable_auto_commit:
            timeout = min(COMMIT_BEFORE_JOIN_MS, self._context.config.effective_rebalance_timeout_ms)
            await self._committer.commit_processed(leaving, timeout)
        behind = tuple(sorted(self._committer.processed(leaving)))
        if behind and not self._context.config.enable_auto_commit:
            self._context.tell(events.UncommittedAtRevoke(behind))
        self._remove(tps)
        self._context.tell(events.PartitionsRevoked(tuple(sorted(tps))))

    async def lose(self, why: str) -> None:
        """The partitions belong to somebody else already: they are gone, then the callback is told."""
        tps = self.drop_all() | self._dropped
        self._dropped = frozenset()
        if tps:
            self._context.tell(events.PartitionsLost(tuple(sorted(tps)), why))
            await self.callbacks.lost(tps)

    _dropped: frozenset[TopicPartition] = frozenset()

    def drop_all(self) -> frozenset[TopicPartition]:
        """Everything is gone at once; what was delivered and not committed makes the next `commit()` fail."""
        assignment = self._context.assignment
        tps = assignment.names
        self._context.delivery.settle()
        assignment.failed_commit |= {each.tp for each in assignment if _has_uncommitted(each)}
        self._remove(tps)
        return tps

    def drop_for_later(self) -> None:
        """The same where no callback may run yet: it is called at the next request for records, or in `stop`."""
        self._dropped = self.drop_all() | self._dropped

    def _remove(self, tps: Collection[TopicPartition]) -> None:
        self.callbacks.forget_announced()
        removed = self._context.assignment.remove(tps)
        self._context.delivery.forget(removed)
        self._on_assignment()

    # Joining.

    async def _exchange(self, request: f.Request) -> None:
        membership = self._coordinator.membership
        identity = membership.identity
        if isinstance(request, LeaveGroupRequest):
            try:
                await self._coordinator.leave(request)
            except AiogroupError as error:
                self._context.tell(events.RebalanceFailed(f"LeaveGroup: {error}"))
            return
        is_join = isinstance(request, JoinGroupRequest)

        def still_wanted() -> f.Request | None:
            state = MemberState.JOINING if is_join else MemberState.SYNCING
            return request if membership.state is state and membership.identity == identity else None

        try:
            response = await self._coordinator.exchange(JOIN, self._context.config.join_timeout_ms, still_wanted)
        except (ConnectionLostError, KafkaTimeoutError) as error:
            self._context.tell(events.RebalanceFailed(str(error)))
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
        if remedy_for(rpc, response.error_code) is Remedy.REDISCOVER:
            self._coordinator.lose(f"{rpc.name}: error {response.error_code}")
        await self._coordinator.tell(fact)

    # Adopting.

    async def _adopt(self, effect: f.Adopt) -> None:
        await self.leader.know({tp.topic for tp in effect.partitions})
        self.leader.adopt(is_leader=effect.is_leader)
        self.held = Held(effect.partitions, effect.generation)
        default = parse_reset_policy(self._context.config.auto_offset_reset)
        fresh = parse_reset_policy(self._context.config.new_partition_reset)
        policies: dict[TopicPartition, ResetPolicy] = {}
        for tp in effect.partitions:
            is_new = tp.partition >= self._counts_at_first_sight.get(tp.topic, 2**31)
            policies[tp] = fresh if is_new else default
        added = self._context.assignment.add(policies)
        self._on_assignment()
        await self._find_positions(added, effect.generation)
        for partition in added:
            if partition.reset_policy is fresh and partition.was_reset and fresh != default:
                self._context.tell(events.NewPartitionFromEarliest(partition.tp.topic, partition.tp.partition))
        if self._is_current(effect.generation):
            await self.callbacks.assigned([each.tp for each in added])
        if self._is_current(effect.generation) and self._context.config.enable_auto_commit:
            await self._commit_resets(added)
        await self._coordinator.tell(f.Adopted(effect.generation))
        self.completed_count += 1
        duration_ms = now_ms() - self._started_at_ms
        self._context.tell(
            events.RebalanceCompleted(effect.generation, effect.partitions, duration_ms, effect.is_leader)
        )
        self._context.fetchable.pulse()
        self._context.positions_wanted.pulse()
        self._context.changed.pulse()

    def _is_current(self, generation: int) -> bool:
        membership = self._coordinator.membership
        return membership.state is MemberState.ADOPTING and membership.identity.generation == generation

    async def _find_positions(self, added: list[Partition], generation: int) -> None:
        """Retry until known: an error must never be read as "nothing committed". Ends with the generation."""
        while self._is_current(generation):
            wanted = [each for each in added if each.state in (PositionState.COMMITTED, PositionState.RESET)]
            if not wanted:
                return
            try:
                await self._positions.resolve(wanted, now_ms() + self._context.config.request_timeout_ms // 3)
            except AiogroupError as error:
                self._context.tell(events.RebalanceFailed(f"positions: {error}"))
                if not any(each.state is PositionState.COMMITTED for each in wanted):
                    return  # only leaders are missing: the positions task goes on, the callback need not wait
                if not error.retriable:
                    await self._coordinator.tell(f.Failed(error))
                    return

    async def _commit_resets(self, added: list[Partition]) -> None:
        """A position by policy is durable before the first delivery: a crash must not make it another one."""
        held = [each for each in added if each.is_held]
        if held:
            await self._committer.commit_processed(held, self._context.config.request_timeout_ms // 3)
        for partition in held:
            partition.is_held = False

    def note_sight(self) -> None:
        """Remember how many partitions a topic had when we first saw it: later ones are new."""
        cluster = self._context.link.cluster
        for topic in self._coordinator.membership.topics:
            info = cluster.topics.get(topic)
            if info is not None and info.partitions:
                if self._ids_at_first_sight.setdefault(topic, info.topic_id) != info.topic_id:
                    self._counts_at_first_sight[topic] = 0
                self._counts_at_first_sight.setdefault(topic, len(info.partitions))
            elif cluster.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._counts_at_first_sight[topic] = 0  # whatever it will hold, also when made anew, came after us

    # Failure.

    async def _fail(self, error: AiogroupError) -> None:
        self._context.tell(events.MemberFailed(str(error)))
        self._context.inbox.fail(error)
        self._context.changed.pulse()
        await self.lose(str(error))


def _has_uncommitted(partition: Partition) -> bool:
    return partition.ledger.has_unprocessed or (
        partition.position is not None and partition.committed is not None and partition.position > partition.committed
    )
