"""JoinGroup at the coordinator: who may join, under which id, and whether that causes a rebalance."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from aiogroup.embedded.machine.groups.group import Group, GroupState
from aiogroup.embedded.machine.groups.members import Member
from aiogroup.protocol.errors import ErrorCode
from aiogroup.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

__all__ = ["Join"]

ID_REQUIRED_SINCE = 4
"""KIP-394: since this version a newcomer without a static name must join again with the id that it is given."""
REBALANCE_TIMEOUT_SINCE = 1
"""KIP-62: before this version the session time-out was also the rebalance time-out."""
SKIP_ASSIGNMENT_SINCE = 9
"""KIP-814."""


class Join:
    """One JoinGroup. `new_id(prefix)` makes the id of a new member."""

    def __init__(
        self,
        group: Group,
        ticket: Hashable,
        request: JoinGroupRequest,
        version: int,
        client_id: str,
        new_id: Callable[[str], str],
        now_ms: int,
    ) -> None:
        self._group = group
        self._ticket = ticket
        self._request = request
        self._version = version
        self._client_id = client_id
        self._new_id = new_id
        self._now_ms = now_ms

    @property
    def _rebalance_timeout_ms(self) -> int:
        request, has_own = self._request, self._version >= REBALANCE_TIMEOUT_SINCE
        return request.rebalance_timeout_ms if has_own else request.session_timeout_ms

    def run(self) -> None:
        request, group = self._request, self._group
        if not self._has_room():
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self._fits():
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not request.member_id:
            self._newcomer()
        elif request.member_id in group.pending:
            group.no_longer_expects(request.member_id)
            self._add(request.member_id)
        else:
            refusal = group.members.refusal(request.member_id, request.group_instance_id)
            if refusal is ErrorCode.NONE:
                self._member(group.members[request.member_id])
            else:
                self._refuse(refusal)

    def _refuse(self, code: ErrorCode, member_id: str | None = None) -> None:
        member_id = self._request.member_id if member_id is None else member_id
        response = JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)
        self._group.answer(self._ticket, response)

    def _has_room(self) -> bool:
        group, member_id = self._group, self._request.member_id
        max_size = group.settings.max_size
        if group.state is GroupState.EMPTY or len(group.members) < max_size:
            return True
        if group.state is GroupState.PREPARING:
            is_waiting = member_id in group.members and group.members[member_id].joining is not None
            return is_waiting or group.members.joined_count < max_size
        return member_id in group.members

    def _fits(self) -> bool:
        """Whether it offers an assignor that all other members have."""
        request, group = self._request, self._group
        if not request.protocol_type or not request.protocols:
            return False
        if not len(group.members):
            return True
        offered = {each.name for each in request.protocols}
        return group.protocol_type == request.protocol_type and bool(offered & group.members.common_protocols())

    def _newcomer(self) -> None:
        request, group = self._request, self._group
        member_id = self._new_id(request.group_instance_id or self._client_id)
        if request.group_instance_id is not None:
            member = group.members.named(request.group_instance_id)
            if member is None:
                self._add(member_id)
            else:
                self._return_of(member, member_id)
        elif self._version >= ID_REQUIRED_SINCE:
            group.expects(member_id, self._now_ms + request.session_timeout_ms)
            self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(member_id)

    def _add(self, member_id: str) -> None:
        request, group = self._request, self._group
        member = Member(
            member_id,
            request.group_instance_id,
            request.session_timeout_ms,
            self._rebalance_timeout_ms,
            request.protocols,
            client_id=self._client_id,
            joining=self._ticket,
        )
        group.protocol_type = request.protocol_type
        group.members.add(member)
        group.watch(member, self._now_ms + group.settings.new_member_join_timeout_ms)
        group.has_newcomer = True
        group.rebalance(self._now_ms)

    def _member(self, member: Member) -> None:
        group = self._group
        is_unchanged = member.protocols == self._request.protocols
        if group.state is GroupState.COMPLETING and is_unchanged:
            # The answer to its former request may have been lost.
            group.answer(self._ticket, group.joined(member))
        elif group.state is GroupState.STABLE and is_unchanged and member.member_id != group.members.leader:
            group.answer(self._ticket, group.joined(member))
        else:
            self._park(member)
            group.rebalance(self._now_ms)

    def _park(self, member: Member) -> None:
        request = self._request
        self._group.members.offer(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = self._client_id
        member.rebalance_timeout_ms = self._rebalance_timeout_ms
        self._group.members.park(member, self._ticket)

    def _return_of(self, member: Member, member_id: str) -> None:
        """A static member that lost its id joins again: there is no rebalance if its subscription is unchanged
        (KIP-345).
        """
        group, old_id = self._group, member.member_id
        group.replace(member, member_id)
        self._park(member)
        group.touch(member, self._now_ms)
        if group.state is not GroupState.STABLE or group.members.vote() != group.protocol:
            group.rebalance(self._now_ms)
            return
        group.members.unpark(member)
        if group.members.leader != member_id:
            response = group.joined(member)
        elif self._version >= SKIP_ASSIGNMENT_SINCE:
            response = group.joined(member, skip_assignment=True)
        else:
            response = group.joined(member, leader=old_id)  # with its own id it would take itself for the leader
        group.store()
        group.answer(self._ticket, response)
