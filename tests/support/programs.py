"""Programs that run as processes of their own beside a broker."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.support.kafka import Place

ROOT = Path(__file__).parents[2]
LIMIT_S = 40


class Running:
    """A program that runs; its output goes to a file."""

    def __init__(self, place: Place, log: Path, *command: str, **variables: str) -> None:
        self.log = log
        settings = {
            "KAFKA_BOOTSTRAP_SERVERS": place.cluster.bootstrap_servers,
            "KAFKA_GROUP_ID": place.group,
            "KAFKA_TOPIC": place.topic,
        }
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                # all programs except the demo run from any folder
                cwd=ROOT if "examples.demo" in command else log.parent,
                env={**os.environ, **settings, **variables},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    async def says(self, pattern: str, times: int = 1) -> str:
        """Wait until the output has the pattern `times` times. Returns the last match's last group, or all of it."""
        until = time.monotonic() + LIMIT_S
        while len(found := re.findall(pattern, self.output)) < times:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < until, self.output
            await asyncio.sleep(0.05)
        return str(found[-1])

    async def end(self, number: int, within_s: float = 15) -> int:
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, within_s)

    def close(self) -> None:
        """End the program and its children, such as the workers of a server."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
