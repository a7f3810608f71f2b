"""Which groups there are, where they are coordinated, who is in them: ListGroups, DescribeGroups, FindCoordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from aiogroup._core.protocol.constants import GROUP
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aiogroup._core.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiogroup._core.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.exchange import Exchange, Handler
from aiogroup.embedded.machine.faults.faults import Faults, Place
from aiogroup.embedded.machine.groups.coordinators import Coordinators
from aiogroup.embedded.machine.internal_topics import OFFSETS, TRANSACTIONS, InternalTopics
from aiogroup.embedded.machine.nodes import Node
from aiogroup.embedded.machine.refusals import Troubles

__all__ = ["GroupListing"]

CLASSIC = "classic"
GROUP_OPERATIONS = 0b1101_0100_1000
"""Read, delete, describe, describe and alter configs (AclEntry.supportedOperations)."""
TRANSACTION = 1
SHARE = 2
NOBODY = -1


class Transactions(Protocol):
    """Who coordinates transactions."""

    def node_of(self, transactional_id: str, /) -> Node | None: ...


class GroupListing:
    """Serves what clients and administrators ask about groups, at all nodes."""

    def __init__(
        self,
        coordinators: Coordinators,
        transactions: Transactions,
        internal_topics: InternalTopics,
        faults: Faults,
        troubles: Troubles,
    ) -> None:
        self._coordinators = coordinators
        self._transactions = transactions
        self._internal_topics = internal_topics
        self._faults = faults
        self._troubles = troubles

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            FindCoordinatorRequest: self.find_coordinator,
            ListGroupsRequest: self.list_groups,
            DescribeGroupsRequest: self.describe_groups,
        }

    def find_coordinator(self, exchange: Exchange, request: FindCoordinatorRequest, now_ms: int) -> None:
        found = tuple(self._found(exchange, request.key_type, key, now_ms) for key in request.coordinator_keys)
        exchange.answer(FindCoordinatorResponse(coordinators=found), now_ms)

    def _found(self, exchange: Exchange, key_type: int, key: str, now_ms: int) -> Coordinator:
        code, message = self._faults.refusal(exchange, Place(group=key)), None
        if not code and key_type not in (GROUP, TRANSACTION):
            code = ErrorCode.INVALID_REQUEST
            if key_type == SHARE:
                what = f"{exchange.client_id} looked for the coordinator of {key}"
                message = str(self._troubles.note("share groups", what, now_ms))
        if not code:
            self._internal_topics.ensure(TRANSACTIONS if key_type == TRANSACTION else OFFSETS, now_ms)
        node = self._transactions.node_of(key) if key_type == TRANSACTION else self._coordinators.node_of(key)
        if not code and node is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if code or node is None:
            return Coordinator(key, NOBODY, "", NOBODY, code, message or code.name)
        return Coordinator(key, node.node_id, node.host, node.port, ErrorCode.NONE, "")

    def list_groups(self, exchange: Exchange, request: ListGroupsRequest, now_ms: int) -> None:
        """The groups that this node coordinates. Filters ignore upper and lower case."""
        code = self._faults.refusal(exchange)
        mine = [seat for seat in self._coordinators if seat.node_id == exchange.node_id]
        if not code and any(seat.coordinator is None for seat in mine):
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if code:
            exchange.answer(ListGroupsResponse(error_code=code), now_ms)
            return
        states = {each.lower() for each in request.states_filter}
        types = {each.lower() for each in request.types_filter}
        listed = tuple(
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
            for seat in mine
            if seat.coordinator is not None and (not types or CLASSIC in types)
            for group in seat.coordinator.groups.values()
            if not states or group.state.value.lower() in states
        )
        exchange.answer(ListGroupsResponse(groups=listed), now_ms)

    def describe_groups(self, exchange: Exchange, request: DescribeGroupsRequest, now_ms: int) -> None:
        described = tuple(
            self._described(exchange, each, with_operations=request.include_authorized_operations)
            for each in request.groups
        )
        exchange.answer(DescribeGroupsResponse(groups=described), now_ms)

    def _described(self, exchange: Exchange, group_id: str, *, with_operations: bool) -> DescribedGroup:
        place = Place(group=group_id)
        coordinator = self._faults.refusal(exchange, place) or self._coordinators.at(exchange.node_id, group_id)
        if isinstance(coordinator, ErrorCode):
            return DescribedGroup(error_code=coordinator, group_id=group_id)
        found = coordinator.described(group_id, exchange.version)
        if with_operations and not found.error_code:
            return replace(found, authorized_operations=GROUP_OPERATIONS)
        return found
