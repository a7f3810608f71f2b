"""The totals over the lanes of an assignment, kept so that no task has to go through all of them."""

from __future__ import annotations

from collections.abc import Container, Iterable

from aiogroup.structs import TopicPartition

__all__ = ["Tally"]


class Tally:
    """Each lane keeps its part of the totals up to date: see `Buffer` and `FetchTarget`."""

    __slots__ = (
        "batch_bytes", "decoded_bytes", "enough_count", "fetched_bytes", "handed_out_count", "in_flight_bytes",
        "is_narrow", "moved", "needed", "needs_records", "newest_timestamp", "touched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.touched: dict[TopicPartition, None] = {}
        """Partitions whose fetches must be planned again, since something about them may have changed."""
        self.moved: dict[TopicPartition, None] = {}
        """Partitions that a seek moved out of their buffer, and that no request to their broker has named since."""
        self.fetched_bytes = 0
        self.decoded_bytes = 0
        """The bytes of decompressed batches and of slices, in addition to the answers that they come from."""
        self.in_flight_bytes = 0
        """The bytes reserved for requests that are not answered yet."""
        self.batch_bytes = 0
        """The size of the longest batch that was the first of a fetched piece."""
        self.handed_out_count = 0
        """How many records of these lanes the application got."""
        self.newest_timestamp: int | None = None
        """The timestamp of the last record that was handed out, until somebody notes its age."""
        self.enough_count = 0
        """For a merge: no more is fetched of a lane that has this many buffered records. 0: there is no merge."""
        self.needs_records = False
        """Whether a merge, or a request that names partitions, waits for a partition that has no record."""
        self.needed: frozenset[TopicPartition] = frozenset()  # the named partitions; empty if any will do
        self.is_narrow = False
        """Records are needed and do not fit within the bound: only the lanes that need them are fetched."""

    def touch(self, tps: Iterable[TopicPartition]) -> None:
        """Have the planner plan these again."""
        self.touched |= dict.fromkeys(tps)

    def was_moved(self, tp: TopicPartition) -> None:
        """A seek moved the partition out of its buffer."""
        self.moved[tp] = None

    def was_named(self, tps: Container[TopicPartition]) -> None:
        """These partitions need no extra request any more: the session's request names them, or, as the extra one was
        given up, its next one will.
        """
        for tp in [each for each in self.moved if each in tps]:
            del self.moved[tp]

    @property
    def held_bytes(self) -> int:
        """The bytes that are fetched and not delivered, or about to be fetched."""
        return self.fetched_bytes + self.decoded_bytes + self.in_flight_bytes
