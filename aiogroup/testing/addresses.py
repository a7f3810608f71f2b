"""The addresses of brokers that answers tell, so that a proxy can put its own in their place."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NamedTuple

from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup._core.protocol.schema import Request
from aiogroup.embedded.messages.cluster import DescribeClusterRequest
from aiogroup.embedded.messages.produce import ProduceRequest

__all__ = ["Teller", "teller_of"]


class Teller(NamedTuple):
    """A request whose answer tells addresses."""

    request_type: type[Request[Any]]
    field: str
    id_field: str = "node_id"
    since: int = 0

    def nodes(self, response: Any) -> tuple[Any, ...]:  # noqa: ANN401 (of this request)
        """The brokers that an answer tells; each has an id, a host and a port."""
        if self.request_type is DescribeClusterRequest and response.endpoint_type != BROKERS:
            return ()
        return tuple(each for each in getattr(response, self.field) if self.id_of(each) >= 0)

    def id_of(self, node: Any) -> int:  # noqa: ANN401 (one of `nodes`)
        node_id: int = getattr(node, self.id_field)
        return node_id

    def moved(self, response: Any, host: str, ports: dict[int, int]) -> Any:  # noqa: ANN401 (of this request)
        """The same answer with other addresses: `ports` by the ids of `nodes`."""
        there = tuple(
            dataclasses.replace(each, host=host, port=ports[self.id_of(each)]) if self.id_of(each) in ports else each
            for each in getattr(response, self.field)
        )
        return dataclasses.replace(response, **{self.field: there})


BROKERS: Final = 1
"""What DescribeCluster was asked for. In front of controllers there is no proxy."""
_TELLERS: Final = {
    each.request_type.API_KEY: each
    for each in (
        Teller(MetadataRequest, "brokers"),
        Teller(FindCoordinatorRequest, "coordinators"),
        Teller(FetchRequest, "node_endpoints", since=16),
        Teller(ProduceRequest, "node_endpoints", since=10),
        Teller(DescribeClusterRequest, "brokers", "broker_id"),
    )
}


def teller_of(api_key: int, version: int) -> Teller | None:
    """What the answer to this request tells; `None`: no address, or nobody knows this version."""
    found = _TELLERS.get(api_key)
    if found is None or not found.since <= version <= found.request_type.MAX_VERSION:
        return None
    return found
