"""The waits between the attempts of a request that failed: Kafka's backoff, within the time that the caller has."""

from __future__ import annotations

from aiogroup._runtime.loop.clock import FOREVER_MS, now_ms, sleep_ms
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, of_all_attempts

__all__ = ["Retries"]


class Retries:
    """Counts failures in a row. It begins with the first attempt, and gives up at `until_ms` or at the last attempt."""

    def __init__(self, config: ConsumerConfig, until_ms: int = FOREVER_MS, *, most_attempts: int | None = None) -> None:
        self._config = config
        self.until_ms = until_ms
        self._most_attempts = most_attempts
        self.began_at_ms = now_ms()
        self._failures_count = 0

    async def back_off(self) -> bool:
        """The attempt failed: wait before the next one. False if there is none, because it was the last one, or because
        the time is over meanwhile.
        """
        self._failures_count += 1
        left_ms = self.until_ms - now_ms()
        if self._failures_count == self._most_attempts or left_ms <= 0:
            return False
        await sleep_ms(min(self._config.backoff_ms(self._failures_count), left_ms))
        return now_ms() < self.until_ms  # else the next attempt ends by its time-out, which would hide what failed

    def on_success(self) -> None:
        """The next failure is the first in a row."""
        self._failures_count = 0

    def last_error(self, what: str, last: AiogroupError) -> AiogroupError:
        """The error to raise when the time is over."""
        return of_all_attempts(last, what, self._failures_count, now_ms() - self.began_at_ms)
