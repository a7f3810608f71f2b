"""Ends a cluster's processes and removes its data when the process that started it has ended, in whatever way.

Run as a script: `keeper.py PARENT_PID DIRECTORY`, leader of the process group that the cluster's JVMs join. The parent
holds the other end of standard input and never writes to it: end of file means that the parent has ended.

Why not PR_SET_PDEATHSIG: it fires when the *thread* that forked ends, and worker threads start clusters too. Why a
group: its number is not reused while its leader, this process, lives, so no other process is killed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

_LOOK_S = 0.5
_GIVE_UP_S = 20


def _wait_for_orphanhood(parent: int) -> None:
    # The parent's process id is checked, too: a fork of the parent keeps the pipe open after the parent's death.
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _LOOK_S)
        if readable and not os.read(0, 1):
            return


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def main(parent: int, directory: Path) -> None:
    """Wait for the parent's end, then kill the group, this process included."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _wait_for_orphanhood(parent)
    group = os.getpgrp()
    # The child kills the group after it has left it; killing from here could hit the child before that.
    if os.fork():
        while True:
            signal.pause()
    os.setsid()
    os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists() and not _group_exists(group):
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
