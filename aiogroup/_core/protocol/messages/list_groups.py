"""ListGroups (16).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import INT16, INT32, STRING, Request, Response, Structure, array, structure, wire


@structure
class ListedGroup(Structure):
    """Each group in the response."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4, ignorable=True)
    group_type: str = wire(STRING, since=5, ignorable=True)


@structure
class ListGroupsResponse(Response):
    """The answer to `ListGroupsRequest`."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)
    groups: tuple[ListedGroup, ...] = wire(array(ListedGroup))


@structure
class ListGroupsRequest(Request[ListGroupsResponse]):
    """Asks for the groups that a broker coordinates, in some states (KIP-518) or of some types (KIP-848) only; an empty
    filter lets all pass. A group with an empty `protocol_type` only commits.
    """

    API_KEY = 16
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3
    RESPONSE = ListGroupsResponse

    states_filter: tuple[str, ...] = wire(array(STRING), since=4)
    types_filter: tuple[str, ...] = wire(array(STRING), since=5)
