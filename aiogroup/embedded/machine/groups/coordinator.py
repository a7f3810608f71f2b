"""The coordinator of classic groups: takes requests and returns answers, some of them much later. Pure: time is an
argument.

It does the same as a 4.3.1 broker, in the same order: `tests/kafka/test_coordinator_conformance.py` sends both the same
requests. It has no KIP-848 groups and no expiry of offsets, and does not know whether a topic exists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
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
from aiogroup._core.protocol.schema import Response
from aiogroup.embedded.machine.groups.form import Form, MakeForm
from aiogroup.embedded.machine.groups.group import Group, GroupSettings, GroupState
from aiogroup.embedded.machine.groups.joins import Join
from aiogroup.embedded.machine.groups.log import Commit, Committed, CoordinatorLog, PendingCommit, StoredGroup
from aiogroup.embedded.machine.observers import Observer
from aiogroup.embedded.machine.timers import Timers
from aiogroup.embedded.messages.transactions import TxnOffsetCommitRequest

__all__ = ["Answer", "CoordinatorLog", "CoordinatorRequest", "GroupCoordinator"]

NOTHING = Committed(-1, "", -1)
DEAD_UNTIL = 6
"""Before this version of DescribeGroups an unknown group is `Dead` instead of an error (KIP-1043)."""
NOT_FOUND_SINCE = 9
"""From this version of OffsetCommit on, an unknown group has its own error code."""

CoordinatorRequest = (
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
    """An answer, with the `ticket` of its request."""

    ticket: Hashable
    response: Response


class GroupCoordinator:
    """The coordinator of some groups.

    Args:
        new_id: makes member ids: random ones in a broker, numbered ones in scripts.
        settings: the broker's.
        log: the log that the previous coordinator has left.
        now_ms: when it takes over.
        timers: the timers of the whole machine. By default it has its own, which `tick` runs.
        answer: called with the ticket and the response of each answer. By default `handle` and `tick` return the
            answers.
        observer: is called with generations and expired members.
        make_form: makes the form of static membership of a group; by default Kafka's.
    """

    def __init__(
        self,
        new_id: Callable[[str], str],
        settings: GroupSettings | None = None,
        log: CoordinatorLog | None = None,
        now_ms: int = 0,
        *,
        timers: Timers | None = None,
        answer: Callable[[Hashable, Response], None] | None = None,
        observer: Observer | None = None,
        make_form: MakeForm = Form,
    ) -> None:
        self.log = log if log is not None else CoordinatorLog()
        self.groups: dict[str, Group] = {}
        self._settings = settings or GroupSettings()
        self._new_id = new_id
        self._timers = timers or Timers()
        self._answers: list[Answer] = []
        self._answer_now = answer
        self._observer = observer or Observer()
        self._make_form = make_form
        for group_id in self.log:
            self.load(group_id, now_ms)

    def load(self, group_id: str, now_ms: int) -> None:
        """Make the group from its log. Every member gets a whole session time-out."""
        log = self.log.of(group_id)
        if log.group is not None:
            self._group(group_id).load(log.group, now_ms)
        elif log.offsets or log.has_pending:
            self._group(group_id)

    # The methods of every state machine, and the end.

    def handle(
        self, ticket: Hashable, request: CoordinatorRequest, now_ms: int, *, version: int, client_id: str = ""
    ) -> list[Answer]:
        """Handle a request. Returns the answers that are due, to this request and to others. The answer to a JoinGroup
        or SyncGroup may come later.
        """
        self._timers.run(now_ms)
        match request:
            case JoinGroupRequest():
                self.join(ticket, request, now_ms, version=version, client_id=client_id)
            case SyncGroupRequest():
                self.sync(ticket, request, now_ms)
            case HeartbeatRequest():
                self.answer(ticket, HeartbeatResponse(error_code=self.heartbeat(request, now_ms)))
            case LeaveGroupRequest():
                self.answer(ticket, self.leave(request, now_ms))
            case OffsetCommitRequest():
                self.answer(ticket, self.commit(request, now_ms, version=version))
            case DescribeGroupsRequest():
                described = tuple(self.described(each, version) for each in request.groups)
                self.answer(ticket, DescribeGroupsResponse(groups=described))
            case OffsetFetchRequest():
                groups = tuple(self.fetched(each, require_stable=request.require_stable) for each in request.groups)
                self.answer(ticket, OffsetFetchResponse(groups=groups))
        return self._taken()

    def tick(self, now_ms: int) -> list[Answer]:
        """Do everything that is due now, and return the answers."""
        self._timers.run(now_ms)
        return self._taken()

    @property
    def next_at_ms(self) -> int | None:
        """When to `tick`; `None`: only a request can change anything."""
        return self._timers.next_at_ms

    def resign(self) -> list[Answer]:
        """Another broker takes over the `log`: tell all waiting members that the coordinator has moved."""
        for group in self.groups.values():
            group.resign()
        self.groups.clear()
        return self._taken()

    def die(self) -> None:
        """The broker died, and answers nothing any more."""
        for group in self.groups.values():
            group.stop_timers()
        self.groups.clear()

    def give_up(self, group_id: str) -> None:
        """As `resign`, for one group. The caller must take the group's log out of `log`."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.resign()

    # The requests.

    def join(
        self, ticket: Hashable, request: JoinGroupRequest, now_ms: int, *, version: int, client_id: str = ""
    ) -> None:
        """Handle JoinGroup. It is answered at once, or when the group's next generation begins."""
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
            self.answer(ticket, response)
            return
        Join(self._group(request.group_id), ticket, request, version, client_id, self._new_id, now_ms).run()

    def sync(self, ticket: Hashable, request: SyncGroupRequest, now_ms: int) -> None:
        """Handle SyncGroup. It is answered at once, or when the leader has sent the assignment."""
        if code := self._refusal(request.group_id):
            self.answer(ticket, SyncGroupResponse(error_code=code))
        else:
            self.groups[request.group_id].sync(ticket, request, now_ms)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        return self._refusal(request.group_id) or self.groups[request.group_id].heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> LeaveGroupResponse:
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

    def commit(self, request: OffsetCommitRequest, now_ms: int, *, version: int) -> OffsetCommitResponse:
        group, max_chars = self.groups.get(request.group_id), self._settings.max_metadata_chars
        if group is not None:
            code = group.commit_refusal(request, now_ms)
        elif request.generation_id_or_member_epoch < 0:
            code = ErrorCode.NONE
        else:
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
        topics = []
        offsets: dict[tuple[str, int], Committed] = {}
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                metadata = each.committed_metadata or ""
                refusal = code or (ErrorCode.OFFSET_METADATA_TOO_LARGE if len(metadata) > max_chars else code)
                if not refusal:
                    offsets[topic.name, each.partition_index] = Committed(
                        each.committed_offset, metadata, each.committed_leader_epoch
                    )
                partitions.append(OffsetCommitResponsePartition(each.partition_index, refusal))
            topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, tuple(partitions)))
        if offsets:
            self._group(request.group_id)
            self.log.of(request.group_id).append(Commit(offsets))
        return OffsetCommitResponse(topics=tuple(topics))

    def commit_pending(self, request: TxnOffsetCommitRequest) -> dict[tuple[str, int], ErrorCode]:
        """Keep the offsets of a transaction until it ends. Returns the codes by topic and partition."""
        group = self.groups.get(request.group_id)
        code = ErrorCode.NONE
        if group is not None:
            code = group.pending_commit_refusal(request.generation_id, request.member_id, request.group_instance_id)
        elif request.generation_id < 0:
            self._group(request.group_id)
        else:
            code = ErrorCode.ILLEGAL_GENERATION
        codes: dict[tuple[str, int], ErrorCode] = {}
        offsets: dict[tuple[str, int], Committed] = {}
        for topic in request.topics:
            for each in topic.partitions:
                key, metadata = (topic.name, each.partition_index), each.committed_metadata or ""
                is_too_large = len(metadata) > self._settings.max_metadata_chars
                codes[key] = code or (ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else code)
                if not codes[key]:
                    offsets[key] = Committed(each.committed_offset, metadata, each.committed_leader_epoch)
        if offsets:
            self.log.of(request.group_id).append(PendingCommit(request.producer_id, offsets))
        return codes

    def fetched(self, asked: OffsetFetchRequestGroup, *, require_stable: bool = False) -> OffsetFetchResponseGroup:
        """The committed offsets. With `require_stable`, an offset that a transaction under way may replace is answered
        as unstable.
        """
        log = self.log.get(asked.group_id)
        offsets: Mapping[tuple[str, int], Committed] = {} if log is None else log.offsets
        topics = asked.topics if asked.topics is not None else _everything(offsets)
        found = tuple(
            OffsetFetchResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(
                    _unstable(each)
                    if require_stable and log is not None and log.is_pending(topic.name, each)
                    else _fetched_partition(offsets, topic.name, each)
                    for each in topic.partition_indexes
                ),
            )
            for topic in topics
        )
        return OffsetFetchResponseGroup(asked.group_id, found)

    def described(self, group_id: str, version: int) -> DescribedGroup:
        if group_id in self.groups:
            return self.groups[group_id].described()
        code, why = ErrorCode.NONE, None
        if version >= DEAD_UNTIL:
            code, why = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        return DescribedGroup(error_code=code, error_message=why, group_id=group_id, group_state="Dead")

    def delete(self, group_id: str) -> ErrorCode:
        """Forget a group without members, with all that it has committed (GroupMetadataManager.validateDeleteGroup)."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        group.stop_timers()
        del self.groups[group_id]
        self.log.take(group_id)
        return ErrorCode.NONE

    def refusal_of_offset_delete(self, group_id: str) -> ErrorCode:
        """ClassicGroup.validateOffsetDelete."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY and not group.consumes:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def delete_offsets(self, group_id: str, topic: str, indexes: Iterable[int]) -> dict[int, ErrorCode]:
        """Forget a group's commits for these partitions, unless the group reads their topic. The caller has checked the
        group.
        """
        if self.groups[group_id].reads(topic):
            return dict.fromkeys(indexes, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        codes = dict.fromkeys(indexes, ErrorCode.NONE)
        log = self.log.get(group_id)
        if log is not None:
            keys = ((topic, index) for index in codes)
            log.forget_offsets(key for key in keys if key in log.offsets or log.is_pending(*key))
        return codes

    # The rest.

    def _group(self, group_id: str) -> Group:
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self._settings, self, self._timers, self._make_form)
        return self.groups[group_id]

    def answer(self, ticket: Hashable, response: Response, /) -> None:
        if self._answer_now is not None:
            self._answer_now(ticket, response)
        else:
            self._answers.append(Answer(ticket, response))

    def store(self, stored: StoredGroup, /) -> None:
        self.log.of(stored.group_id).append(stored)

    def on_generation(self, group: Group, /) -> None:
        self._observer.on_generation(group, self._timers.now_ms)

    def on_expired(self, group: Group, member_id: str, /) -> None:
        self._observer.on_expired(group, member_id, self._timers.now_ms)

    def _taken(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        return answers


def _everything(offsets: Iterable[tuple[str, int]]) -> list[OffsetFetchRequestTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in offsets:
        by_topic.setdefault(topic, []).append(partition)
    return [OffsetFetchRequestTopic(name=name, partition_indexes=tuple(each)) for name, each in by_topic.items()]


def _unstable(partition: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _fetched_partition(
    offsets: Mapping[tuple[str, int], Committed], topic: str, partition: int
) -> OffsetFetchResponsePartition:
    offset, metadata, epoch = offsets.get((topic, partition), NOTHING)
    return OffsetFetchResponsePartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, metadata=metadata
    )
