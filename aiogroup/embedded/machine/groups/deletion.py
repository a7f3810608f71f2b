"""DeleteGroups (42) and OffsetDelete (47), as KafkaApis, GroupCoordinatorShard and OffsetMetadataManager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.machine.exchange import Exchange, Handler
from aiogroup.embedded.machine.faults.faults import Faults, Place
from aiogroup.embedded.machine.groups.coordinators import Coordinators
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["GroupDeletion"]


class GroupDeletion:
    """Forgets groups without members, and commits for topics that a group does not read."""

    def __init__(self, coordinators: Coordinators, topics: Topics, faults: Faults) -> None:
        self._coordinators = coordinators
        self._topics = topics
        self._faults = faults

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {DeleteGroupsRequest: self.delete_groups, OffsetDeleteRequest: self.delete_offsets}

    def delete_groups(self, exchange: Exchange, request: DeleteGroupsRequest, now_ms: int) -> None:
        """Handle DeleteGroups. A group that is named twice is answered once."""
        results = tuple(
            DeletableGroupResult(group_id, self._deleted(exchange, group_id))
            for group_id in dict.fromkeys(request.groups_names)
        )
        exchange.answer(DeleteGroupsResponse(results=results), now_ms)

    def _deleted(self, exchange: Exchange, group_id: str) -> ErrorCode:
        place = Place(group=group_id)
        coordinator = self._faults.refusal(exchange, place) or self._coordinators.at(exchange.node_id, group_id)
        if isinstance(coordinator, ErrorCode):
            return coordinator
        return coordinator.delete(group_id) or self._faults.denial(exchange, place)

    def delete_offsets(self, exchange: Exchange, request: OffsetDeleteRequest, now_ms: int) -> None:
        """Partitions that are refused because of their topic come first. If the group is refused, the answer has only
        that.
        """
        place = Place(group=request.group_id)
        coordinator = self._faults.refusal(exchange, place) or self._coordinators.at(exchange.node_id, request.group_id)
        if isinstance(coordinator, ErrorCode):
            exchange.answer(OffsetDeleteResponse(error_code=coordinator), now_ms)
            return
        code = coordinator.refusal_of_offset_delete(request.group_id)
        if code:
            exchange.answer(OffsetDeleteResponse(error_code=code), now_ms)
            return
        topics = []
        for topic in request.topics:
            indexes = [each.partition_index for each in topic.partitions]
            places = {index: Place(topic.name, index, request.group_id) for index in indexes}
            codes = {index: self._refusal(exchange, topic.name, index, place) for index, place in places.items()}
            left = [index for index, refusal in codes.items() if not refusal]
            codes.update(coordinator.delete_offsets(request.group_id, topic.name, left))
            codes.update({index: codes[index] or self._faults.denial(exchange, places[index]) for index in left})
            deleted = tuple(OffsetDeleteResponsePartition(index, codes[index]) for index in indexes)
            topics.append(OffsetDeleteResponseTopic(topic.name, deleted))
        code = self._faults.denial(exchange, place)
        exchange.answer(OffsetDeleteResponse(error_code=code, topics=() if code else tuple(topics)), now_ms)

    def _refusal(self, exchange: Exchange, topic: str, index: int, place: Place) -> ErrorCode:
        if self._topics.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._faults.refusal(exchange, place)
