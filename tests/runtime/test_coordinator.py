"""What the coordinator answers to a member that leaves."""

from __future__ import annotations

import pytest

from aiogroup.config import ConsumerConfig
from aiogroup.errors import BrokerError
from aiogroup.fetching.assignment import Assignment
from aiogroup.fetching.delivery import Delivery
from aiogroup.protocol.errors import ErrorCode as E
from aiogroup.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.link import Link
from aiogroup.runtime.supervisor import Supervisor
from tests.support.coordinator import Member

LEAVE = LeaveGroupRequest(group_id="billing", members=(MemberIdentity(member_id="me"),))


class Answering(Coordinator):
    """Takes every request and gives this answer."""

    answer: LeaveGroupResponse | None = None

    async def exchange(self, _channel, _timeout, request, *, at_most=None):
        assert request() is LEAVE
        return self.answer


async def leave(answer):
    config = ConsumerConfig(group_id="billing")
    assignment = Assignment()
    delivery = Delivery(assignment, auto_ack=True, records_per_turn=256, turn_ms=60_000)
    context = Context(config, Link(config), Supervisor(print), assignment, delivery, lambda event: None)
    coordinator = Answering(context, Member().machine)
    coordinator.answer = answer
    await coordinator.leave(LEAVE)


def of_member(code):
    return LeaveGroupResponse(members=(MemberResponse("me", None, code),))


@pytest.mark.parametrize("code", [E.NONE, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID])
async def test_who_is_out_has_left(code):
    await leave(of_member(code))


@pytest.mark.parametrize("answer", [LeaveGroupResponse(error_code=E.NOT_COORDINATOR), of_member(E.NOT_COORDINATOR)])
async def test_a_refused_leave_is_no_leave(answer):
    with pytest.raises(BrokerError, match="NOT_COORDINATOR") as raised:
        await leave(answer)
    assert raised.value.retriable
