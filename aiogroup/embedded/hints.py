"""Guesses from a test's exchanges why nothing happens in it: the most common mistakes raise no error anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.constants import GROUP
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiogroup.embedded.machine.faults.watch import Seen

__all__ = ["hints"]

OFTEN = 3
"""How many connections that ask only for versions are suspicious: a single one may be a probe."""


def hints(seen: Iterable[Seen]) -> list[str]:
    """A line for each hint; empty if there is none."""
    topics: dict[str, bool] = {}
    apis: dict[str, list[str]] = {}
    sought: dict[tuple[str, str], None] = {}
    for each in seen:
        apis.setdefault(each.client_id, []).append(each.api)
        if isinstance(each.answer, MetadataResponse):
            for topic in each.answer.topics:
                if topic.name:
                    topics[topic.name] = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(each.request, FindCoordinatorRequest):
            if each.request.key_type == GROUP:
                sought.update(dict.fromkeys((each.client_id, key) for key in each.request.coordinator_keys))
        else:
            for group in each.groups:
                sought.pop((each.client_id, group), None)
    lines = []
    if missing := sorted(name for name, is_missing in topics.items() if is_missing):
        lines.append(
            f"asked for in vain: the topics {', '.join(missing)}; create_topic makes them, or auto_create_topics=True"
        )
    lines += [
        f"{client or 'a client'} asked {len(asked)} times for the versions and for nothing else: the broker has "
        "neither TLS nor SASL, so set the client's security.protocol to PLAINTEXT"
        for client, asked in apis.items()
        if len(asked) >= OFTEN and set(asked) == {"ApiVersions"}
    ]
    lines += [
        f"{client or 'a client'} looked for the coordinator of the group {group}, and asked it for nothing: the broker "
        "has groups of the classic protocol only, so set the client's group.protocol to classic"
        for client, group in sought
    ]
    return lines
