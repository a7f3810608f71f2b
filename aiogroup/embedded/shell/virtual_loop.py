"""An event loop whose time jumps to the next timer when nothing is ready: minutes of a group pass in milliseconds.

Only the embedded broker can be reached from it: the clock would jump past anything else without waiting.
"""

from __future__ import annotations

import asyncio
import errno
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from contextvars import Context

__all__ = ["Clock", "Network", "StuckError", "VirtualLoop", "VirtualTimeError"]

START_S = 1_000.0
TURNS_AT_ONE_INSTANT = 100_000
INSTANT_S = 1e-6
"""Turns within this time count as one instant. Whole groups in the simulation have a few hundred of them."""
UNSEEN_THREADS_S = 1.0
"""How long a loop with nothing to do waits for threads that it did not start, such as anyio's."""
OTHER_LOOP = (
    "another event loop runs here, in real time, than that of the embedded broker: in pytest, give async fixtures the "
    "scope of a function, since anyio keeps one event loop as long as one of a larger scope lives"
)
ROUNDING_MS = 1e-3
"""Loop times are float seconds. Within this tolerance a time counts as the next full millisecond."""


class StuckError(AssertionError):
    """Every task waits and no timer will wake one, or time does not go on."""


class VirtualTimeError(OSError):
    """Something needs real I/O or the real clock, which does not work in virtual time."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.ENETUNREACH, what)  # clients show the text of a network error only if it has an errno

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[type[VirtualTimeError], tuple[str]]:  # OSError's own would pass the errno, too
        return type(self), (str(self),)


class Network(Protocol):
    """Opens the loop's connections."""

    def has(self, host: str, port: int, /) -> bool:
        """Whether this is an address of one of its nodes."""

    def addresses(self) -> str:
        """All its addresses, separated by commas."""

    def refused(self, what: str, /) -> None:
        """A connection to another address was refused."""

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, /
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class Task(asyncio.Task[Any]):
    """A task with a number as its hash: sets of tasks are iterated in order of creation, not of memory addresses."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: VirtualLoop, **options: Any) -> None:  # noqa: ANN401
        self.number = next(loop.numbers)
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self) -> int:
        return self.number


class Future(asyncio.Future[Any]):
    """A future with a number as its hash; see `Task`."""

    def __init__(self, *, loop: VirtualLoop) -> None:
        self.number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while code runs, and jumps when nothing is ready. It waits for jobs of its executor.

    Args:
        begin_ms: the time of day at which it begins, in ms since 1970; now, if it is `None`. With the same value,
            records that the broker stamps have the same timestamps in each run.
    """

    runs_count = 0
    """How often a loop of this class has begun to run. The pytest plug-in sees by it whether a test used one."""

    def __init__(self, begin_ms: int | None = None) -> None:
        self.begin_ms = time.time_ns() // 1_000_000 if begin_ms is None else begin_ms
        self.numbers = count()
        self.networks: list[Network] = []
        self.network_numbers = count()
        self.at_close: list[Callable[[], None]] = []
        self.jobs_count = 0
        """The number of the executor's jobs that run or wait for a thread."""
        self._now_s = START_S
        self._executor: Executor | None = None
        super().__init__(_Clock(self))
        self.set_task_factory(_make_task)

    def run_forever(self) -> None:
        VirtualLoop.runs_count += 1
        super().run_forever()

    def close(self) -> None:
        super().close()
        while self.at_close:
            self.at_close.pop()()

    # Time.

    def time(self) -> float:
        return self._now_s

    def jump(self, duration_s: float) -> None:
        """Let time pass. Only the selector calls it."""
        self._now_s += duration_s

    def now_ms(self) -> int:
        """The time of day, in ms since 1970."""
        return self.begin_ms + int((self._now_s - START_S) * 1000 + ROUNDING_MS)

    def wall_s(self) -> float:
        """The time of day as `time.time` has it."""
        return self.begin_ms / 1000 + (self._now_s - START_S)

    def at_ms(self, at_ms: int) -> float:
        """The loop time at which `now_ms` reaches `at_ms`."""
        return START_S + (at_ms - self.begin_ms) / 1000

    def create_future(self) -> asyncio.Future[Any]:
        return Future(loop=self)

    # Connections.

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        **_options: Any,  # noqa: ANN401 (of sockets, which there are none of)
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the embedded broker.

        Raises:
            VirtualTimeError: the address is not one of its nodes', or TLS was asked for.
            ConnectionRefusedError: the node is down.
        """
        for network in self.networks:
            if host is not None and port is not None and network.has(host, port):
                if ssl:
                    raise VirtualTimeError(f"the embedded broker at {host}:{port} has no TLS: use PLAINTEXT")
                return await network.connect(protocol_factory, host, port)
        known = ", ".join(each.addresses() for each in self.networks)
        what = (
            f"{host}:{port} cannot be reached in virtual time: only the embedded broker can ({known or 'none runs'}). "
            "Nobody waits for real sockets, the clock would jump past their answers: replace what is behind this one "
            "by something in the same loop, or use the broker in real time"
        )
        for network in self.networks:
            network.refused(what)
        raise VirtualTimeError(what)

    async def getaddrinfo(  # type: ignore[override]
        self,
        host: str,
        port: int,
        **_options: Any,  # noqa: ANN401 (of look-ups, which there are none of)
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Every name resolves to itself: only `create_connection` knows the embedded broker's names."""
        return [(socket.AF_UNSPEC, socket.SOCK_STREAM, 0, "", (host, port))]

    # Threads.

    def set_default_executor(self, executor: ThreadPoolExecutor) -> None:  # type: ignore[override]
        super().set_default_executor(executor)
        self._executor = executor

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ANN401
        if executor is None:
            if self._executor is None:
                self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
            executor = self._executor
            assert executor is not None
        job = executor.submit(func, *args)
        self.jobs_count += 1
        outcome = asyncio.wrap_future(job, loop=self)
        job.add_done_callback(lambda _: self._tell_end_of_job())  # runs after the callback that delivers the result
        return outcome

    def _tell_end_of_job(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.call_soon_threadsafe(self._on_end_of_job)

    def _on_end_of_job(self) -> None:
        self.jobs_count -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads by the real clock: a virtual time-out would pass at once."""
        del timeout
        self.jobs_count += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self.jobs_count -= 1


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,  # noqa: ANN401
    context: Context | None = None,
    **options: Any,  # noqa: ANN401
) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    return Task(coroutine, loop=loop, context=context, **options)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(_loop: VirtualLoop, *_args: object, **_options: object) -> NoReturn:
        raise VirtualTimeError(
            f"loop.{name}() is not there in virtual time: nobody waits for real sockets, pipes and processes, the "
            "clock would jump past them. Use a fake in the same loop, or the broker in real time"
        )

    return refuse


for _name in (
    "add_reader",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_sendall",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(VirtualLoop, _name, _refusing(_name))


class _Clock(selectors.DefaultSelector):
    """Waits only for jobs of threads. Otherwise it advances the time to the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._turns_count = 0  # in this instant
        self._instant_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop
        is_ready = timeout is not None and timeout <= 0
        if loop.jobs_count:
            return super().select(0 if is_ready else None)
        if timeout is None:
            return self._wait_for_threads()
        if not is_ready:
            loop.jump(timeout)
        self._turns_count += 1
        if loop.time() > self._instant_s + INSTANT_S:
            self._instant_s, self._turns_count = loop.time(), 0
        if self._turns_count > TURNS_AT_ONE_INSTANT:
            self._turns_count = 0
            raise StuckError(
                f"time has not gone on for {TURNS_AT_ONE_INSTANT:,} turns of the loop: something is always ready. "
                f"The tasks:\n{_named_tasks(loop)}"
            )
        return []

    def _wait_for_threads(self) -> list[tuple[selectors.SelectorKey, int]]:
        has_threads = threading.active_count() > 1
        if ready := super().select(UNSEEN_THREADS_S if has_threads else 0):
            return ready
        raise StuckError(f"every task waits and no timer will wake one:\n{_named_tasks(self._loop)}")


def _named_tasks(loop: VirtualLoop) -> str:
    """Each task, and where it waits."""
    lines = []
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        coroutine: Any = task.get_coro()
        chain = []
        while hasattr(coroutine, "cr_await"):
            chain.append(coroutine.__qualname__)
            frame = coroutine.cr_frame
            coroutine = coroutine.cr_await
        place = "" if not chain or frame is None else f" ({frame.f_code.co_filename}:{frame.f_lineno})"
        lines.append(f"  {task.get_name()}: {' > '.join(chain)}{place}")
    return "\n".join(lines) or "  (there are none)"


class Clock:
    """The clock of a broker in virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    @property
    def now_ms(self) -> int:
        """The time of day for the broker, in ms since 1970. It begins near the real one."""
        return self._loop.now_ms()

    async def pass_s(self, duration_s: float) -> None:
        """Let time pass: everything that is due meanwhile happens, in order.

        Raises:
            VirtualTimeError: the duration is not valid, or the caller runs in another event loop.
        """
        if isinstance(duration_s, bool) or not isinstance(duration_s, int | float) or not 0 <= duration_s < math.inf:
            raise VirtualTimeError(f"pass_s({duration_s!r}): a number of seconds, and time never runs back")
        if asyncio.get_running_loop() is not self._loop:
            raise VirtualTimeError(OTHER_LOOP)
        await asyncio.sleep(duration_s)
