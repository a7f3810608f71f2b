"""What a broker shows of itself: values that do not change any more."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoredRecord"]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record of a log."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
