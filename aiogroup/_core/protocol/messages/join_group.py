"""JoinGroup (11): joins a group's next generation; answered when all members have sent it."""

from __future__ import annotations

from dataclasses import replace

from aiogroup._core.protocol.schema import (
    BOOLEAN,
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
class JoinGroupResponseMember(Structure):
    """One member as the leader sees it."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)
    metadata: bytes = wire(BYTES)


@structure
class JoinGroupResponse(Response):
    """The generation. Only the leader sees the members; with `skip_assignment` it must not assign."""

    throttle_time_ms: int = wire(INT32, since=2, ignorable=True)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, since=7, nullable=7, default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable=7)
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOLEAN, since=9)
    member_id: str = wire(STRING)
    members: tuple[JoinGroupResponseMember, ...] = wire(array(JoinGroupResponseMember))

    def lower(self, version: int) -> Structure:
        # Answers with an error name no assignor; versions before 7 have no null, but an empty name.
        return replace(self, protocol_name="") if version < 7 and self.protocol_name is None else self


@structure
class JoinGroupRequestProtocol(Structure):
    """An assignor the member offers, with its subscription."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@structure
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Asks to be a member; a static one names its `group_instance_id` (KIP-345), a new one no `member_id`.

    The last two fields belong to the draft of KIP-345 and are sent only where they are set; other brokers ignore them.
    """

    API_KEY = 11
    MIN_VERSION = 2
    MAX_VERSION = 9
    FLEXIBLE_SINCE = 6
    RESPONSE = JoinGroupResponse

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1, ignorable=True)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, nullable=5, default=None)
    protocol_type: str = wire(STRING)
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(array(JoinGroupRequestProtocol))
    reason: str | None = wire(STRING, since=8, nullable=8, default=None, ignorable=True)
    registration_timeout_ms: int | None = wire(INT32, since=6, tag=34501, default=None, ignorable=True)
    expansion_timeout_ms: int | None = wire(INT32, since=6, tag=34502, default=None, ignorable=True)
