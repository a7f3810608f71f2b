"""Finds the records in an answer that has not arrived completely; in Python, for when the C is not compiled."""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["AT_START", "LOST", "Place", "next_records"]

Place: TypeAlias = tuple[int, int, int, int]
"""The byte, the kind of field that begins there, and the numbers of topics and partitions left, including the current
ones.
"""
HEAD, TOPIC, PARTITION, TAGS, LOST = range(5)
AT_START: Final[Place] = (0, HEAD, 0, 0)

_TOP_BYTES: Final = 10  # throttle time, error, session
_ID_BYTES: Final = 16
_FIXED_BYTES: Final = 30  # a partition up to its aborted transactions
_ABORTED_BYTES: Final = 16
_PREFERRED_BYTES: Final = 4
_CORRELATION_BYTES: Final = 4


class _ShortError(Exception):
    """The bytes end in the middle of a step."""


class _LostError(Exception):
    """These bytes are not an answer to Fetch, or no records follow."""


class _Walk:
    def __init__(self, data: bytes | bytearray, pos: int) -> None:
        self.data = data
        self.pos = pos

    def skip(self, count: int) -> None:
        if count > len(self.data) - self.pos:
            raise _ShortError
        self.pos += count

    def unsigned(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            self.skip(1)
            byte = self.data[self.pos - 1]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _LostError

    def count(self) -> int:
        """The length of an array, which must not be null."""
        raw = self.unsigned()
        if raw == 0:
            raise _LostError
        return raw - 1

    def skip_tags(self) -> None:
        for _ in range(self.unsigned()):
            self.unsigned()
            self.skip(self.unsigned())

    def step(self, place: Place, *, has_ids: bool) -> tuple[Place, int]:
        """The place after one step, and the length of the records if they begin there, otherwise 0."""
        _, stage, topics, partitions = place
        length = 0
        if stage == HEAD:
            self.skip(_CORRELATION_BYTES)
            self.skip_tags()
            self.skip(_TOP_BYTES)
            stage, topics = TOPIC, self.count()
        elif stage == TOPIC and topics:
            self.skip(_ID_BYTES if has_ids else self.count())
            stage, partitions = PARTITION, self.count()
        elif stage == PARTITION and not partitions:
            self.skip_tags()
            stage, topics = TOPIC, topics - 1
        elif stage == PARTITION:
            self.skip(_FIXED_BYTES)
            for _ in range(self.unsigned() - 1):
                self.skip(_ABORTED_BYTES)
                self.skip_tags()
            self.skip(_PREFERRED_BYTES)
            stage, length = TAGS, max(0, self.unsigned() - 1)
        elif stage == TAGS:
            self.skip_tags()
            stage, partitions = PARTITION, partitions - 1
        else:
            raise _LostError
        return (self.pos, stage, topics, partitions), length


def next_records(data: bytes | bytearray, place: Place, has_ids: bool) -> tuple[Place, int]:
    """Go on from `place` in the part of an answer to Fetch that has arrived, version 12 or above; `has_ids` from 13 on.

    Returns the place where records begin and their length, which is never 0: go on from that place after the records
    are taken out. A length of 0 means that more bytes are needed or, if the place is `LOST`, that nothing more can be
    found.
    """
    length = 0
    while not length:
        walk = _Walk(data, place[0])
        try:
            place, length = walk.step(place, has_ids=has_ids)
        except _ShortError:
            return place, 0
        except _LostError:
            return (place[0], LOST, *place[2:]), 0
    return place, length
