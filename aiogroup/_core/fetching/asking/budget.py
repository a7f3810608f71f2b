"""The fetch budget: how many more bytes may be fetched within one bound for everything that is buffered."""

from __future__ import annotations

from typing import Final

from aiogroup._core.fetching.assignment import LaneTable
from aiogroup._core.fetching.lane import Lane
from aiogroup.config import LEAST_FETCH_BYTES

__all__ = ["FetchBudget"]

FORGOTTEN_MS: Final = 10_000
"""After this time without a long answer the next ones are expected to be as short as they were asked for."""
DECODED_DIVISOR: Final = 4
"""The bound divided by this is kept free for what is decoded."""


class FetchBudget:
    """The memory for the lanes of one tally: `bound_bytes` for everything that the tally counts.

    `largest_bytes` is the size that an answer may have however little was asked for: one batch, or the longest answer
    of late.
    """

    def __init__(self, lanes: LaneTable[Lane], bound_bytes: int, max_partition_fetch_bytes: int) -> None:
        self._usual_bytes = min(max_partition_fetch_bytes, bound_bytes // 16)
        self._expect(self._usual_bytes)
        self._was_long_at_ms = 0
        self._lanes = lanes
        self.tally = lanes.tally
        self._bound_bytes = bound_bytes

    def _expect(self, size_bytes: int) -> None:
        """From now on an answer may have this size, however little was asked for."""
        self.largest_bytes = size_bytes
        self._least_bytes = max(LEAST_FETCH_BYTES, size_bytes)

    def look(self) -> None:
        """Decide whether lanes whose records are waited for cannot be fetched within the bound: then only these are
        fetched. The same holds while all that is buffered is held up: the other lanes go on.
        """
        tally = self.tally
        is_narrow = self._left_bytes() + tally.in_flight_bytes < self._least_bytes and (
            tally.needs_records or self._is_held_up()
        )
        if is_narrow is not tally.is_narrow:
            tally.is_narrow = is_narrow
            tally.touch(each.tp for each in self._lanes)

    def note_answer(self, size_bytes: int, asked_bytes: int, now_ms: int) -> None:
        """A broker sends its first batch whole, however long it is (KIP-74): that much is reserved for each request
        from now on. It is forgotten after a while: as long as it is reserved, one broker's request may keep all others
        waiting.
        """
        if size_bytes > max(asked_bytes, self.largest_bytes):
            self._expect(size_bytes)
        if 2 * size_bytes > self.largest_bytes:
            self._was_long_at_ms = now_ms
        elif self.largest_bytes > self._usual_bytes and now_ms - self._was_long_at_ms > FORGOTTEN_MS:
            self._expect(self._usual_bytes)

    def share_bytes(self, waiting_count: int) -> int:
        """The bytes that are free for one of `waiting_count` brokers."""
        free_bytes = self._left_bytes()
        if free_bytes < self._least_bytes:
            free_bytes = self._freed_bytes()
        if waiting_count <= 1:
            return free_bytes
        return max(free_bytes // waiting_count, min(free_bytes, self._least_bytes))

    def _is_held_up(self) -> bool:
        """Whether nothing that is buffered can be handed out for a while. One answer more than the bound is allowed for
        that.
        """
        tally = self.tally
        if tally.fetched_bytes + tally.decoded_bytes > self._bound_bytes + self._least_bytes:
            return False
        is_any_due = False
        for lane in tally.turns:  # mostly the first lane that is due is not held up, which ends this
            if lane.is_due:
                if not lane.is_held_up:
                    return False
                is_any_due = True
        return is_any_due

    def _freed_bytes(self) -> int:
        """The buffers of paused partitions must not starve the others: they are dropped, and fetched again after a
        resume.
        """
        for lane in tuple(self.tally.turns):
            if lane.is_paused and lane.buffer.size_bytes:
                lane.drop_buffer()
        free_bytes = self._left_bytes()
        if self.tally.is_narrow:  # a merge or a request waits for a record, and gets it in spite of the bound
            return max(free_bytes, self._least_bytes)
        return free_bytes if free_bytes >= self.largest_bytes or not self.tally.held_bytes else 0

    def _left_bytes(self) -> int:
        """The bytes of the bound that are left. A part of it is reserved for decoding: otherwise fetched bytes would
        leave no memory to decompress them.
        """
        bound, tally = self._bound_bytes, self.tally
        if not tally.held_bytes:
            return bound
        return bound - tally.fetched_bytes - tally.in_flight_bytes - max(tally.decoded_bytes, bound // DECODED_DIVISOR)
