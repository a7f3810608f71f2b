"""Heartbeat (12).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import INT16, INT32, STRING, Request, Response, structure, wire


@structure
class HeartbeatResponse(Response):
    """The answer to `HeartbeatRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)


@structure
class HeartbeatRequest(Request[HeartbeatResponse]):
    """Keeps this member alive; the answer says whether the group is rebalancing."""

    API_KEY = 12
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4
    RESPONSE = HeartbeatResponse

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable=3, default=None)
