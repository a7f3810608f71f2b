"""SyncGroup (14).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    BYTES,
    INT16,
    INT32,
    STRING,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)


@structure
class SyncGroupResponse(Response):
    """The answer to `SyncGroupRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)
    protocol_type: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)
    assignment: bytes = wire(BYTES)


@structure
class SyncGroupRequestAssignment(Structure):
    """Each assignment."""

    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@structure
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Asks for this member's assignment; `assignments` is for the leader. Since version 5 brokers compare protocols."""

    API_KEY = 14
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 4
    RESPONSE = SyncGroupResponse

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable=3, default=None)
    protocol_type: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire(array(SyncGroupRequestAssignment))
