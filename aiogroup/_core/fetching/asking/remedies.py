"""What an error code of a fetched partition asks for (FetchCollector.handleInitializeErrors)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.errors import lookup

__all__ = ["FetchRemedy", "fetch_remedy_for"]


class FetchRemedy(Enum):
    PROCEED = auto()
    REFRESH = auto()
    """Back off and refresh the metadata: the leader has moved or is about to, or the topic has another id."""
    BACK_OFF = auto()
    """Back off; no stale metadata is suspected."""
    OUT_OF_RANGE = auto()
    """If a follower said it, ask the leader. If the leader said it, the reset policy decides."""
    NOT_AUTHORIZED = auto()


_TABLE: Final[dict[int, FetchRemedy]] = {
    E.NONE: FetchRemedy.PROCEED,
    E.OFFSET_OUT_OF_RANGE: FetchRemedy.OUT_OF_RANGE,
    E.TOPIC_AUTHORIZATION_FAILED: FetchRemedy.NOT_AUTHORIZED,
    E.NOT_LEADER_OR_FOLLOWER: FetchRemedy.REFRESH,
    E.REPLICA_NOT_AVAILABLE: FetchRemedy.REFRESH,
    E.LEADER_NOT_AVAILABLE: FetchRemedy.REFRESH,
    E.KAFKA_STORAGE_ERROR: FetchRemedy.REFRESH,
    E.FENCED_LEADER_EPOCH: FetchRemedy.REFRESH,
    E.OFFSET_NOT_AVAILABLE: FetchRemedy.REFRESH,
    E.UNKNOWN_TOPIC_OR_PARTITION: FetchRemedy.REFRESH,
    E.UNKNOWN_TOPIC_ID: FetchRemedy.REFRESH,
    E.INCONSISTENT_TOPIC_ID: FetchRemedy.REFRESH,
    E.UNKNOWN_LEADER_EPOCH: FetchRemedy.BACK_OFF,
    E.UNKNOWN_SERVER_ERROR: FetchRemedy.BACK_OFF,
    E.CORRUPT_MESSAGE: FetchRemedy.BACK_OFF,  # Java raises; a broker that cannot read its disk may lose leadership
}


def fetch_remedy_for(code: int) -> FetchRemedy:
    """The remedy. For a code without a row: back off, and refresh if Kafka's table calls the metadata stale for it."""
    row = _TABLE.get(code)
    if row is not None:
        return row
    return FetchRemedy.REFRESH if lookup(code).invalid_metadata else FetchRemedy.BACK_OFF
