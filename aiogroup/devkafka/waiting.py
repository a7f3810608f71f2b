"""Waiting for a condition, with a bound."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiogroup.devkafka.errors import DevKafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_MS = 20


def wait_until(condition: Callable[[], bool], timeout_ms: int, what: Callable[[], str]) -> None:
    """Return as soon as `condition()` is true.

    Raises:
        DevKafkaError: the condition was not true within `timeout_ms`; the message has the result of `what()`.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    while not condition():
        if time.monotonic() >= deadline:
            raise DevKafkaError(f"not within {timeout_ms} ms: {what()}")
        time.sleep(_POLL_MS / 1000)
