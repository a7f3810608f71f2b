"""Writes lines to files in a thread; callers only put them into a queue."""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from aiogroup._runtime.loop.clock import steady_ms, wall_ms
from aiogroup.eventlog.witness import Witness

__all__ = ["FileWriter", "Rotation"]

RETRY_MS: Final = 1_000
BATCH_BYTES: Final = 262_144
EXIT_MS: Final = 2_000
_logger: Final = logging.getLogger("aiogroup")


class Rotation:
    """When a file is full or old enough, and how many stay."""

    def __init__(self, path: Path, host: str, max_bytes: int, max_ms: int, keep: int) -> None:
        is_folder = path.is_dir()
        self.folder = path if is_folder else path.parent
        stem, self._suffix = ("events", ".jsonl") if is_folder else (path.stem, path.suffix or ".jsonl")
        self._start = f"{stem}-{re.sub(r'[^A-Za-z0-9.]', '_', host)}-"
        self.max_bytes, self.max_ms = max_bytes, max_ms
        self._keep = keep
        self._last = 0  # names are in the order of the files, also where several begin within a millisecond

    def open(self, pid: int, now: int) -> tuple[int, Path]:
        """A new file that nobody else writes: the name has host, process and time, and no file of that name exists.

        Raises:
            OSError: the folder or the file cannot be made.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            self._last = max(now, self._last + 1)
            path = self.folder / f"{self._start}{pid}-{self._last}{self._suffix}"
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
                return os.open(path, flags, 0o640), path

    def remove_old(self, pid: int, current: Path, now: int) -> None:
        """Remove the oldest files of this host above the number to keep.

        Those of other processes only after they were not written for `max_ms`, since a process that lives begins a new
        file by then.
        """
        pattern = re.compile(re.escape(self._start) + r"(\d+)-(\d+)" + re.escape(self._suffix))
        found = [(path, match) for path in self.folder.iterdir() if (match := pattern.fullmatch(path.name))]
        others = sorted((int(match[2]), int(match[1]), path) for path, match in found if path != current)
        for _, owner, path in others[: max(0, len(others) + 1 - self._keep)]:
            with suppress(OSError):
                if owner == pid or now - path.stat().st_mtime_ns // 1_000_000 > self.max_ms:
                    path.unlink()


class FileWriter:
    """A bounded queue and the thread that empties it. The thread begins with the first line.

    `dropped_line(count, total)` makes the line that tells how many lines are missing. A disk that is full, or a lost
    right, is logged once and then tried again each second, while lines wait in the queue.
    """

    def __init__(self, rotation: Rotation, max_queue: int, dropped_line: Callable[[int, int], bytes]) -> None:
        self._rotation = rotation
        self._max_queue = max_queue
        self._dropped_line = dropped_line
        self._pid = os.getpid()
        self._queue: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._file: _File | None = None
        self._told_count = 0
        self._is_failing = False
        self._witness = Witness()
        self.stood_still_ms = self._witness.stood_still_ms
        self.dropped_count = 0

    def put(self, line: bytes) -> None:
        """Never waits: a line for which there is no room is counted."""
        with self._lock:
            if self._ended.is_set() or len(self._queue) >= self._max_queue:
                self.dropped_count += 1
                return
            self._queue.append(line)
            if self._thread is None:
                self._begin()
        if not self._wake.is_set():
            self._wake.set()

    def drop(self, count: int = 1) -> None:
        """Count lines that could not be made."""
        with self._lock:
            self.dropped_count += count

    def close(self, timeout_ms: int) -> bool:
        """Write what waits, and end. Returns whether it ended in time; later lines are counted only."""
        if self._pid != os.getpid():
            return True  # a forked process: the thread is not here, and what waits is the parent's
        self._ended.set()
        self._wake.set()
        atexit.unregister(self._at_exit)
        thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_ms / 1_000)
        return not thread.is_alive()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="aiogroup event log", daemon=True)
        thread.start()
        self._thread = thread
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        self.close(EXIT_MS)

    # In the thread.

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._witness.wait(self._wake)
            self._wake.clear()
            is_last = self._ended.is_set()
            while self._queue or self.dropped_count > self._told_count:
                if not self._write(self._take()):
                    is_last = True
                    break
        if self._file is not None:
            self._file.close()

    def _take(self) -> list[bytes]:
        """The next lines, no more than fit into a file. If some were dropped, a line that says so comes first."""
        lines: list[bytes] = []
        with self._lock:
            dropped_count = self.dropped_count - self._told_count
            total_count = self._told_count = self.dropped_count
        if dropped_count:
            lines.append(self._dropped_line(dropped_count, total_count))
        size = sum(map(len, lines))
        while self._queue and size < BATCH_BYTES:
            if lines and size + len(self._queue[0]) > self._rotation.max_bytes:
                break
            lines.append(self._queue.popleft())
            size += len(lines[-1])
        return lines

    def _write(self, lines: list[bytes]) -> bool:
        """Write these lines, however often it must be tried. Returns False if the log ended and the last try failed."""
        left = memoryview(b"".join(lines))
        is_rotated = False
        while left:
            is_last = self._ended.is_set()
            try:
                if not is_rotated:
                    self._rotate(len(left))
                    is_rotated = True
                assert self._file is not None
                left = left[self._file.write(left) :]
            except OSError as error:
                self._fail(error)
                if is_last:
                    self.drop(bytes(left).count(b"\n") + len(self._queue))
                    self._queue.clear()
                    return False
                self._ended.wait(RETRY_MS / 1_000)
            else:
                self._is_failing = False
        return True

    def _rotate(self, size: int) -> None:
        """Begin another file if this one is full, old or deleted; only between two lines."""
        now, file, rotation = wall_ms(), self._file, self._rotation
        if file is not None:
            has_room = file.size + size <= rotation.max_bytes and steady_ms() - file.opened_at_ms < rotation.max_ms
            if has_room and not file.is_deleted:
                return
            file.close()
            self._file = None
        number, path = rotation.open(self._pid, now)
        self._file = _File(number, steady_ms())
        rotation.remove_old(self._pid, path, now)

    def _fail(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _logger.warning(
                "event_log_failed: %s: %s; lines wait, and are counted as dropped if there are more than %d",
                self._rotation.folder,
                error.strerror or error,
                self._max_queue,
            )


class _File:
    """The file that is written now."""

    def __init__(self, number: int, opened_at_ms: int) -> None:
        self._number = number
        self.opened_at_ms = opened_at_ms
        self.size = 0

    @property
    def is_deleted(self) -> bool:
        """Whether somebody has deleted it: what is written would be gone when it is closed."""
        return os.fstat(self._number).st_nlink == 0

    def write(self, data: memoryview) -> int:
        written = os.write(self._number, data)
        self.size += written
        return written

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._number)
