"""JoinGroup at the coordinator: who may join, under which id, and whether that causes a rebalance."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup.embedded.machine.groups.group import Group, GroupState
from aiogroup.embedded.machine.groups.members import Member

__all__ = ["Join"]

ID_REQUIRED_SINCE = 4
"""KIP-394: since this version a newcomer without a static name must join again with the id that it is given."""
REBALANCE_TIMEOUT_SINCE = 1
"""KIP-62: before this version the session time-out was also the rebalance time-out."""


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
        self.ticket = ticket
        self.request = request
        self.version = version
        self._client_id = client_id
        self._new_id = new_id
        self.now_ms = now_ms

    @property
    def _rebalance_timeout_ms(self) -> int:
        request, has_own = self.request, self.version >= REBALANCE_TIMEOUT_SINCE
        return request.rebalance_timeout_ms if has_own else request.session_timeout_ms

    def run(self) -> None:
        request, group = self.request, self._group
        if not self._has_room():
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self._fits():
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not request.member_id:
            self._newcomer()
        elif request.member_id in group.pending and not group.form.confirms(request):
            self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "")  # Kafka's coordinator fails with an unexpected error
        elif request.member_id in group.pending:
            group.no_longer_expects(request.member_id)
            group.form.enter(self, request.member_id)
        else:
            refusal = group.form.refusal(request.member_id, request.group_instance_id)
            if refusal is ErrorCode.NONE:
                group.form.rejoin(self, group.members[request.member_id])
            else:
                self._refuse(refusal)

    def _refuse(self, code: ErrorCode, member_id: str | None = None) -> None:
        self._group.refuse_join(self.ticket, self.request.member_id if member_id is None else member_id, code)

    def _has_room(self) -> bool:
        group, member_id = self._group, self.request.member_id
        max_size = group.settings.max_size
        if group.state is GroupState.EMPTY or group.form.has_place(self.request):
            return True
        if len(group.members) + group.form.waiting_count < max_size:
            return True
        if group.state is GroupState.PREPARING:
            is_waiting = member_id in group.members and group.members[member_id].joining is not None
            return is_waiting or group.members.joined_count < max_size
        return member_id in group.members

    def _fits(self) -> bool:
        """Whether the client offers an assignor that all other members have."""
        request, group = self.request, self._group
        if not request.protocol_type or not request.protocols:
            return False
        if not len(group.members):
            return True
        offered = {each.name for each in request.protocols}
        return group.protocol_type == request.protocol_type and bool(offered & group.form.common_protocols())

    def _newcomer(self) -> None:
        request, form = self.request, self._group.form
        name = form.name_of(request)
        if name is not None:
            member = self._group.members.named(name)
            if member is None:
                form.arrive(self, name)
            else:
                form.come_back(self, member)
        elif self.version >= ID_REQUIRED_SINCE:
            member_id = self.new_id()
            self._group.expects(member_id, self.now_ms + request.session_timeout_ms)
            self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            form.enter(self, self.new_id())

    # What a form does with it.

    def new_id(self) -> str:
        """An id for this member."""
        return self._new_id(self.request.group_instance_id or self._client_id)

    def made(self, member_id: str) -> Member:
        request = self.request
        return Member(
            member_id,
            self._group.form.name_of(request),
            request.session_timeout_ms,
            self._rebalance_timeout_ms,
            request.protocols,
            client_id=self._client_id,
            joining=self.ticket,
        )

    def add(self, member_id: str) -> None:
        """Let a new member in: it causes a rebalance."""
        group = self._group
        group.protocol_type = self.request.protocol_type
        group.enter(self.made(member_id), self.now_ms)
        group.rebalance(self.now_ms)

    def take(self, member: Member) -> None:
        """Update the member from the request."""
        request = self.request
        self._group.members.offer(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = self._client_id
        member.rebalance_timeout_ms = self._rebalance_timeout_ms

    def park(self, member: Member) -> None:
        """As `take`, and let the member wait for the next generation."""
        self.take(member)
        self._group.members.park(member, self.ticket)

    def answer(self, response: JoinGroupResponse) -> None:
        self._group.answer(self.ticket, response)
