"""The rules for static members: Kafka's form of static membership (KIP-345, as it was released).

The form of the KIP's draft 41, which has other rules, is in `machine/static`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Protocol

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup._core.protocol.messages.leave_group import MemberIdentity
from aiogroup.embedded.machine.groups.log import StoredGroup
from aiogroup.embedded.machine.groups.members import Member, Members
from aiogroup.embedded.machine.timers import Timers

__all__ = ["Entering", "Form", "FormedGroup", "GroupState", "MakeForm"]

SKIP_ASSIGNMENT_SINCE = 9
"""KIP-814."""


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class FormedGroup(Protocol):
    """A group, as far as its form looks at it and changes it."""

    group_id: str
    state: GroupState
    generation: int
    protocol: str | None
    members: Members
    timers: Timers

    def refuse_join(self, ticket: Hashable, member_id: str, code: ErrorCode) -> None: ...
    def rebalance(self, now_ms: int) -> None: ...
    def replace(self, member: Member, member_id: str) -> None: ...
    def enter(self, member: Member, now_ms: int) -> None: ...
    def touch(self, member: Member, now_ms: int) -> None: ...
    def watch(self, member: Member, ends_at_ms: int) -> None: ...
    def store(self) -> None: ...
    def joined(
        self, member: Member, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse: ...


class Entering(Protocol):
    """A JoinGroup under way, as far as a form looks at it."""

    @property
    def request(self) -> JoinGroupRequest: ...
    @property
    def version(self) -> int: ...
    @property
    def ticket(self) -> Hashable: ...
    @property
    def now_ms(self) -> int: ...

    def new_id(self) -> str:
        """Draw an id for this member."""

    def made(self, member_id: str) -> Member:
        """The member that the request describes; it waits in JoinGroup, and is not in the group yet."""

    def add(self, member_id: str) -> None:
        """Let a new member in: it causes a rebalance."""

    def take(self, member: Member) -> None:
        """Update the member from the request."""

    def park(self, member: Member) -> None:
        """As `take`, and let the member wait for the next generation."""

    def answer(self, response: JoinGroupResponse) -> None: ...


class Form:
    """Kafka's released form. Each group has an object of its own."""

    def __init__(self, group: FormedGroup) -> None:
        self.group = group

    # About members.

    def silence_ms(self, member: Member) -> int:
        """The length of silence after which the member is removed."""
        return member.session_timeout_ms

    def newcomers_wait_ms(self, _member: Member, limit_ms: int) -> int | None:
        """How long a new member may wait in JoinGroup for its first generation; `None`: without a limit."""
        return limit_ms

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why a request with these ids is refused; NONE if the ids are a member's."""
        return self.group.members.refusal(member_id, instance_id)

    def commit_refusal(self, _member_id: str, _instance_id: str | None) -> ErrorCode:
        """Why a commit is refused before its ids are looked at."""
        return ErrorCode.NONE

    def known_as(self, member: Member) -> str:
        """The id under which the leader of this generation knows the member."""
        return member.member_id

    # Rounds.

    def on_prepare(self, now_ms: int) -> None:
        """Members are asked to rejoin from now on."""

    def is_everybody_here(self, _now_ms: int) -> bool:
        """Whether the join phase need not wait for any member."""
        return self.group.members.all_joined()

    def keeps(self, member: Member, _now_ms: int) -> bool:
        """Whether a member that has not rejoined by the end of the join phase keeps its place."""
        return member.is_static

    def takes_part(self, _member: Member) -> bool:
        """Whether a member of the new generation is expected to send SyncGroup."""
        return True

    def on_generation(self) -> None:
        """A generation begins, or the group is empty now."""

    def on_stable(self) -> None:
        """The leader's assignment has come."""

    def outlives_sync(self, _member: Member) -> bool:
        """Whether a member that was expected to send SyncGroup, and did not, keeps its place."""
        return False

    def on_expired(self, member: Member) -> None:
        """The member has been silent for too long, and is removed next."""

    # The log, and who takes it over.

    def stored(self, member: Member) -> Member:
        """The member as the log keeps it."""
        return member.stored()

    def on_stored(self) -> None:
        """The group was stored: it is stable or empty, or a member of a stable group got another id."""

    def load(self, stored: StoredGroup) -> Sequence[Member]:
        """The members that the log describes."""
        return [each.stored() for each in stored.members]

    def resign(self) -> None:
        """Another broker coordinates the group from now on."""

    def stop_timers(self) -> None:
        """Cancel everything that would happen by time."""

    # Who comes and who goes.

    def has_place(self, _request: JoinGroupRequest) -> bool:
        """Whether the joining member has a place already, so that the group's size limit does not apply."""
        return False

    @property
    def waiting_count(self) -> int:
        """How many newcomers wait for a round to begin."""
        return 0

    def common_protocols(self) -> set[str]:
        """The assignors that are offered by everybody with whom a newcomer would join."""
        return self.group.members.common_protocols()

    def name_of(self, request: JoinGroupRequest) -> str | None:
        """The static name under which a client without a member id joins. `None`: it joins as a dynamic member."""
        return request.group_instance_id

    def confirms(self, request: JoinGroupRequest) -> bool:
        """Whether a newcomer may join with the id that it was given. Only newcomers without a name are given ids."""
        return request.group_instance_id is None

    def enter(self, join: Entering, member_id: str) -> None:
        """A client without a name joins as a new member, with an id that it was given."""
        join.add(member_id)

    def arrive(self, join: Entering, _name: str) -> None:
        """A client joins under a name that no member has."""
        join.add(join.new_id())

    def rejoin(self, join: Entering, member: Member) -> None:
        """A member joins with its id."""
        group = self.group
        is_unchanged = member.protocols == join.request.protocols
        if group.state is GroupState.COMPLETING and is_unchanged:
            # The answer to its earlier request may have been lost.
            join.answer(group.joined(member))
        elif group.state is GroupState.STABLE and is_unchanged and member.member_id != group.members.leader:
            join.answer(group.joined(member))
        else:
            join.park(member)
            group.rebalance(join.now_ms)

    def come_back(self, join: Entering, member: Member) -> None:
        """A static member that lost its id joins again: there is no rebalance if its subscription is unchanged
        (KIP-345).
        """
        group, old_id, member_id = self.group, member.member_id, join.new_id()
        group.replace(member, member_id)
        join.park(member)
        group.touch(member, join.now_ms)
        if group.state is not GroupState.STABLE or group.members.vote() != group.protocol:
            group.rebalance(join.now_ms)
            return
        group.members.unpark(member)
        if group.members.leader != member_id:
            response = group.joined(member)
        elif join.version >= SKIP_ASSIGNMENT_SINCE:
            response = group.joined(member, skip_assignment=True)
        else:
            response = group.joined(member, leader=old_id)  # with its new id it would take itself for the leader
        group.store()
        join.answer(response)

    def leave(self, _who: MemberIdentity, _now_ms: int) -> ErrorCode | None:
        """Handle LeaveGroup from a client that is not a member yet. `None` leaves the decision to the group."""
        return None


MakeForm = Callable[[FormedGroup], Form]
