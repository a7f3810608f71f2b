"""Runs in turn: each is a process of its own; the clients run one after another, and every round begins with another
client.

So a noisy moment of the machine affects all of them, and no client always runs after the slowest one.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

LIMIT_S = 150.0
"""Ten times as long as the slowest client takes for the longest backlog here."""
STDERR_CHARS = 4_000
ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def rotated(clients: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    for turn in range(rounds):
        first = turn % len(clients)
        for client in (*clients[first:], *clients[:first]):
            yield turn, client


def measure(
    module: str, client: str, options: Sequence[object] = (), limit_s: float = LIMIT_S, folder: Path | None = None
) -> dict[str, Any]:
    """Run `python -m benchmarks.MODULE CLIENT OPTIONS` in a folder and read the JSON of its last line.

    A run that fails, or does not end, has no other result than `failed`, which says why; the others go on.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", client, *map(str, options)]
    process = None
    try:
        with _signals_held():
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
        told, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"failed": f"no end in {limit_s:.0f} s"}
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode:
        return {"failed": errors[-STDERR_CHARS:].strip() or f"exit {process.returncode}"}
    result: dict[str, Any] = json.loads(told.strip().splitlines()[-1])
    return result


@contextmanager
def _signals_held() -> Iterator[None]:
    """Delay signals while a process is created: a signal in between would leave the process running."""
    came: list[int] = []
    former = {each: signal.signal(each, lambda number, _: came.append(number)) for each in ENDING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def take_turns(
    clients: Sequence[str], rounds: int, run: Callable[[str], dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first run does not count, since a broker is slow to the first client of a new topic."""
    run(clients[-1])
    for _, client in rotated(clients, rounds):
        yield client, run(client)
