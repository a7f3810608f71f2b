"""OffsetFetch (9): the committed offsets of groups.

Since version 8 one request asks for many groups, before that for one only. Callers always use the form with many.
Topics are named by name up to version 9, by id since version 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aiogroup._core.protocol.messages.topics import need_ids, need_names
from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID16,
    Request,
    Response,
    Structure,
    Value,
    array,
    structure,
    wire,
)
from aiogroup.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from uuid import UUID

LAST_SINGLE = 7
FIRST_BY_ID = 10


@structure
class OffsetFetchResponsePartition(Structure):
    """One partition; `committed_offset` is -1 if nothing was committed."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=5, default=-1, ignorable=True)
    metadata: str | None = wire(STRING, nullable=0)
    error_code: int = wire(INT16)


@structure
class OffsetFetchResponseTopic(Structure):
    """One topic: `name` up to version 9, `topic_id` since 10."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(array(OffsetFetchResponsePartition))


@structure
class OffsetFetchResponseGroup(Structure):
    """One group. Check `error_code` first; version 1 has the group's error on the partitions."""

    group_id: str = wire(STRING)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(array(OffsetFetchResponseTopic))
    error_code: int = wire(INT16)


@structure
class SingleOffsets(Structure):
    """The answer up to version 7."""

    throttle_time_ms: int = wire(INT32, since=3, ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(array(OffsetFetchResponseTopic))
    error_code: int = wire(INT16, since=2, ignorable=True)


@structure
class OffsetFetchResponse(Response):
    """One entry per group; up to version 7 exactly one, whose `group_id` is empty."""

    throttle_time_ms: int = wire(INT32, since=3, ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(array(OffsetFetchResponseGroup), since=8)

    @classmethod
    def form(cls, version: int) -> type[Structure]:
        return SingleOffsets if version <= LAST_SINGLE else cls

    def lower(self, version: int) -> Structure:
        if version > LAST_SINGLE:
            return self
        if len(self.groups) != 1:
            raise UnsupportedVersionError(
                f"version {version} of OffsetFetchResponse carries 1 group, not {len(self.groups)}"
            )
        return SingleOffsets(self.throttle_time_ms, self.groups[0].topics, self.groups[0].error_code)

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        if version > LAST_SINGLE:
            return form  # type: ignore[no-any-return]
        return cls(form.throttle_time_ms, (OffsetFetchResponseGroup("", form.topics, form.error_code),))


@structure
class OffsetFetchRequestTopic(Structure):
    """One topic: `name` is sent up to version 9, `topic_id` since 10; set both if both are known."""

    name: str = wire(STRING, until=9, ignorable=True)
    topic_id: UUID = wire(UUID16, since=10, ignorable=True)
    partition_indexes: tuple[int, ...] = wire(array(INT32))


@structure
class OffsetFetchRequestGroup(Structure):
    """One group and its topics; `topics=None` asks for everything the group committed (since version 2)."""

    group_id: str = wire(STRING)
    member_id: str | None = wire(STRING, since=9, nullable=9, default=None, ignorable=True)
    member_epoch: int = wire(INT32, since=9, default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(array(OffsetFetchRequestTopic), nullable=2)


@structure
class SingleGroup(Structure):
    """The request up to version 7."""

    group_id: str = wire(STRING)
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(array(OffsetFetchRequestTopic), nullable=2)
    require_stable: bool = wire(BOOLEAN, since=7)


@structure
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Asks for `groups`, up to version 7 one; `require_stable` waits for transactions to end (KIP-447)."""

    API_KEY = 9
    MIN_VERSION = 1
    MAX_VERSION = 10
    FLEXIBLE_SINCE = 6
    RESPONSE = OffsetFetchResponse

    groups: tuple[OffsetFetchRequestGroup, ...] = wire(array(OffsetFetchRequestGroup), since=8)
    require_stable: bool = wire(BOOLEAN, since=7)

    @classmethod
    def form(cls, version: int) -> type[Structure]:
        return SingleGroup if version <= LAST_SINGLE else cls

    def lower(self, version: int) -> Structure:
        topics = [topic for group in self.groups for topic in group.topics or ()]
        if version >= FIRST_BY_ID:
            need_ids("OffsetFetchRequest", version, FIRST_BY_ID, (topic.topic_id for topic in topics))
        else:
            need_names("OffsetFetchRequest", version, FIRST_BY_ID, (topic.name for topic in topics))
        if version > LAST_SINGLE:
            return self
        if len(self.groups) != 1:
            raise UnsupportedVersionError(
                f"version {version} of OffsetFetchRequest asks for 1 group, not {len(self.groups)}: "
                "send one request per group"
            )
        return SingleGroup(self.groups[0].group_id, self.groups[0].topics, self.require_stable)

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        if version > LAST_SINGLE:
            return form  # type: ignore[no-any-return]
        return cls((OffsetFetchRequestGroup(form.group_id, topics=form.topics),), form.require_stable)
