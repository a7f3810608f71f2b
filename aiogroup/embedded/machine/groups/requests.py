"""The checks in front of the groups' coordinators: whether it is this node, whether it loads, which topics exist, and
which faults a test asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.constants import OFFSETS_BY_ID
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup._core.protocol.schema import Request, Response
from aiogroup.embedded.machine.exchange import Exchange, Handler
from aiogroup.embedded.machine.faults.faults import Faults, Place
from aiogroup.embedded.machine.groups.coordinator import GroupCoordinator
from aiogroup.embedded.machine.groups.coordinators import Coordinators
from aiogroup.embedded.machine.groups.expiry import Expiry
from aiogroup.embedded.machine.groups.refused import UNKNOWN_OFFSET, refused, refused_group
from aiogroup.embedded.machine.logs.topics import Topics
from aiogroup.embedded.machine.timers import Timers

__all__ = ["GroupRequests"]

NAMES_PROTOCOL_SINCE = 5
"""KIP-559."""
MemberRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest | OffsetCommitRequest
Ask = Callable[[GroupCoordinator, Exchange, Any, int], Response | None]


class GroupRequests:
    """Serves the requests of groups at all nodes.

    A fault without a topic hits a whole commit, or a whole group of an OffsetFetch; one with a topic hits partitions.
    """

    def __init__(self, coordinators: Coordinators, topics: Topics, faults: Faults, timers: Timers) -> None:
        self._coordinators = coordinators
        self._topics = topics
        self._faults = faults
        self._timers = timers
        self._expiry = Expiry(coordinators, timers)
        coordinators.answer = self._late

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {
            JoinGroupRequest: self._asking(_join),
            SyncGroupRequest: self._asking(_sync),
            HeartbeatRequest: self._asking(_heartbeat),
            LeaveGroupRequest: self._asking(_leave),
            OffsetCommitRequest: self.offset_commit,
            OffsetFetchRequest: self.offset_fetch,
        }

    # Members.

    def _asking(self, ask: Ask) -> Handler:
        def handler(exchange: Exchange, request: MemberRequest, now_ms: int) -> None:
            coordinator = self._coordinator(exchange, request)
            if isinstance(coordinator, ErrorCode):
                exchange.answer(refused(request, coordinator, exchange.version), now_ms)
            elif (response := ask(coordinator, exchange, request, now_ms)) is not None:
                self._answer(exchange, response, now_ms)

        return handler

    def _coordinator(self, exchange: Exchange, request: MemberRequest) -> GroupCoordinator | ErrorCode:
        place = _place(request)
        return self._faults.refusal(exchange, place) or self._coordinators.at(exchange.node_id, request.group_id)

    def _late(self, ticket: Hashable, response: Response) -> None:
        """Called when the coordinator answers a JoinGroup or a SyncGroup."""
        assert isinstance(ticket, Exchange)
        self._answer(ticket, response, self._timers.now_ms)

    def _answer(self, exchange: Exchange, response: Response, now_ms: int) -> None:
        request = exchange.request
        assert isinstance(request, MemberRequest)
        if code := self._faults.denial(exchange, _place(request)):
            response = refused(request, code, exchange.version)
        exchange.answer(response, now_ms)

    # Commits.

    def offset_commit(self, exchange: Exchange, request: OffsetCommitRequest, now_ms: int) -> None:
        """Handle OffsetCommit in Kafka's order (KafkaApis.handleOffsetCommitRequest). Partitions that are refused
        because of their topic come first. If no others remain, the coordinator is not asked.
        """
        if code := self._faults.refusal(exchange, _place(request)):
            exchange.answer(refused(request, code, exchange.version), now_ms)
            return
        known, refused_here = self._known(exchange, request)
        answered: tuple[OffsetCommitResponseTopic, ...] = ()
        if known or not request.topics:
            coordinator = self._coordinators.at(exchange.node_id, request.group_id)
            asked = replace(request, topics=tuple(known))
            if isinstance(coordinator, ErrorCode):
                response: Response = refused(asked, coordinator, exchange.version)
            else:
                response = coordinator.commit(asked, now_ms, version=exchange.version)
            assert isinstance(response, OffsetCommitResponse)
            committed = ((topic.name, each) for topic in response.topics for each in topic.partitions)
            self._expiry.note(
                request, ((name, each.partition_index) for name, each in committed if not each.error_code), now_ms
            )
            if code := self._faults.denial(exchange, _place(request)):
                exchange.answer(refused(request, code, exchange.version), now_ms)
                return
            answered = self._denied(exchange, request, response.topics)
        exchange.answer(OffsetCommitResponse(topics=_merged(refused_here, answered)), now_ms)

    def _known(
        self, exchange: Exchange, request: OffsetCommitRequest
    ) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
        known: list[OffsetCommitRequestTopic] = []
        unknown: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            name = self._name_of(topic, exchange.version)
            if name is None:
                codes = [(each.partition_index, ErrorCode.UNKNOWN_TOPIC_ID) for each in topic.partitions]
                unknown.append(_committed(topic.name, topic, codes))
                continue
            codes = [
                (each.partition_index, self._refusal(exchange, request, name, each.partition_index))
                for each in topic.partitions
            ]
            codes = [(index, code) for index, code in codes if code]
            if codes:
                unknown.append(_committed(name, topic, codes))
            refused_ones = {index for index, _ in codes}
            left = tuple(each for each in topic.partitions if each.partition_index not in refused_ones)
            if left:
                known.append(replace(topic, name=name, partitions=left))
        return known, unknown

    def _refusal(self, exchange: Exchange, request: OffsetCommitRequest, name: str, index: int) -> ErrorCode:
        if self._topics.partition(name, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        place = Place(name, index, request.group_id, request.member_id) if self._faults.is_set else None
        return self._faults.refusal(exchange, place) if place is not None else ErrorCode.NONE

    def _denied(
        self, exchange: Exchange, request: OffsetCommitRequest, topics: tuple[OffsetCommitResponseTopic, ...]
    ) -> tuple[OffsetCommitResponseTopic, ...]:
        if not self._faults.is_set:
            return topics
        return tuple(
            replace(
                topic,
                partitions=tuple(
                    each
                    if each.error_code
                    else replace(
                        each,
                        error_code=self._faults.denial(
                            exchange, Place(topic.name, each.partition_index, request.group_id, request.member_id)
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in topics
        )

    def _name_of(self, topic: OffsetCommitRequestTopic | OffsetFetchRequestTopic, version: int) -> str | None:
        """The topic's name. Since version 10 requests name topics by id; `None` if no topic has the id."""
        if version < OFFSETS_BY_ID:
            return topic.name
        found = self._topics.by_id(topic.topic_id)
        return None if found is None else found.name

    # What was committed.

    def offset_fetch(self, exchange: Exchange, request: OffsetFetchRequest, now_ms: int) -> None:
        groups = tuple(self._fetched(exchange, each, request.require_stable) for each in request.groups)
        exchange.answer(OffsetFetchResponse(groups=groups), now_ms)

    def _fetched(
        self, exchange: Exchange, asked: OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        version, group_id = exchange.version, asked.group_id
        place = Place(group=group_id, member=asked.member_id)
        coordinator = self._faults.refusal(exchange, place) or self._coordinators.at(exchange.node_id, group_id)
        if isinstance(coordinator, ErrorCode):
            return refused_group(asked, coordinator, version)
        known: list[OffsetFetchRequestTopic] = []
        unknown: list[OffsetFetchResponseTopic] = []
        for topic in asked.topics or ():
            name = self._name_of(topic, version)
            if name is None:
                unknown.append(_without_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                known.append(replace(topic, name=name))
        named = replace(asked, topics=None if asked.topics is None else tuple(known))
        found = coordinator.fetched(named, require_stable=require_stable)
        topics: Iterable[OffsetFetchResponseTopic] = found.topics
        if asked.topics is None and version >= OFFSETS_BY_ID:
            topics = self._with_ids(found.topics)
        if code := self._faults.denial(exchange, place):
            return refused_group(asked, code, version)
        answered = tuple(self._denied_offsets(exchange, group_id, each) for each in topics) + tuple(unknown)
        return OffsetFetchResponseGroup(group_id, answered)

    def _with_ids(self, topics: Iterable[OffsetFetchResponseTopic]) -> Iterable[OffsetFetchResponseTopic]:
        for each in topics:
            topic = self._topics.get(each.name)
            if topic is not None:
                yield replace(each, topic_id=topic.topic_id)

    def _denied_offsets(
        self, exchange: Exchange, group_id: str, topic: OffsetFetchResponseTopic
    ) -> OffsetFetchResponseTopic:
        if not self._faults.is_set:
            return topic
        partitions = []
        for each in topic.partitions:
            place = Place(topic.name, each.partition_index, group_id)
            code = self._faults.refusal(exchange, place) or self._faults.denial(exchange, place)
            partitions.append(_without_offset(each.partition_index, code) if code else each)
        return replace(topic, partitions=tuple(partitions))


def _place(request: MemberRequest) -> Place:
    if isinstance(request, LeaveGroupRequest):
        return Place(group=request.group_id, member=request.members[0].member_id if request.members else None)
    return Place(group=request.group_id, member=request.member_id)


def _join(coordinator: GroupCoordinator, exchange: Exchange, request: JoinGroupRequest, now_ms: int) -> None:
    coordinator.join(exchange, request, now_ms, version=exchange.version, client_id=exchange.client_id)


def _sync(
    coordinator: GroupCoordinator, exchange: Exchange, request: SyncGroupRequest, now_ms: int
) -> SyncGroupResponse | None:
    if exchange.version >= NAMES_PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        # This is checked before anything else (SyncGroupRequest.areMandatoryProtocolTypeAndNamePresent).
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    coordinator.sync(exchange, request, now_ms)
    return None


def _heartbeat(
    coordinator: GroupCoordinator, _exchange: Exchange, request: HeartbeatRequest, now_ms: int
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=coordinator.heartbeat(request, now_ms))


def _leave(coordinator: GroupCoordinator, _exchange: Exchange, request: LeaveGroupRequest, now_ms: int) -> Response:
    return coordinator.leave(request, now_ms)


def _committed(
    name: str, topic: OffsetCommitRequestTopic, codes: list[tuple[int, ErrorCode]]
) -> OffsetCommitResponseTopic:
    partitions = tuple(OffsetCommitResponsePartition(index, code) for index, code in codes)
    return OffsetCommitResponseTopic(name, topic.topic_id, partitions)


def _merged(
    refused_here: Iterable[OffsetCommitResponseTopic], answered: tuple[OffsetCommitResponseTopic, ...]
) -> tuple[OffsetCommitResponseTopic, ...]:
    """The answer with one entry for each topic. If nothing was refused here, it is the coordinator's answer unchanged,
    which repeats a topic that the request repeats (OffsetCommitResponse.Builder.merge).
    """
    refused_ones = tuple(refused_here)
    if not refused_ones:
        return answered
    by_topic: dict[tuple[str, Hashable], OffsetCommitResponseTopic] = {}
    for each in refused_ones + answered:
        known = by_topic.get((each.name, each.topic_id))
        partitions = each.partitions if known is None else known.partitions + each.partitions
        by_topic[each.name, each.topic_id] = replace(each, partitions=partitions)
    return tuple(by_topic.values())


def _without_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(index, UNKNOWN_OFFSET, -1, "", code)


def _without_offsets(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = tuple(_without_offset(each, code) for each in topic.partition_indexes)
    return OffsetFetchResponseTopic(topic.name, topic.topic_id or ZERO_UUID, partitions)
