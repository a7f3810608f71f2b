"""Threads that compute belong to whoever made them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiogroup._runtime.loop.threads import Threads


@pytest.fixture
def threads():
    made = Threads()
    yield made
    made.close()


async def test_a_computation_does_not_wait_for_the_threads_of_the_application(threads):
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    blocked = loop.run_in_executor(None, release.wait)
    try:
        async with asyncio.timeout(10):
            assert await threads.compute(sum, [1, 2]) == 3
            names = [each.name for each in threading.enumerate()]
            assert any(name.startswith("aiogroup") for name in names)
    finally:
        release.set()
        await blocked


async def test_threads_that_computed_end_when_they_are_closed(threads):
    thread = await threads.compute(threading.current_thread)
    threads.close()
    thread.join(10)
    assert not thread.is_alive()
