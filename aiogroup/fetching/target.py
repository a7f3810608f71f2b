"""What decides whether, where and for how much one lane is fetched: what the planner reads."""

from __future__ import annotations

from aiogroup.config import ConsumerConfig
from aiogroup.fetching.tally import Tally
from aiogroup.structs import TopicPartition

__all__ = ["PREFERRED_REPLICA_MS", "UNKNOWN", "FetchTarget"]

UNKNOWN = -1
PREFERRED_REPLICA_MS = 300_000
"""How long a preferred replica is used before the leader is asked again (metadata.max.age in Java)."""


class FetchTarget:
    """Setting any attribute tells the planner: a change that it does not hear of would stop a partition for good."""

    __slots__ = (
        "_tally", "_tp", "backoff_until_ms", "batch_bytes", "changes_count", "error", "failures_count", "is_broken",
        "most_bytes", "offset", "preferred_replica", "preferred_until_ms",
    )  # fmt: skip

    _tally: Tally
    _tp: TopicPartition
    offset: int
    """Where the next fetch begins."""
    changes_count: int
    """Rises with every seek, reset and loss; an answer to a request under an older count is dropped."""
    batch_bytes: int
    """How long the next batch says that it is, where a fetch was too small for it; 0: no longer than usual."""
    most_bytes: int
    """How much may wait in the buffer; 0: what is usual."""
    is_broken: bool
    """Nothing is fetched behind what is buffered: the last piece is damaged, or the range ends."""
    backoff_until_ms: int
    failures_count: int
    error: str
    """What the last fetch said, where it was not good."""
    preferred_replica: int
    preferred_until_ms: int

    def __init__(self, tp: TopicPartition, tally: Tally) -> None:
        object.__setattr__(self, "_tp", tp)
        self.count_in(tally)
        self.offset = self.changes_count = self.batch_bytes = self.most_bytes = 0
        self.is_broken = False
        self.backoff_until_ms = self.failures_count = 0
        self.error = ""
        self.preferred_replica = UNKNOWN
        self.preferred_until_ms = 0

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        self.changed()

    def changed(self) -> None:
        """The planner must look at this lane."""
        self._tally.touched[self._tp] = None

    def count_in(self, tally: Tally) -> None:
        """From now on this tally's planner is told."""
        object.__setattr__(self, "_tally", tally)

    def heal(self) -> None:
        """What was asked for came."""
        self.failures_count = 0
        self.error = ""
        if self.batch_bytes:
            self.batch_bytes = 0

    def retry_now(self) -> None:
        """What failed until now counts no more."""
        self.failures_count = self.backoff_until_ms = 0

    def back_off(self, now_ms: int, config: ConsumerConfig) -> None:
        """Leave the lane alone for a while, longer each time until something works."""
        self.failures_count += 1
        self.backoff_until_ms = now_ms + config.backoff_ms(self.failures_count)
