"""What the lanes of an assignment hold together, so that nobody has to look at all of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from aiogroup.fetching.lane import Lane

__all__ = ["Tally"]


class Tally:
    """Each lane keeps its part of this up to date: see `Buffer` and `FetchTarget`."""

    __slots__ = (
        "batch_bytes", "decoded_bytes", "enough_count", "fetched_bytes", "handed_out_count", "in_flight_bytes",
        "is_narrow", "moved", "needed", "needs_records", "touched", "turns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.touched: dict[TopicPartition, None] = {}
        """What decides their fetches may have changed since the planner last looked."""
        self.moved: dict[TopicPartition, None] = {}
        """Sought away from what was buffered, and not named in a request to their broker since then."""
        self.turns: OrderedDict[Lane, None] = OrderedDict()
        """Those with something to deliver or to tell: whose turn it is first."""
        self.fetched_bytes = 0
        self.decoded_bytes = 0
        """Batches that are decompressed, and slices: what they need beside the answers that they come from."""
        self.in_flight_bytes = 0
        """What brokers were asked for and have not answered."""
        self.batch_bytes = 0
        """The longest of those that began a fetched piece."""
        self.handed_out_count = 0
        """How many records the application got of these lanes."""
        self.enough_count = 0
        """For a merge: no more is fetched of a lane that has this many buffered records. 0: there is no merge."""
        self.needs_records = False
        """A merge, or requests that name partitions, wait for some that have no record."""
        self.needed: frozenset[TopicPartition] = frozenset()  # those that are named; empty: any
        self.is_narrow = False
        """Records are needed and there is no room for them: only the lanes that need them are fetched."""

    @property
    def held_bytes(self) -> int:
        """Fetched and not delivered, or about to be."""
        return self.fetched_bytes + self.decoded_bytes + self.in_flight_bytes
