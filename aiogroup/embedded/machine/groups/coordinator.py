"""The coordinator of classic groups: takes requests and returns answers, some of them much later. Pure: time is an
argument.

It does the same as a 4.3.1 broker, in the same order; `tests/kafka/test_coordinator_conformance.py` sends both the same
requests. It lacks groups of KIP-848, transactions and the expiry of offsets, and does not know whether a topic exists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from aiogroup.embedded.machine.groups.group import Group, GroupSettings, StoredGroup
from aiogroup.embedded.machine.groups.joins import Join
from aiogroup.protocol.errors import ErrorCode
from aiogroup.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aiogroup.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from aiogroup.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiogroup.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aiogroup.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup.protocol.schema import Response

__all__ = ["Answer", "CoordinatorLog", "GroupCoordinator", "GroupRequest"]

MAX_METADATA = 4096
"""Characters, not bytes."""
DEAD_UNTIL = 6
"""Before this version of DescribeGroups an unknown group is `Dead` instead of an error (KIP-1043)."""
NOT_FOUND_SINCE = 9
"""From this version of OffsetCommit on an unknown group has an error code of its own."""

GroupRequest = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | DescribeGroupsRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; `ticket` is that of its request."""

    ticket: Hashable
    response: Response


@dataclass(slots=True)
class CoordinatorLog:
    """The state that outlives a coordinator: the offsets, and each group as it was when it last became stable or
    empty.
    """

    offsets: dict[str, dict[tuple[str, int], tuple[int, str, int]]] = field(default_factory=dict)
    groups: dict[str, StoredGroup] = field(default_factory=dict)


class GroupCoordinator:
    """The coordinator. `new_id(prefix)` makes member ids: random ones in a broker, numbered ones in a simulation."""

    def __init__(
        self,
        new_id: Callable[[str], str],
        settings: GroupSettings | None = None,
        log: CoordinatorLog | None = None,
        now_ms: int = 0,
    ) -> None:
        self.log = log or CoordinatorLog()
        self.groups: dict[str, Group] = {}
        self._settings = settings or GroupSettings()
        self._new_id = new_id
        self._answers: list[Answer] = []
        for stored in self.log.groups.values():
            self._group(stored.group_id).load(stored, now_ms)

    # The methods of every state machine, and the end.

    def handle(
        self, ticket: Hashable, request: GroupRequest, now_ms: int, *, version: int, client_id: str = ""
    ) -> list[Answer]:
        """Handle a request. Returns the answers that are due, to this request and to others; that to a JoinGroup or
        SyncGroup may come later.
        """
        self._expire(now_ms)
        match request:
            case JoinGroupRequest():
                self._join(ticket, request, version, client_id, now_ms)
            case SyncGroupRequest():
                self._sync(ticket, request, now_ms)
            case HeartbeatRequest():
                code = self._refusal(request.group_id) or self.groups[request.group_id].heartbeat(request, now_ms)
                self._answer(ticket, HeartbeatResponse(error_code=code))
            case LeaveGroupRequest():
                self._answer(ticket, self._leave(request, now_ms))
            case OffsetCommitRequest():
                self._answer(ticket, self._commit(request, version, now_ms))
            case DescribeGroupsRequest():
                described = tuple(self._described(each, version) for each in request.groups)
                self._answer(ticket, DescribeGroupsResponse(groups=described))
            case OffsetFetchRequest():
                self._answer(ticket, OffsetFetchResponse(groups=tuple(map(self._fetched, request.groups))))
        return self._taken()

    def tick(self, now_ms: int) -> list[Answer]:
        """Do everything that is due now, and return the answers."""
        self._expire(now_ms)
        return self._taken()

    @property
    def next_at_ms(self) -> int | None:
        """When to `tick`; `None`: only a request can change anything."""
        return min((at for group in self.groups.values() if (at := group.next_at_ms) is not None), default=None)

    def resign(self) -> list[Answer]:
        """Another broker takes over with the `log`: tell all waiting members that the coordinator has moved."""
        for group in self.groups.values():
            group.resign()
        self.groups.clear()
        return self._taken()

    # The requests.

    def _join(self, ticket: Hashable, request: JoinGroupRequest, version: int, client_id: str, now_ms: int) -> None:
        settings = self._settings
        code = ErrorCode.NONE
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        elif request.group_id not in self.groups and request.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code:
            response = JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name=None)
            self._answer(ticket, response)
            return
        Join(self._group(request.group_id), ticket, request, version, client_id, self._new_id, now_ms).run()

    def _sync(self, ticket: Hashable, request: SyncGroupRequest, now_ms: int) -> None:
        if code := self._refusal(request.group_id):
            self._answer(ticket, SyncGroupResponse(error_code=code))
        else:
            self.groups[request.group_id].sync(ticket, request, now_ms)

    def _leave(self, request: LeaveGroupRequest, now_ms: int) -> LeaveGroupResponse:
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        members = []
        for each in request.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.leave(each, now_ms)
            members.append(MemberResponse(each.member_id, each.group_instance_id, code))
        return LeaveGroupResponse(members=tuple(members))

    def _refusal(self, group_id: str) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return ErrorCode.NONE if group_id in self.groups else ErrorCode.UNKNOWN_MEMBER_ID

    def _commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> OffsetCommitResponse:
        group = self.groups.get(request.group_id)
        if group is not None:
            code = group.commit_refusal(request, now_ms)
        elif request.generation_id_or_member_epoch < 0:
            self._group(request.group_id)
            code = ErrorCode.NONE
        else:
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                metadata = each.committed_metadata or ""
                refusal = code or (ErrorCode.OFFSET_METADATA_TOO_LARGE if len(metadata) > MAX_METADATA else code)
                if not refusal:
                    offsets = self.log.offsets.setdefault(request.group_id, {})
                    offsets[topic.name, each.partition_index] = (
                        each.committed_offset,
                        metadata,
                        each.committed_leader_epoch,
                    )
                partitions.append(OffsetCommitResponsePartition(each.partition_index, refusal))
            topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, tuple(partitions)))
        return OffsetCommitResponse(topics=tuple(topics))

    def _fetched(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        offsets = self.log.offsets.get(asked.group_id, {})
        topics = asked.topics if asked.topics is not None else _everything(offsets)
        found = tuple(
            OffsetFetchResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(_fetched_partition(offsets, topic.name, each) for each in topic.partition_indexes),
            )
            for topic in topics
        )
        return OffsetFetchResponseGroup(asked.group_id, found)

    def _described(self, group_id: str, version: int) -> DescribedGroup:
        if group_id in self.groups:
            return self.groups[group_id].described()
        code, why = ErrorCode.NONE, None
        if version >= DEAD_UNTIL:
            code, why = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        return DescribedGroup(error_code=code, error_message=why, group_id=group_id, group_state="Dead")

    # The rest.

    def _group(self, group_id: str) -> Group:
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self._settings, self._answer)
        return self.groups[group_id]

    def _answer(self, ticket: Hashable, response: Response) -> None:
        self._answers.append(Answer(ticket, response))

    def _expire(self, now_ms: int) -> None:
        for group in self.groups.values():
            group.expire(now_ms)

    def _taken(self) -> list[Answer]:
        for group_id, group in self.groups.items():
            if group.stored is not None:
                self.log.groups[group_id] = group.stored
        answers, self._answers = self._answers, []
        return answers


def _everything(offsets: Iterable[tuple[str, int]]) -> list[OffsetFetchRequestTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in offsets:
        by_topic.setdefault(topic, []).append(partition)
    return [OffsetFetchRequestTopic(name=name, partition_indexes=tuple(each)) for name, each in by_topic.items()]


def _fetched_partition(
    offsets: dict[tuple[str, int], tuple[int, str, int]], topic: str, partition: int
) -> OffsetFetchResponsePartition:
    offset, metadata, epoch = offsets.get((topic, partition), (-1, "", -1))
    return OffsetFetchResponsePartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, metadata=metadata
    )
