"""One classic group as its coordinator sees it: the phases of a rebalance and their timers. Pure: time is an argument.

A rebalance: PREPARING (members wait in JoinGroup) -> the generation begins -> COMPLETING (members wait in SyncGroup
until the leader's assignment comes) -> STABLE. Written from the protocol's rules, apart from the client's
`_core/membership/`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from aiogroup._core.protocol.codec import Reader
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupResponse
from aiogroup._core.protocol.messages.leave_group import MemberIdentity
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup._core.protocol.schema import Response
from aiogroup.embedded.machine.groups.form import Form, GroupState, MakeForm
from aiogroup.embedded.machine.groups.log import StoredGroup
from aiogroup.embedded.machine.groups.members import Member, Members
from aiogroup.embedded.machine.timers import Timer, Timers
from aiogroup.errors import ProtocolError

__all__ = ["Group", "GroupSettings", "GroupState", "Keeper"]


CLIENT_HOST = "/127.0.0.1"
"""As Java writes it: all clients are on this machine."""
CONSUMERS = "consumer"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's `group.*` settings, with Kafka's defaults."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    max_metadata_chars: int = 4_096
    """The limit for the metadata of a committed offset. Kafka's setting says bytes, but counts characters."""


class Keeper(Protocol):
    """What a group tells its coordinator."""

    def answer(self, ticket: Hashable, response: Response, /) -> None:
        """Answer a request."""

    def store(self, stored: StoredGroup, /) -> None:
        """The group became stable or empty: append it to the log."""

    def on_generation(self, group: Group, /) -> None:
        """A generation begins."""

    def on_expired(self, group: Group, member_id: str, /) -> None:
        """A member was removed because it has been silent for too long."""


class Group:
    """One group. It answers requests through its keeper, at once or much later. `make_form` makes the rules for static
    members.
    """

    def __init__(
        self, group_id: str, settings: GroupSettings, keeper: Keeper, timers: Timers, make_form: MakeForm = Form
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.answer = keeper.answer
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = Members()
        self.pending: dict[str, Timer] = {}
        """Member ids that were given with MEMBER_ID_REQUIRED and have not joined yet, with the timers that end them."""
        self.has_newcomer = False
        self.timers = timers
        self.form = make_form(self)
        self._keeper = keeper
        self._unsynced: set[str] = set()
        self._is_initial = False  # the round began in an empty group, and waits for more members
        self._join_timer: Timer | None = None
        self._sync_timer: Timer | None = None

    # The log.

    def store(self) -> None:
        members = tuple(map(self.form.stored, self.members))
        self._keeper.store(
            StoredGroup(self.group_id, self.generation, self.protocol_type, self.protocol, self.members.leader, members)
        )
        self.form.on_stored()

    def load(self, stored: StoredGroup, now_ms: int) -> None:
        """Load the group as a coordinator does that takes over: every member gets a whole session time-out."""
        self.generation, self.protocol_type, self.protocol = stored.generation, stored.protocol_type, stored.protocol
        for member in self.form.load(stored):
            self.members.add(member)
            self.touch(member, now_ms)
        self.members.leader = stored.leader
        self.state = GroupState.STABLE if stored.members else GroupState.EMPTY

    def resign(self) -> None:
        """Another broker coordinates the group from now on: tell all waiting members so."""
        self.stop_timers()
        for member in self.members:
            self.answer_join(member, error_code=ErrorCode.NOT_COORDINATOR)
            self.answer_sync(member, error_code=ErrorCode.NOT_COORDINATOR)
        self.form.resign()

    def stop_timers(self) -> None:
        """The coordinator is gone: cancel everything that would happen to this group by time."""
        self.form.stop_timers()
        sessions = (each.session_timer for each in self.members)
        for timer in (self._join_timer, self._sync_timer, *self.pending.values(), *sessions):
            if timer is not None:
                timer.cancel()

    # Answers.

    def answer_join(self, member: Member, *, error_code: int = 0) -> None:
        ticket = self.members.unpark(member)
        if ticket is None:
            return
        if error_code:
            self.refuse_join(ticket, member.member_id, error_code)
        else:
            self.answer(ticket, self.joined(member))

    def refuse_join(self, ticket: Hashable, member_id: str, code: int) -> None:
        self.answer(ticket, JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None))

    def joined(self, member: Member, *, leader: str | None = None, skip_assignment: bool = False) -> JoinGroupResponse:
        """The answer to `member` about the generation. The leader's answer lists all members."""
        leader = self.members.leader if leader is None else leader
        leads = leader == member.member_id
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader,
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=self.members.described(self.protocol) if leads else (),
        )

    def answer_sync(self, member: Member, *, error_code: int = 0) -> None:
        ticket, member.syncing = member.syncing, None
        if ticket is not None:
            self.answer(ticket, SyncGroupResponse(error_code=error_code) if error_code else self.synced(member))

    def synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    # The rounds.

    def rebalance(self, now_ms: int) -> None:
        """Begin a rebalance. If one is in its join phase already, end that phase once every member has joined. The
        first join phase of an empty group ends only by time.
        """
        if self.state is not GroupState.PREPARING:
            self._prepare(now_ms)
        elif not self._is_initial and self._is_everybody_here(now_ms):
            self._complete_join(now_ms)

    def _is_everybody_here(self, now_ms: int) -> bool:
        return not self.pending and self.form.is_everybody_here(now_ms)

    def _prepare(self, now_ms: int) -> None:
        if self.state is GroupState.COMPLETING:
            for member in self.members:
                member.assignment = b""
                self.answer_sync(member, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        _cancel(self._sync_timer)
        self._unsynced.clear()
        self._is_initial = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        self.form.on_prepare(now_ms)
        timeout_ms = self.members.rebalance_timeout_ms()
        if self._is_initial:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self.has_newcomer = False
            left_ms = max(timeout_ms - delay_ms, 0)
            if delay_ms:
                self._wait_for_more(now_ms, delay_ms, left_ms)
            else:
                self._end_of_first_wait(0, left_ms, now_ms)
        elif self._is_everybody_here(now_ms):
            self._complete_join(now_ms)
        else:
            self._wait_for_joins(now_ms)

    def enter(self, member: Member, now_ms: int) -> None:
        """Add a new member, which waits in JoinGroup for the next generation."""
        self.members.add(member)
        self.has_newcomer = True
        if (limit_ms := self.form.newcomers_wait_ms(member, self.settings.new_member_join_timeout_ms)) is not None:
            self.watch(member, now_ms + limit_ms)

    def _wait_for_joins(self, now_ms: int) -> None:
        self._join_timer = self.timers.at(now_ms + self._patience_ms(), self._complete_join)

    def _patience_ms(self) -> int:
        """How long a phase waits for members: at least 1 ms. A group whose members are all absent waits again and
        again, and if that took no time, virtual time would stand still.
        """
        return max(self.members.rebalance_timeout_ms(), 1)

    def _wait_for_more(self, now_ms: int, delay_ms: int, left_ms: int) -> None:
        self._join_timer = self.timers.at(now_ms + delay_ms, partial(self._end_of_first_wait, delay_ms, left_ms))

    def _end_of_first_wait(self, waited_ms: int, left_ms: int, now_ms: int) -> None:
        """Wait again if a member has joined meanwhile, until the rebalance time-out has passed (InitialDelayedJoin)."""
        if self.has_newcomer and left_ms:
            self.has_newcomer = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, left_ms)
            self._wait_for_more(now_ms, delay_ms, max(left_ms - waited_ms, 0))
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin the generation with the members that have joined; absent static members keep their places."""
        _cancel(self._join_timer)
        self._is_initial = False
        for member in self.members:
            if member.joining is None and not self.form.keeps(member, now_ms):
                self._forget(member)
        if len(self.members) and not self.members.elect():
            self._wait_for_joins(now_ms)
            return
        self.generation += 1
        self.form.on_generation()
        if not len(self.members):
            self.protocol = None
            self.state = GroupState.EMPTY
            self._keeper.on_generation(self)
            self.store()
            return
        self.protocol = self.members.vote()
        self.state = GroupState.COMPLETING
        present = [each for each in self.members if self.form.takes_part(each)]
        self._unsynced = {each.member_id for each in present}
        self._sync_timer = self.timers.at(now_ms + self._patience_ms(), self._end_of_sync_wait)
        self._keeper.on_generation(self)
        for member in present:
            self.answer_join(member)
            member.is_new = False
            self.touch(member, now_ms)

    def _end_of_sync_wait(self, now_ms: int) -> None:
        missing = [each for each in self.members if each.member_id in self._unsynced]
        dropped = [each for each in missing if not self.form.outlives_sync(each)]
        for member in dropped:
            self._drop(member)
        if dropped or self.state is GroupState.COMPLETING:
            self._prepare(now_ms)

    def remove(self, member: Member, now_ms: int) -> None:
        """Remove a member that left, or whose session expired."""
        self._drop(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING, GroupState.PREPARING):
            self.rebalance(now_ms)

    def _drop(self, member: Member) -> None:
        self.answer_join(member, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self.answer_sync(member, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self._unsynced.discard(member.member_id)
        self._forget(member)

    def _forget(self, member: Member) -> None:
        _cancel(member.session_timer)
        member.session_ends_at_ms = None
        self.members.remove(member)

    def replace(self, member: Member, member_id: str) -> None:
        """A static member came back under a new id: a request that still waits under the old id is fenced."""
        self.answer_join(member, error_code=ErrorCode.FENCED_INSTANCE_ID)
        self.answer_sync(member, error_code=ErrorCode.FENCED_INSTANCE_ID)
        if member.member_id in self._unsynced:
            self._unsynced.remove(member.member_id)
            self._unsynced.add(member_id)
        self.members.rename(member, member_id)

    def described(self) -> DescribedGroup:
        """The answer to DescribeGroups. It has subscriptions only if the group is stable. The assignments are the last
        ones.
        """
        is_stable = self.state is GroupState.STABLE
        members = tuple(
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=CLIENT_HOST,
                member_metadata=each.metadata(self.protocol) if is_stable else b"",
                member_assignment=each.assignment,
            )
            for each in self.members
        )
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol or "") if is_stable else "",
            members=members,
        )

    @property
    def consumes(self) -> bool:
        """Whether its members are consumers: a broker can read only the subscriptions of consumers."""
        return self.protocol_type == CONSUMERS

    def reads(self, topic: str) -> bool:
        """Whether a member is subscribed to the topic (ClassicGroup.isSubscribedToTopic). If the subscriptions are
        unknown, because no generation has begun or they cannot be read, the answer is yes for every topic.
        """
        if not len(self.members):
            return False
        if self.protocol is None or not self.consumes:
            return self.consumes
        try:
            return any(topic in _subscribed(each.metadata(self.protocol)) for each in self.members)
        except ProtocolError:
            return True

    # Requests.

    def refusal(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        refusal = self.form.refusal(member_id, instance_id)
        if refusal is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return refusal

    def sync(self, ticket: Hashable, request: SyncGroupRequest, now_ms: int) -> None:
        refusal = self.refusal(request.member_id, request.group_instance_id, request.generation_id)
        if refusal is ErrorCode.NONE and self._contradicts(request):
            refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if refusal is ErrorCode.NONE and self.state is GroupState.PREPARING:
            refusal = ErrorCode.REBALANCE_IN_PROGRESS
        if refusal is not ErrorCode.NONE:
            self.answer(ticket, SyncGroupResponse(error_code=refusal))
            return
        member = self.members[request.member_id]
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            _cancel(self._sync_timer)
        member.syncing = ticket
        if self.state is GroupState.STABLE:
            self.answer_sync(member)
            self.touch(member, now_ms)
        elif member.member_id == self.members.leader:
            given = {each.member_id: bytes(each.assignment) for each in request.assignments}
            self.state = GroupState.STABLE
            self.form.on_stable()
            for each in self.members:
                each.assignment = given.get(self.form.known_as(each), b"")
                if each.syncing is not None:
                    self.answer_sync(each)
                    self.touch(each, now_ms)
            self.store()

    def _contradicts(self, request: SyncGroupRequest) -> bool:
        pairs = ((request.protocol_type, self.protocol_type), (request.protocol_name, self.protocol))
        return any(said is not None and known is not None and said != known for said, known in pairs)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        refusal = self.refusal(request.member_id, request.group_instance_id, request.generation_id)
        if refusal is not ErrorCode.NONE:
            return refusal
        self.touch(self.members[request.member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, who: MemberIdentity, now_ms: int) -> ErrorCode:
        if (left := self.form.leave(who, now_ms)) is not None:
            return left
        if not who.member_id and who.group_instance_id is not None:
            member = self.members.named(who.group_instance_id)  # an administrator names only the static name
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif who.member_id in self.pending:
            self.no_longer_expects(who.member_id)
            self._without_pending(now_ms)
            return ErrorCode.NONE
        else:
            refusal = self.form.refusal(who.member_id, who.group_instance_id)
            if refusal is not ErrorCode.NONE:
                return refusal
            member = self.members[who.member_id]
        self.remove(member, now_ms)
        return ErrorCode.NONE

    def _without_pending(self, now_ms: int) -> None:
        if self.state is GroupState.PREPARING:
            self.rebalance(now_ms)

    def commit_refusal(self, request: OffsetCommitRequest, now_ms: int) -> ErrorCode:
        """Why a commit is refused: it must come from a member of this generation, or name no member if the group has
        none.
        """
        generation, member_id = request.generation_id_or_member_epoch, request.member_id
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if missing := self.form.commit_refusal(member_id, request.group_instance_id):
            return missing
        if generation < 0 and not member_id and request.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        refusal = self.refusal(member_id, request.group_instance_id, generation)
        if refusal is ErrorCode.NONE and self.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if refusal is ErrorCode.NONE:
            self.touch(self.members[member_id], now_ms)
        return refusal

    def pending_commit_refusal(self, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why the offsets of a transaction are refused. A rebalance under way is no reason.

        A request that names no member is not refused: before KIP-447 producers could not name the consuming member.
        """
        if generation < 0 and (self.state is GroupState.EMPTY or (not member_id and instance_id is None)):
            return ErrorCode.NONE
        return self.form.commit_refusal(member_id, instance_id) or self.refusal(member_id, instance_id, generation)

    # Time.

    def touch(self, member: Member, now_ms: int) -> None:
        """The member has sent a request: its session begins again."""
        member.heard_at_ms = now_ms
        self.watch(member, now_ms + self.form.silence_ms(member))

    def watch(self, member: Member, ends_at_ms: int) -> None:
        """The member's session ends at this instant, if nothing is heard of it before."""
        timer, member.session_ends_at_ms = member.session_timer, ends_at_ms
        if timer is not None and timer.at_ms <= ends_at_ms:
            self.timers.postpone(timer, ends_at_ms)
        else:
            _cancel(timer)
            member.session_timer = self.timers.at(ends_at_ms, partial(self._end_of_session, member))

    def _end_of_session(self, member: Member, now_ms: int) -> None:
        member.session_ends_at_ms = member.session_timer = None
        if not member.is_excused:
            self._keeper.on_expired(self, member.member_id)
            self.form.on_expired(member)
            self.remove(member, now_ms)

    def expects(self, member_id: str, until_ms: int) -> None:
        """A client was given this id, and is expected to join again with it."""
        self.pending[member_id] = self.timers.at(until_ms, partial(self._end_of_pending, member_id))

    def no_longer_expects(self, member_id: str) -> None:
        self.pending.pop(member_id).cancel()

    def _end_of_pending(self, member_id: str, now_ms: int) -> None:
        del self.pending[member_id]
        self._without_pending(now_ms)


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()


def _subscribed(metadata: bytes) -> list[str]:
    """The topics of a consumer's subscription: in every version they follow the version number
    (ConsumerProtocolSubscription). The client's reader of subscriptions is not used, since this broker is there to
    judge it.

    Raises:
        ProtocolError: the bytes are no subscription.
    """
    reader = Reader(metadata)
    reader.int16()
    return [reader.string() for _ in range(reader.int32())]
