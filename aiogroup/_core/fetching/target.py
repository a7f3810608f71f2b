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
    """Only its methods change it. Each says what happened, and has the planner plan the lane again: a change that the
    planner missed would stop a partition for good.
    """

    __slots__ = (
        "_tally", "_tp", "backoff_until_ms", "batch_bytes", "changes_count", "error", "failing_since_ms",
        "failures_count", "is_halted", "most_bytes", "offset", "preferred_replica", "preferred_until_ms",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, tally: Tally) -> None:
        self._tp = tp
        self._tally = tally
        self.offset = 0
        """Where the next fetch begins."""
        self.changes_count = 0
        """Rises with every reset, loss, and seek that drops the buffer. An answer under a lower count is dropped."""
        self.batch_bytes = 0
        """The declared length of the next batch, if a fetch was too small for it; otherwise 0."""
        self.most_bytes = 0
        """How many bytes may wait in the buffer; 0 means the usual number."""
        self.is_halted = False
        """Nothing more is fetched: the last buffered piece is damaged, or the range is fetched to its end, or a
        job's."""
        self.backoff_until_ms = self.failures_count = 0
        self.failing_since_ms: int | None = None
        """When the first of the fetches was refused that all were refused since."""
        self.error = ""
        """The error of the last fetch, or of the look-up of the position before it; "" if it had none."""
        self.preferred_replica = UNKNOWN
        self.preferred_until_ms = 0
        self.changed()

    def changed(self) -> None:
        """Have the planner plan this lane again."""
        self._tally.touched[self._tp] = None

    def count_in(self, tally: Tally) -> None:
        """From now on this tally's planner is the one to look at the lane."""
        self._tally = tally

    # Where the next fetch begins.

    def begin_at(self, offset: int) -> None:
        """The position was set."""
        self.offset = offset
        self.batch_bytes = 0
        self.is_halted = False
        self.retry_now()

    def dropped(self, offset: int | None) -> None:
        """The buffer was dropped, with a damaged piece in it if there was one. What was read is fetched again from
        `offset`; `None` if the position is not known.
        """
        self.is_halted = False
        if offset is not None:
            self.offset = offset
        self.outdate()

    def rise_to(self, offset: int) -> None:
        """The log holds nothing before `offset` any more."""
        self.offset = max(self.offset, offset)
        self.outdate()

    def outdate(self) -> None:
        """Drop the answer that is under way."""
        self.changes_count += 1
        self.changed()

    def halt(self) -> None:
        """Fetch nothing more for now."""
        self.is_halted = True
        self.changed()

    def go_on(self) -> None:
        """Nothing holds up the next fetch any more."""
        self.is_halted = False
        self.changed()

    def bound(self, most_bytes: int) -> None:
        """Let this many bytes wait in the buffer; 0 means the usual number."""
        self.most_bytes = most_bytes
        self.changed()

    # Answers.

    def fetched(self, end: int | None) -> None:
        """The records up to `end` were fetched; `None` if they are damaged, so that nothing can follow them."""
        self.is_halted = end is None
        if end is not None:
            self.offset = end
        if self.failures_count or self.error or self.batch_bytes:
            self.heal()
        self._tally.touched[self._tp] = None

    def heal(self) -> None:
        """An answer came without an error, and with all that was asked for."""
        if self.failures_count or self.error or self.batch_bytes:
            self.failures_count = self.batch_bytes = 0
            self.failing_since_ms, self.error = None, ""
            self.changed()

    def was_not_refused(self) -> None:
        """An answer came that has no news of it, which is no error either."""
        if self.failures_count:
            self.failures_count = 0
            self.failing_since_ms, self.error = None, ""
            self.changed()

    def was_cut_off(self, batch_bytes: int) -> None:
        """Only a part of the next batch came, which has this many bytes: ask for all of it."""
        self.batch_bytes = batch_bytes
        self.changed()

    def prefer(self, node_id: int, now_ms: int) -> None:
        """The leader names this replica to read from."""
        self.preferred_replica, self.preferred_until_ms = node_id, now_ms + PREFERRED_REPLICA_MS
        self.changed()

    def prefer_leader(self) -> None:
        self.preferred_replica = UNKNOWN
        self.changed()

    # Failures.

    def failed(self, why: str) -> None:
        """A fetch, or the look-up of the position before it, failed."""
        self.error = why
        self.changed()

    def back_off(self, now_ms: int, config: ConsumerConfig) -> None:
        """Do not fetch the lane for a while, longer each time until a fetch succeeds."""
        self.failures_count += 1
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        self.backoff_until_ms = now_ms + config.backoff_ms(self.failures_count)
        self.changed()

    def retry_now(self) -> None:
        """Forget earlier failures, and fetch at once."""
        self.failures_count = self.backoff_until_ms = 0
        self.failing_since_ms = None
        self.changed()

    def follow_leader(self) -> None:
        """Another leader is known: ask it at once."""
        self.preferred_replica, self.backoff_until_ms = UNKNOWN, 0
        self.changed()

    def start_over(self) -> None:
        """Nothing that is known of the old log holds for the new one."""
        self.failing_since_ms, self.error = None, ""
        self.prefer_leader()
