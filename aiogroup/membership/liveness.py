"""KIP-62's deadlines that the member watches itself. The third, the rebalance time-out, is the broker's to keep.

Both clocks are told what happened and when, and answer with instants; neither knows what time it is.
"""

from __future__ import annotations

from aiogroup.values import dataclass

__all__ = ["HeartbeatClock", "PollClock", "PollDeadlines"]


class HeartbeatClock:
    """When the next heartbeat is due, and when the session ends without an answer (Kafka's Heartbeat.java).

    The session deadline runs while an answer is outstanding: a coordinator that accepts requests and never answers
    is as lost as one that refuses the connection.
    """

    def __init__(self, interval_ms: int, session_timeout_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self.due_at_ms = now_ms
        self.session_ends_at_ms = now_ms + session_timeout_ms
        self.is_answered = True
        """Every heartbeat since the session began was: if it is over, we were silent (a blocked loop), not they."""

    def on_joined(self, now_ms: int) -> None:
        """A generation began: the coordinator has just heard from us."""
        self.due_at_ms = now_ms + self._interval_ms
        self.session_ends_at_ms = now_ms + self._session_timeout_ms
        self.is_answered = True

    def on_sent(self, now_ms: int) -> None:
        self.due_at_ms = now_ms + self._interval_ms
        self.is_answered = False

    def on_acknowledged(self, now_ms: int) -> None:
        """The coordinator answered and still counts us as a member (REBALANCE_IN_PROGRESS too)."""
        self.is_answered = True
        self.session_ends_at_ms = now_ms + self._session_timeout_ms

    def on_failed(self, now_ms: int, backoff_ms: int) -> None:
        self.due_at_ms = min(self.due_at_ms, now_ms + backoff_ms)

    def on_coordinator_found(self, now_ms: int) -> None:
        """A coordinator that was just found is owed a whole session (Java's resetSessionTimeout)."""
        self.session_ends_at_ms = now_ms + self._session_timeout_ms
        self.due_at_ms = now_ms

    def is_session_over(self, now_ms: int) -> bool:
        return now_ms >= self.session_ends_at_ms


@dataclass(frozen=True, slots=True)
class PollDeadlines:
    """What follows when the application asks for no records from `since_ms` on."""

    since_ms: int
    interval_ms: int

    @property
    def warns_at_ms(self) -> int:
        """At 80 % of the interval: the moment to tell before it is too late."""
        return self.since_ms + self.interval_ms * 4 // 5

    @property
    def expires_at_ms(self) -> int:
        return self.since_ms + self.interval_ms


class PollClock:
    """When the application counts as stalled: it holds partitions and has not asked for records for too long.

    Waiting for records is progress, so the clock stands still during a request, however it ends. It stands still too
    while nothing is assigned: there is nothing to make progress with. A rebalance callback has the interval for
    itself, also while records are waited for: nobody would notice one that never returns.
    """

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self.running_since_ms: int | None = None
        """One value, replaced as a whole: the heartbeat thread reads it without a lock. `None`: it stands still."""
        self._interval_ms = interval_ms
        self._since_ms = now_ms
        self._requests_count = 0
        self._holds_partitions = False
        self._in_callback = False

    @property
    def is_asked(self) -> bool:
        """A request for records is under way."""
        return self._requests_count > 0

    def on_request(self, now_ms: int) -> None:
        self._requests_count += 1
        self.on_progress(now_ms)

    def on_answer(self, now_ms: int) -> None:
        """The request ended: with records, without, by an error or cancelled."""
        assert self._requests_count > 0
        self._requests_count -= 1
        self.on_progress(now_ms)

    def on_progress(self, now_ms: int) -> None:
        """Records were asked for and handed out without waiting."""
        if not self._in_callback:
            self._since_ms = now_ms
        self._show()

    def on_callback(self, now_ms: int, *, begins: bool) -> None:
        self._in_callback = begins
        self._since_ms = now_ms
        self._show()

    def on_assignment(self, holds_partitions: bool, now_ms: int) -> None:
        if holds_partitions and not self._holds_partitions:
            self._since_ms = max(self._since_ms, now_ms)
        self._holds_partitions = holds_partitions
        self._show()

    def _show(self) -> None:
        is_running = self._holds_partitions and (self._in_callback or not self._requests_count)
        self.running_since_ms = self._since_ms if is_running else None

    @property
    def deadlines(self) -> PollDeadlines | None:
        """`None` while it stands still."""
        since_ms = self.running_since_ms
        return None if since_ms is None else PollDeadlines(since_ms, self._interval_ms)
