"""ListGroups (16): the groups that a broker coordinates."""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
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
class ListedGroup(Structure):
    """One group; an empty `protocol_type` says that it only commits."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, ignorable=True)
    group_type: str = wire(STRING, since=5, ignorable=True)


@structure
class ListGroupsResponse(Response):
    """The groups that the asked node coordinates."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)
    groups: tuple[ListedGroup, ...] = wire(array(ListedGroup))


@structure
class ListGroupsRequest(Request[ListGroupsResponse]):
    """Asks for groups, in some states (KIP-518) or of some types (KIP-848) only; an empty filter lets all pass."""

    API_KEY = 16
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3
    RESPONSE = ListGroupsResponse

    states_filter: tuple[str, ...] = wire(array(STRING), since=4)
    types_filter: tuple[str, ...] = wire(array(STRING), since=5)
