"""Every id that a cluster draws, from one source of random bits: the same seed gives the same ids."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Protocol
from uuid import UUID

__all__ = ["Ids", "RandomBits"]

PRODUCER_ID_BITS = 48


class RandomBits(Protocol):
    """`random.Random`, as far as the machine uses it."""

    def getrandbits(self, k: int, /) -> int: ...


class Ids:
    """Ids of members, topics, sessions and clusters."""

    def __init__(self, rng: RandomBits) -> None:
        self._rng = rng
        self._next_producer_id: int | None = None

    def uuid(self) -> UUID:
        """A random UUID (version 4), which is never one of Kafka's reserved ones."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def member_id(self, prefix: str) -> str:
        """As Kafka makes them: the client's id or the static name, and a UUID."""
        return f"{prefix}-{self.uuid()}"

    def cluster_id(self) -> str:
        """An id that names the embedded broker, so that clients' logs show it."""
        return "aiogroup-embedded-" + urlsafe_b64encode(self._rng.getrandbits(48).to_bytes(6, "big")).decode()

    def session_id(self) -> int:
        """The id of a fetch session: positive, as 0 means none."""
        return self._rng.getrandbits(31) or 1

    def producer_id(self) -> int:
        """Kafka hands out blocks of ids, in order.

        The first id is random: a newly started broker knows no sequence numbers, so it must not give out the id of a
        producer that has outlived the previous broker.
        """
        if self._next_producer_id is None:
            self._next_producer_id = self._rng.getrandbits(PRODUCER_ID_BITS)
        self._next_producer_id += 1
        return self._next_producer_id
