"""A record of the clusters that this user started with `up`, so that `down` ends exactly these."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.jars import cache_dir
from aiogroup.devkafka.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Up:
    """One running `up`."""

    pid: int
    born: str
    bootstrap_servers: str

    @property
    def path(self) -> Path:
        """The entry's file in the cache."""
        return _directory() / f"{self.pid}.json"


def _directory() -> Path:
    path = cache_dir() / "up"
    path.mkdir(exist_ok=True)
    return path


def birth_of(pid: int) -> str | None:
    """When the process began, in some unit: it tells a reused process id from the old one. None if there is no such
    process.
    """
    stat = Path(f"/proc/{pid}/stat")
    try:
        # The command's name, in parentheses, may hold anything; the fields after it are fixed (proc(5)).
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return None
    asked = subprocess.run(  # noqa: S603
        ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or None


def record(bootstrap_servers: str) -> Up:
    """Record this process."""
    entry = Up(os.getpid(), birth_of(os.getpid()) or "", bootstrap_servers)
    text = json.dumps({"pid": entry.pid, "born": entry.born, "bootstrap_servers": bootstrap_servers})
    entry.path.write_text(text)
    return entry


def running() -> list[Up]:
    """The entries whose processes still run; the others are removed."""
    found = []
    for path in sorted(_directory().glob("*.json")):
        try:
            entry = Up(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if birth_of(entry.pid) == entry.born:
            found.append(entry)
        else:
            path.unlink(missing_ok=True)
    return found


def end(entry: Up, timeout_ms: int = 30_000) -> None:
    """Send SIGTERM, and wait until the process has ended.

    Raises:
        DevKafkaError: the process has not ended after `timeout_ms`.
    """
    if birth_of(entry.pid) == entry.born:
        try:
            os.kill(entry.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            raise DevKafkaError(f"process {entry.pid} belongs to another user") from error
    wait_until(lambda: birth_of(entry.pid) != entry.born, timeout_ms, lambda: f"process {entry.pid} gone")
    entry.path.unlink(missing_ok=True)
