"""Topics by name or by id (KIP-516): the version decides which of them is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID


def need_ids(message: str, version: int, first_by_id: int, topic_ids: Iterable[UUID]) -> None:
    """Raises `UnsupportedVersionError` where an id is missing: the broker would answer 100 for that topic."""
    if ZERO_UUID in topic_ids:
        raise UnsupportedVersionError(
            f"version {version} of {message} names topics by id, and a topic has none: set topic_id, "
            f"or negotiate(..., at_most={first_by_id - 1})"
        )


def need_names(message: str, version: int, first_by_id: int, names: Iterable[str]) -> None:
    """Raises `UnsupportedVersionError` where a name is missing."""
    if "" in names:
        raise UnsupportedVersionError(
            f"version {version} of {message} names topics by name, by id only since {first_by_id}, "
            "and a topic has none: set the name too"
        )
