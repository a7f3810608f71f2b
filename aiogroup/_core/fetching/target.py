"""The planner's input for one lane: whether it is fetched, from where, and how much."""

from __future__ import annotations

from aiogroup._core.fetching.tally import Tally
from aiogroup.config import ConsumerConfig
from aiogroup.structs import TopicPartition

__all__ = ["FORBIDDEN", "PREFERRED_REPLICA_MS", "UNKNOWN", "FetchTarget"]

UNKNOWN = -1
FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
"""The `error` of a partition that may not be read."""
PREFERRED_REPLICA_MS = 300_000
"""How long a preferred replica is used before the leader is asked again (metadata.max.age in Java)."""


class FetchTarget:
    """Setting any attribute touches the lane: a change that the planner missed would stop a partition for good."""

    __slots__ = (
        "_tally", "_tp", "backoff_until_ms", "batch_bytes", "changes_count", "error", "failures_count", "is_halted",
        "most_bytes", "offset", "preferred_replica", "preferred_until_ms",
    )  # fmt: skip

    _tally: Tally
    _tp: TopicPartition
    offset: int
    """Where the next fetch begins."""
    changes_count: int
    """Rises with every reset, loss, and seek that drops the buffer. An answer under a lower count is dropped."""
    batch_bytes: int
    """The declared length of the next batch, if a fetch was too small for it; otherwise 0."""
    most_bytes: int
    """How many bytes may wait in the buffer; 0 means the usual number."""
    is_halted: bool
    """Nothing more is fetched: the last buffered piece is damaged, or the range is fetched to its end, or a job's."""
    backoff_until_ms: int
    failures_count: int
    error: str
    """The error of the last fetch, or of the look-up of the position before it; "" if it had none."""
    preferred_replica: int
    preferred_until_ms: int

    def __init__(self, tp: TopicPartition, tally: Tally) -> None:
        object.__setattr__(self, "_tp", tp)
        self.count_in(tally)
        self.offset = self.changes_count = self.batch_bytes = self.most_bytes = 0
        self.is_halted = False
        self.backoff_until_ms = self.failures_count = 0
        self.error = ""
        self.preferred_replica = UNKNOWN
        self.preferred_until_ms = 0

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        self.changed()

    def changed(self) -> None:
        """Have the planner plan this lane again."""
        self._tally.touched[self._tp] = None

    def count_in(self, tally: Tally) -> None:
        """From now on this tally's planner is the one to look at the lane."""
        object.__setattr__(self, "_tally", tally)

    def heal(self) -> None:
        """The records that were asked for have arrived."""
        if self.failures_count:  # each assignment makes the planner look
            self.failures_count = 0
        if self.error:
            self.error = ""
        if self.batch_bytes:
            self.batch_bytes = 0

    def retry_now(self) -> None:
        """Forget earlier failures, and fetch at once."""
        self.failures_count = self.backoff_until_ms = 0

    def back_off(self, now_ms: int, config: ConsumerConfig) -> None:
        """Do not fetch the lane for a while, longer each time until a fetch succeeds."""
        self.failures_count += 1
        self.backoff_until_ms = now_ms + config.backoff_ms(self.failures_count)
