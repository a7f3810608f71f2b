"""The last exchanges, without their payloads, and the number of exchanges of each API."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup._core.protocol.messages.fetch import FetchResponse
from aiogroup._core.protocol.messages.offset_fetch import OffsetFetchRequest
from aiogroup._core.protocol.schema import Request, Response
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.rules import Api, api_name
from aiogroup.embedded.machine.observers import Observer
from aiogroup.embedded.messages.produce import ProduceRequest

__all__ = ["Seen", "Watch"]

BOUND = 10_000
"""The number of exchanges that are kept."""


@dataclass(slots=True)
class Seen:
    """One request and its answer, in which records are replaced by `None` or `b""`."""

    number: int
    at_ms: int
    node_id: int
    client_id: str
    api: str
    version: int
    request: Request[Any]
    answer: Response | None = field(default=None)
    """The handler's answer; `None`: there is none, or none yet. A rule may have sent another one."""
    answered_at_ms: int | None = field(default=None)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the request names."""
        request: Any = self.request
        if isinstance(request, OffsetFetchRequest):
            return tuple(each.group_id for each in request.groups)
        if isinstance(request, DescribeGroupsRequest):
            return request.groups
        return (request.group_id,) if hasattr(request, "group_id") else ()

    def __str__(self) -> str:
        when = "not answered" if self.answered_at_ms is None else f"answered at {self.answered_at_ms} ms: {self.answer}"
        return f"{self.at_ms} ms, {self.client_id} to node {self.node_id}: {self.request}; {when}"


class Watch(Observer):
    """The last `most` exchanges of a cluster, in the order of the requests."""

    def __init__(self, most: int = BOUND) -> None:
        self._seen: deque[Seen] = deque(maxlen=most)
        self._counts: Counter[tuple[str, int]] = Counter()

    def before_request(self, exchange: Exchange, now_ms: int) -> None:
        self._counts[exchange.api, exchange.node_id] += 1
        self._seen.append(
            Seen(
                exchange.number,
                now_ms,
                exchange.node_id,
                exchange.client_id,
                exchange.api,
                exchange.version,
                _light_request(exchange.request),
            )
        )

    def on_answers(self, _exchange: Exchange | None, answered: Sequence[Exchange], _now_ms: int) -> None:
        seen = self._seen
        for each in answered:
            # Numbers rise by one from exchange to exchange.
            place = each.number - seen[0].number if seen else -1
            if 0 <= place < len(seen):
                found = seen[place]
                found.answer, found.answered_at_ms = _light_answer(each.response), each.answered_at_ms

    def count(self, api: Api | None = None, node_id: int | None = None) -> int:
        """How many requests have come, of one API or of all, for one node or for all, including those that are no
        longer kept.
        """
        name = None if api is None else api_name(api)
        return sum(n for (k, i), n in self._counts.items() if name in (None, k) and node_id in (None, i))

    def requests(self, api: Api | None = None, *, group: str | None = None, client_id: str | None = None) -> list[Seen]:
        """The exchanges that are kept. Filters: one API, a group that is named, one client."""
        name = None if api is None else api_name(api)
        return [
            each
            for each in self._seen
            if name in (None, each.api)
            and (group is None or group in each.groups)
            and client_id in (None, each.client_id)
        ]

    def last(self, count: int) -> list[Seen]:
        """The last `count` exchanges."""
        return list(self._seen)[-count:]


def _light_request(request: Request[Any]) -> Request[Any]:
    if not isinstance(request, ProduceRequest):
        return request
    return replace(
        request,
        topic_data=tuple(
            replace(topic, partition_data=tuple(replace(each, records=None) for each in topic.partition_data))
            for topic in request.topic_data
        ),
    )


def _light_answer(response: Response | None) -> Response | None:
    if not isinstance(response, FetchResponse):
        return response
    return replace(
        response,
        responses=tuple(
            replace(topic, partitions=tuple(replace(each, records=b"") for each in topic.partitions))
            for topic in response.responses
        ),
    )
