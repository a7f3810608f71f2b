"""The waits between attempts: their lengths, their end, and what is raised then. On the virtual clock."""

from __future__ import annotations

import pytest

from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConnectionLostError, KafkaTimeoutError

CONFIG = ConsumerConfig(retry_backoff_ms=100, retry_backoff_max_ms=1_000)


async def waits(retries, count=10):
    """How long each wait took, until there was none any more."""
    found = []
    for _ in range(count):
        began_at_ms = now_ms()
        if not await retries.back_off():
            break
        found.append(now_ms() - began_at_ms)
    return found


async def test_each_wait_doubles_up_to_the_longest():
    assert await waits(Retries(CONFIG), 6) == [100, 200, 400, 800, 1_000, 1_000]


async def test_the_last_wait_ends_with_the_time_and_no_attempt_follows_it():
    """It would have a millisecond, and its time-out would hide what failed."""
    until_ms = now_ms() + 450
    assert await waits(Retries(CONFIG, until_ms)) == [100, 200]
    assert now_ms() == until_ms


async def test_the_last_attempt_is_followed_by_no_wait():
    assert await waits(Retries(CONFIG, most_attempts=3)) == [100, 200]
    assert await waits(Retries(CONFIG, most_attempts=1)) == []


async def test_after_a_success_the_waits_start_over():
    retries = Retries(CONFIG)
    assert await waits(retries, 3) == [100, 200, 400]
    retries.on_success()
    assert await waits(retries, 1) == [100]


async def test_a_time_out_tells_of_all_attempts_and_another_error_stands():
    retries, slow, gone = Retries(CONFIG), KafkaTimeoutError("no answer"), ConnectionLostError("closed")
    await retries.back_off()
    assert retries.last_error("the commit", slow) is slow
    await retries.back_off()
    assert retries.last_error("the commit", gone) is gone
    with pytest.raises(KafkaTimeoutError, match="the commit was tried 2 times in 300 ms; the last time no answer"):
        raise retries.last_error("the commit", slow)
