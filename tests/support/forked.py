"""Processes that are forked from one that has imported aiogroup, for tests that start many.

`python -m` takes 0.3 s of CPU until its module begins, nearly all of it for imports.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import IO, Any

from tests.support.sources import ROOT

IMPORTED = ("aiogroup.verifiable.consumer", "aiogroup.verifiable.producer")
LIMIT_S = 60
MESSAGE_BYTES = 1 << 16


class Forked:
    """A process like `subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT)`, with warnings as errors.

    Standard input is empty. `stdout` is `subprocess.PIPE` or a file, `stderr` a file or this process's own. The
    environment is that of the first such process.
    """

    def __init__(self, module: str, *arguments: str, stdout: IO[Any] | int, stderr: IO[Any] | None = None) -> None:
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        self._waits = threading.Lock()
        told, tells = os.pipe()
        ours = [tells]
        if stdout == subprocess.PIPE:
            read, write = os.pipe()
            self.stdout = os.fdopen(read, "rb")
            ours.append(write)
        else:
            write = stdout if isinstance(stdout, int) else stdout.fileno()
        self._told = os.fdopen(told, "rb", buffering=0)
        try:
            self.pid = _server().fork([module, *arguments], [write, 2 if stderr is None else stderr.fileno(), tells])
        except BaseException:
            self._told.close()
            if self.stdout is not None:
                self.stdout.close()
            raise
        finally:
            for each in ours:
                os.close(each)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code; it is negative if a signal ended the process.

        Raises:
            subprocess.TimeoutExpired: it has not ended within `timeout` seconds.
        """
        late = subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        if not self._waits.acquire(timeout=-1 if timeout is None else timeout):
            raise late
        try:
            if self.returncode is None:
                if not select.select([self._told], [], [], timeout)[0]:
                    raise late
                # nothing to read: the server killed it, and ended
                self.returncode = int(self._told.read() or -signal.SIGKILL)
                self._told.close()
            return self.returncode
        finally:
            self._waits.release()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process from which others are forked. It ends, with all its children, when this process ends."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(LIMIT_S)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONWARNINGS": "error"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def fork(self, command: list[str], files: list[int]) -> int:
        """Fork a process that runs `command`, the module and its arguments. Returns its pid."""
        with self._lock:
            try:
                socket.send_fds(self._socket, [json.dumps(command).encode() + b"\n"], files)
                return int(self._socket.recv(MESSAGE_BYTES))
            except BaseException:  # a late answer would be taken for the next process's pid
                self._socket.close()
                _server.cache_clear()
                raise

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(LIMIT_S)


@cache
def _server() -> _Server:
    return _Server()


def _serve(asked: socket.socket) -> list[str]:
    """Fork when asked to, and report the exit codes of children. It returns only in a child, with the module and its
    arguments.
    """
    for each in IMPORTED:
        importlib.import_module(each)
    gc.freeze()  # so that no child copies these pages to count references
    dies, death = os.pipe()
    os.set_blocking(death, False)
    signal.set_wakeup_fd(death)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to pytest too, which then ends
    living: dict[int, int] = {}
    try:
        while True:
            ready, _, _ = select.select([asked, dies], [], [])
            if dies in ready:
                os.read(dies, MESSAGE_BYTES)
                _tell_of_the_dead(living)
            if asked in ready:
                command, files = _receive(asked)
                pid = os.fork()
                if not pid:
                    of_server = [dies, death, *living.values()]
                    living.clear()
                    asked.close()
                    _begin(files, of_server)
                    return command
                output, errors, living[pid] = files
                os.close(output)
                os.close(errors)
                with suppress(BrokenPipeError):  # the tests have just ended
                    asked.send(b"%d" % pid)
    finally:
        for pid in living:
            os.kill(pid, signal.SIGKILL)


def _receive(asked: socket.socket) -> tuple[list[str], list[int]]:
    """The next command, and its files.

    Raises:
        SystemExit: the tests have ended.
    """
    try:
        line, files, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 3)
        while line and not line.endswith(b"\n"):
            line += asked.recv(MESSAGE_BYTES)
    except ConnectionResetError:
        line = b""
    if not line:
        sys.exit()
    return json.loads(line), files


def _tell_of_the_dead(living: dict[int, int]) -> None:
    while living:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with os.fdopen(living.pop(pid), "wb", buffering=0) as tells, suppress(BrokenPipeError):
            tells.write(b"%d" % os.waitstatus_to_exitcode(status))


def _begin(files: list[int], of_others: list[int]) -> None:
    """Set up a child like a process that `subprocess` starts."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output, errors, _ = files
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for each in files + of_others:
        os.close(each)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as socket_of_tests:
        sys.argv = _serve(socket_of_tests)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
