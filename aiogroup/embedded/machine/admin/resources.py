"""Resources that have settings: topics, nodes, and kinds that Kafka has and the embedded broker has not."""

from __future__ import annotations

from contextlib import suppress
from enum import IntEnum

from aiogroup._core.protocol.errors import ErrorCode

__all__ = ["RefusedResourceError", "ResourceType", "look_at_node"]


class ResourceType(IntEnum):
    """Kafka's numbers (ConfigResource.Type)."""

    TOPIC = 2
    NODE = 4
    LOGGER = 8
    METRICS = 16
    GROUP = 32


class RefusedResourceError(Exception):
    """The refusal of one resource of a request."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def look_at_node(name: str, node_id: int) -> None:
    """Only the node itself tells and changes its settings.

    Raises:
        RefusedResourceError: `name` is no node's id, or that of another node.
    """
    named = None
    with suppress(ValueError):
        named = int(name)
    if named is None:
        raise RefusedResourceError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if named != node_id:
        raise RefusedResourceError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}"
        )
