"""The only place where threads are born: those that compute, those for a call that may hang, and one that runs an event
loop of its own.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Threads", "call_in_thread", "start_thread"]

T = TypeVar("T")
COMPUTING: Final = 2
"""How many threads compute at once: the assignor must not wait for a decompression."""


class Threads:
    """Threads that compute, made when they are first needed.

    Those of the loop are the application's, which may keep all of them busy for as long as it likes.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def compute(self, function: Callable[..., T], *args: object) -> T:
        """Call `function` in a thread, so that the loop goes on meanwhile."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (few consumers compute)

            self._pool = ThreadPoolExecutor(COMPUTING, "aiogroup")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        """Compute nothing more. What is under way ends by itself."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def call_in_thread(name: str, function: Callable[..., T], *args: object) -> Future[T]:
    """Call `function` in a thread of its own. It may hang: no other call and no end of the process waits for it.

    The future cannot be cancelled, so several may wait for it (`asyncio.wrap_future`).
    """
    from concurrent.futures import Future  # noqa: PLC0415 (as above)

    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            outcome.set_exception(error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:  # the system can start no more threads
        outcome.set_exception(OSError(errno.EAGAIN, str(error)))
    return outcome


def start_thread(
    name: str,
    loop: asyncio.AbstractEventLoop,
    work: Callable[[], Coroutine[Any, Any, None]],
    on_ended: Callable[[BaseException | None], None],
) -> threading.Thread:
    """Run `work` in `loop`, in a thread of its own. At the end the loop is closed and `on_ended(error)` is called in
    that thread.

    The loop's worker threads are not waited for: one may hang in a DNS look-up.
    """

    def run() -> None:
        failure: BaseException | None = None
        try:
            loop.run_until_complete(work())
        except BaseException as error:  # noqa: BLE001 (handed to whoever looks after the thread)
            failure = error
        finally:
            loop.close()
            on_ended(failure)

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system can start no more threads
        loop.close()
        raise
    return thread
