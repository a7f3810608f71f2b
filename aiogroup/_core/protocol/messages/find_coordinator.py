"""FindCoordinator (10).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    INT8,
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
class Coordinator(Structure):
    """Each coordinator result in the response."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, ignorable=True)


@structure
class FindCoordinatorResponse(Response):
    """The answer to `FindCoordinatorRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16, until=3)
    error_message: str | None = wire(STRING, since=1, until=3, nullable=1, ignorable=True)
    node_id: int = wire(INT32, until=3)
    host: str = wire(STRING, until=3)
    port: int = wire(INT32, until=3)
    coordinators: tuple[Coordinator, ...] = wire(array(Coordinator), since=4)


@structure
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Asks which brokers coordinate the groups, or the transactional ids, of `coordinator_keys`; up to version 3 there
    must be exactly one, which the answer does not repeat. Each has an error of its own.
    """

    API_KEY = 10
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 3
    RESPONSE = FindCoordinatorResponse

    key: str = wire(STRING, until=3)
    key_type: int = wire(INT8, since=1)
    coordinator_keys: tuple[str, ...] = wire(array(STRING), since=4)
