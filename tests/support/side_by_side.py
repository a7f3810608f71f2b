"""`python -m tests.support.side_by_side COMMAND...` runs shell commands at the same time.

Their output is printed as if they ran one after the other. The exit code is 0 if all exit codes are 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading


class Command:
    """A running command. Its output is kept until `show`, and from then on passed on at once."""

    def __init__(self, line: str) -> None:
        self.line = line
        self._process = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._lock = threading.Lock()
        self._kept: list[bytes] = []
        self._is_shown = False
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        with pipe:
            while piece := os.read(pipe.fileno(), 65_536):
                with self._lock:
                    if self._is_shown:
                        _say(piece)
                    else:
                        self._kept.append(piece)

    def show(self) -> int:
        """Print the output to its end. Returns the exit code."""
        with self._lock:
            if not self._is_shown:
                _say(f"{self.line}\n".encode(), *self._kept)
                self._is_shown = True
        self._reading.join()
        return self._process.wait()


def _say(*pieces: bytes) -> None:
    sys.stdout.buffer.writelines(pieces)
    sys.stdout.buffer.flush()


def main(lines: list[str]) -> int:
    commands = [Command(line) for line in lines]
    try:
        failed = [each for each in commands if each.show() != 0]
    except KeyboardInterrupt:  # the commands got it, too
        for each in commands:
            each.show()
        return 130
    for each in failed:
        _say(f"failed: {each.line}\n".encode())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
