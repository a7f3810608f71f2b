"""Answers whose error message is too long for its field. Kafka notices that when it writes the answer, and answers the
whole request with UNKNOWN_SERVER_ERROR instead. The effects of the request stay.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.schema import Response, Structure
from aiogroup.embedded.messages.configs import DescribeConfigsResult

__all__ = ["instead_of_overlong"]

S = TypeVar("S", bound=Structure)

MOST_BYTES = 0x7FFF
NOT_TOLD = {"topic_id", "num_partitions", "replication_factor", "configs", "group_state", "protocol_type"}
"""The fields that such an answer leaves out, besides the message: it has only the names from the request."""
DESCRIBED = "The server experienced an unexpected error when processing the request."
"""Used only for DescribeConfigs, whose message cannot be null."""


def instead_of_overlong(response: Response) -> Response | None:
    """Kafka's answer instead; `None` if no message is too long."""
    return _failed(response) if _is_overlong(response) else None


def _is_overlong(structure: Structure) -> bool:
    message = getattr(structure, "error_message", None)
    if message is not None and len(message.encode()) > MOST_BYTES:
        return True
    return any(_is_overlong(each) for _, values in _nested(structure) for each in values)


def _nested(structure: Structure) -> list[tuple[str, tuple[Structure, ...]]]:
    found = []
    for each in fields(structure):  # type: ignore[arg-type]
        value = getattr(structure, each.name)
        if isinstance(value, tuple) and value and isinstance(value[0], Structure):
            found.append((each.name, value))
    return found


def _failed(structure: S) -> S:
    changes: dict[str, Any] = {name: tuple(map(_failed, values)) for name, values in _nested(structure)}
    known = {each.name: each for each in fields(structure)}  # type: ignore[arg-type]
    if "error_code" in known:
        changes["error_code"] = ErrorCode.UNKNOWN_SERVER_ERROR
        if "error_message" in known:
            changes["error_message"] = DESCRIBED if isinstance(structure, DescribeConfigsResult) else None
        changes |= {name: known[name].default for name in NOT_TOLD & known.keys()}
    return replace(structure, **changes)  # type: ignore[type-var]
