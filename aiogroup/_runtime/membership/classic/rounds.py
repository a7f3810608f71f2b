"""What the classic protocol alone adds to the rebalance task: the way of its requests, and the leader's part."""

from __future__ import annotations

from contextlib import suppress

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.classic.forms import Forms
from aiogroup._core.membership.classic.leadership import Leadership
from aiogroup._core.membership.classic.requests import Offers
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.remedies import Remedy, Rpc, is_expected_at_start, remedy_for
from aiogroup._core.membership.states import MemberState
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.loop.clock import now_ms, timeout_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.membership.classic.leader import Leader
from aiogroup._runtime.membership.current_rebalance import CurrentRebalance
from aiogroup._runtime.net.link import COMMIT, JOIN
from aiogroup.assignors import Held
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, ConnectionLostError, KafkaTimeoutError

__all__ = ["ClassicRounds"]


class ClassicRounds:
    """The `GroupProtocol` of a `ClassicMembership`, whose `forms`, `leadership` and `offers` are given here too."""

    def __init__(
        self,
        config: ConsumerConfig,
        supervisor: Supervisor,
        current: CurrentRebalance,
        coordinator: Coordinator,
        leader: Leader,
        forms: Forms,
        leadership: Leadership,
        offers: Offers,
    ) -> None:
        self._config = config
        self._supervisor = supervisor
        self._current = current
        self._coordinator = coordinator
        self._leader = leader
        self._forms = forms
        self._leadership = leadership
        self._offers = offers

    async def perform(self, effect: f.ComputeAssignment | f.CheckWithheld | f.CheckUnread) -> None:
        match effect:
            case f.ComputeAssignment():
                await self._leader.compute_assignment(effect)
            case f.CheckWithheld():
                await self._leader.check_withheld(effect)
            case f.CheckUnread():
                await self._leader.check_unread(effect)

    def on_adopted(self, effect: f.Adopt) -> None:
        self._leadership.on_adopted(leads=effect.is_leader)
        self._offers.last_held = Held(effect.partitions, effect.generation)

    async def exchange(self, request: f.Request) -> None:
        membership = self._coordinator.membership
        identity = membership.identity
        if isinstance(request, LeaveGroupRequest):
            try:
                await self._coordinator.leave(request)
            except AiogroupError as error:
                self._current.emit_failed(f"LeaveGroup: {error}")
            return
        is_join, config = isinstance(request, JoinGroupRequest), self._config
        is_question = isinstance(request, ApiVersionsRequest)
        channel, limit_ms = JOIN, config.join_timeout_ms + self._forms.of(identity).join_wait_ms
        if is_question:
            channel, limit_ms = COMMIT, config.request_timeout_ms
        if not isinstance(request, SyncGroupRequest):
            # JoinGroup comes next, or the question for committed offsets: connect for it now.
            following = COMMIT if is_join else JOIN
            self._supervisor.spawn("connection", self._coordinator.get_ready, following, config.request_timeout_ms)

        def still_wanted() -> f.Request | None:
            if is_join and self._forms.question(identity) is not None:
                return None  # the coordinator for which it was made is gone, and the next one may serve another form
            state = MemberState.SYNCING if isinstance(request, SyncGroupRequest) else MemberState.JOINING
            return request if membership.state is state and membership.identity == identity else None

        try:
            if is_question:  # to look for the coordinator may take as long as with JoinGroup; only its answer is quick
                with suppress(TimeoutError):
                    async with timeout_ms(config.join_timeout_ms):
                        await self._coordinator.find()
            response = await self._coordinator.exchange(channel, limit_ms, still_wanted)
        except (ConnectionLostError, KafkaTimeoutError) as error:
            self._current.emit_failed(str(error))
            await self._coordinator.report(f.RequestLost(identity, str(error)))
            return
        except AiogroupError as error:
            await self._coordinator.report(f.Failed(error))
            return
        if response is None:
            await self._coordinator.report(f.RequestDropped())
            return
        if isinstance(response, ApiVersionsResponse):
            await self._coordinator.report(f.ApisAnswered(identity, response))
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
        code, under_way = response.error_code, self._current
        remedy, why = remedy_for(rpc, code), f"{rpc.name}: {lookup(code).name}"
        is_expected = under_way.is_first and is_expected_at_start(code, now_ms() - under_way.began_at_ms)
        if remedy is Remedy.REDISCOVER:
            self._coordinator.lose(why, is_expected=is_expected)
        if remedy in (Remedy.REDISCOVER, Remedy.RETRY, Remedy.NEXT_GENERATION):
            self._current.emit_failed(why, is_expected=is_expected)
        was_syncing = self._coordinator.membership.state is MemberState.SYNCING
        await self._coordinator.report(fact)
        if remedy is Remedy.PROCEED and was_syncing and self._coordinator.membership.state is MemberState.JOINING:
            self._current.emit_failed("SYNC_GROUP: the leader's assignment cannot be read")
