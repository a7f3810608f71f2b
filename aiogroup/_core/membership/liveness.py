"""The two deadlines of KIP-62 that the member watches; the broker watches the third, the rebalance time-out.

Both clocks get what happened and when, and answer with instants; neither reads the time.
"""

from __future__ import annotations

from aiogroup._core.values import dataclass

__all__ = ["HeartbeatClock", "PollClock", "PollDeadlines"]


class HeartbeatClock:
    """When the next heartbeat is due, and when the session ends if no answer comes (Kafka's Heartbeat.java).

    The session deadline also runs while an answer is outstanding: a coordinator that accepts requests and never answers
    is lost, just as one that refuses the connection.
    """

    def __init__(self, interval_ms: int, session_timeout_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self.due_at_ms = now_ms
        self.session_ends_at_ms = now_ms + session_timeout_ms
        self.is_answered = True
        """Every heartbeat of the session was answered. If the session ends nevertheless, a blocked loop sent none."""

    def on_joined(self, now_ms: int) -> None:
        """A generation began: the coordinator has just heard from this member."""
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

    def start_session_over(self, now_ms: int) -> None:
        """From now on the coordinator has a whole session to answer in, and the next heartbeat is due at once (Java's
        resetSessionTimeout).
        """
        self.session_ends_at_ms = now_ms + self._session_timeout_ms
        self.due_at_ms = now_ms

    def is_session_over(self, now_ms: int) -> bool:
        return now_ms >= self.session_ends_at_ms


@dataclass(frozen=True, slots=True)
class PollDeadlines:
    """When the member warns and when it leaves, if the application asks for no records from `since_ms` on."""

    since_ms: int
    interval_ms: int

    @property
    def warns_at_ms(self) -> int:
        """The instant of the warning, at 80 % of the interval."""
        return self.since_ms + self.interval_ms * 4 // 5

    @property
    def expires_at_ms(self) -> int:
        return self.since_ms + self.interval_ms


class PollClock:
    """When the application counts as stalled: it holds partitions and has not asked for records for too long.

    Waiting for records is progress, so the clock stands still during a request, however the request ends. It also
    stands still while nothing is assigned. Each rebalance callback may take one whole interval. For a callback the
    clock also runs while records are waited for: otherwise nobody would notice a callback that never returns.
    """

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self.running_since_ms: int | None = None
        """`None` while the clock stands still. Replaced as a whole, as the heartbeat thread reads it without a lock."""
        self._interval_ms = interval_ms
        self._since_ms = now_ms
        self._requests_count = 0
        self.holds_partitions = False
        self._in_callback = False

    @property
    def is_asked(self) -> bool:
        """A request for records is under way."""
        return self._requests_count > 0

    def on_request(self, now_ms: int) -> None:
        self._requests_count += 1
        if not self._in_callback:
            self._since_ms, self.running_since_ms = now_ms, None

    def on_answer(self, now_ms: int) -> None:
        """The request ended: with records, without any, with an error, or it was cancelled."""
        assert self._requests_count > 0
        self._requests_count -= 1
        if not self._in_callback:
            self._since_ms = now_ms
        self._show()

    def on_callback(self, now_ms: int, *, begins: bool) -> None:
        self._in_callback = begins
        self._since_ms = now_ms
        self._show()

    def on_assignment(self, holds_partitions: bool, now_ms: int) -> None:
        if holds_partitions and not self.holds_partitions:
            self._since_ms = max(self._since_ms, now_ms)
        self.holds_partitions = holds_partitions
        self._show()

    def _show(self) -> None:
        is_running = self.holds_partitions and (self._in_callback or not self._requests_count)
        self.running_since_ms = self._since_ms if is_running else None

    @property
    def deadlines(self) -> PollDeadlines | None:
        """`None` while the clock stands still."""
        return self.deadlines_of(self.running_since_ms)

    def deadlines_of(self, since_ms: int | None) -> PollDeadlines | None:
        """Those of a stall that began then."""
        return None if since_ms is None else PollDeadlines(since_ms, self._interval_ms)
