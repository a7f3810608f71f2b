"""The process side of both tools: a thread that writes standard output, signals, and arguments as in Java."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from aiogroup._command.properties import load_properties
from aiogroup._runtime.loop.clock import Signal, now_ms, sleep_ms, wall_ms
from aiogroup.errors import ConfigError

__all__ = ["Arguments", "Interrupt", "Output", "keep_trying", "read_config", "run"]

T = TypeVar("T")
LIMIT_BYTES: Final = 256 * 1024
CLOSE_S: Final = 30
"""How long the last lines may wait for a reader; Java waits for ever."""
RETRY_MS: Final = 500
STDOUT: Final = 1

_log = logging.getLogger("aiogroup.verifiable")


class Output:
    """Writes one JSON object per line, in the order of the calls, from a thread of its own.

    A reader that does not empty the pipe blocks that thread, never the event loop with its heartbeats. Before many
    lines, await `room()`: it bounds the waiting lines to `limit_bytes` and the last burst. Before an action that the
    reader must know of even if this process is killed, await `written()`. If the reader is gone, `on_broken` is called.
    """

    def __init__(
        self, on_broken: Callable[[], None], *, descriptor: int = STDOUT, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._on_broken = on_broken
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._drained = Signal()
        self._lines: deque[bytes] = deque()
        self._kept_bytes = 0
        self._is_closed = False
        self._is_broken = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="stdout", daemon=True)
        self._thread.start()

    def emit(self, name: str, **fields: object) -> None:
        self.emit_at(wall_ms(), name, **fields)

    def emit_at(self, timestamp: int, name: str, **fields: object) -> None:
        line = json.dumps({"timestamp": timestamp, "name": name, **fields}, separators=(",", ":")).encode() + b"\n"
        with self._changed:
            if not self._is_broken:
                self._lines.append(line)
                self._kept_bytes += len(line)
                self._changed.notify()

    async def room(self) -> None:
        """Return when the reader has read enough of the waiting lines."""
        while self._kept_bytes >= self._limit_bytes:
            await self._drained.wait()

    async def written(self, timeout: int) -> bool:
        """Return when all lines are written to the pipe; False if that takes longer than `timeout` milliseconds."""
        until_ms = now_ms() + timeout
        while self._kept_bytes and now_ms() < until_ms:
            await self._drained.wait(until_ms)
        return not self._kept_bytes

    def close(self, seconds: float = CLOSE_S) -> None:
        """Write the waiting lines, as long as the reader reads them."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            _log.warning("nobody reads standard output: the last lines are lost")

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not (self._lines or self._is_closed):
                    self._changed.wait()
                if not self._lines:
                    return
                left = memoryview(b"".join(self._lines))
                self._lines.clear()
            size = len(left)
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError as error:
                self._break(error)
                return
            self._took(size)

    def _took(self, size: int) -> None:
        with self._changed:
            self._kept_bytes -= size
        self._call(self._drained.pulse)

    def _break(self, error: OSError) -> None:
        _log.error("standard output cannot be written, so no events are reported: %s", error)
        with self._changed:
            self._is_broken = True
            self._lines.clear()
            self._kept_bytes = 0
        self._call(self._drained.pulse)
        self._call(self._on_broken)

    def _call(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, so no task waits any more
            self._loop.call_soon_threadsafe(what)


class Interrupt:
    """A request to end: SIGTERM, SIGINT or a reader that is gone. It cancels what `until_asked` awaits and nothing
    else.

    So a commit is finished and printed, and only waiting is cut short (Java: `wakeup` and the shutdown hook).
    """

    def __init__(self, on_ask: Callable[[], None] = lambda: None) -> None:
        self.number: int | None = None
        self.is_asked = False
        self.on_ask = on_ask
        self._waiting: asyncio.Task[Any] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ask, number)

    def ask(self, number: int | None = None) -> None:
        if self.is_asked:
            return
        self.is_asked, self.number = True, number
        self.on_ask()
        if self._waiting is not None:
            self._waiting.cancel()

    async def until_asked(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `work()`, `None` if the end was requested before or meanwhile."""
        if self.is_asked:
            return None
        task = self._waiting = asyncio.current_task()
        try:
            return await work()
        except asyncio.CancelledError:
            if not self.is_asked:
                raise
            return None
        finally:
            self._waiting = None
            if task is not None and self.is_asked and task.cancelling():
                task.uncancel()

    @property
    def exit_code(self) -> int:
        return 0 if self.number is None else 128 + self.number


class Arguments(argparse.ArgumentParser):
    """Exits with 1 on bad arguments, as Java's tools do."""

    def error(self, message: str) -> NoReturn:
        self.print_usage()
        self.exit(1, f"{self.prog}: error: {message}\n")

    def print_usage(self, file: Any = None) -> None:  # noqa: ANN401 (argparse's own type is private to typeshed)
        """Print to stderr: stdout is for events."""
        if file is None:
            self._print_message(self.format_usage())
        else:
            super().print_usage(file)


def read_config(path: str | None) -> Mapping[str, str]:
    """The properties of the named file; empty if none is named.

    Raises:
        ConfigError: it cannot be read.
    """
    if path is None:
        return {}
    try:
        return load_properties(Path(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the properties file {path!r} cannot be read: {error}") from error


async def keep_trying(start: Callable[[], Awaitable[object]], lost: type[Exception]) -> None:
    """Start, and try again while no bootstrap server answers: Java's clients connect in the background."""
    while True:
        try:
            await start()
            return
        except lost as error:
            _log.warning("no bootstrap server answered, trying again: %s", error)
            await sleep_ms(RETRY_MS)


def run(work: Callable[[Output, Interrupt], Coroutine[Any, Any, None]]) -> int:
    """Run a tool with its standard output and its signals. Returns the exit code."""

    async def whole() -> int:
        interrupt = Interrupt()
        output = Output(interrupt.ask)
        try:
            await work(output, interrupt)
        finally:
            output.close()
        return interrupt.exit_code

    return asyncio.run(whole())
