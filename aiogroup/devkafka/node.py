"""One broker and controller: a JVM that can be stopped, killed, frozen and started again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiogroup.devkafka.config import PLAINTEXT, NodePlan
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# A controlled shutdown hands leadership over. After this time it is stuck, for example without a quorum.
_STOP_MS = 30_000


class Node:
    """Made by `Cluster`. Ports and data stay the same through `stop`, `kill` and `start`."""

    def __init__(
        self,
        plan: NodePlan,
        command: Sequence[str],
        log_path: Path,
        group: int,
        await_ready: Callable[[Node], None],
    ) -> None:
        self._plan = plan
        self._command = list(command)
        self._group = group
        self._await_ready = await_ready
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self.log_path = log_path

    @property
    def node_id(self) -> int:
        """Kafka's `node.id`: 1, 2, 3."""
        return self._plan.node_id

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None while there is none."""
        return self._process.pid if self._process is not None else None

    @property
    def port(self) -> int:
        """The port of the PLAINTEXT listener."""
        return self._plan.ports[PLAINTEXT]

    @property
    def is_running(self) -> bool:
        """Whether the JVM lives; a paused one does, too."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        """Whether the JVM is paused, between `pause` and `resume`."""
        return self._paused

    def description(self) -> dict[str, Any]:
        """The node's plan, process id and log path, as values that JSON can carry to another process."""
        return {"plan": asdict(self._plan), "pid": self.pid, "log_path": str(self.log_path)}

    def address(self, listener: str = PLAINTEXT) -> str:
        """`host:port` that the node advertises on `listener`."""
        if listener not in self._plan.protocols:
            raise DevKafkaError(f"no listener {listener}; this cluster has {', '.join(self._plan.protocols)}")
        return f"{HOST}:{self._plan.advertised_ports.get(listener, self._plan.ports[listener])}"

    def start(self, *, wait: bool = True) -> None:
        """Start the JVM. With `wait` return when every running node lists it.

        Raises:
            DevKafkaError: the node runs already, or is not ready in time; the message has the end of its log.
        """
        if self.is_running:
            raise DevKafkaError(f"node {self.node_id} runs already (pid {self.pid})")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_path.parent,
                process_group=self._group,
            )
        self._paused = False
        if wait:
            self._await_ready(self)

    def stop(self, timeout_ms: int = _STOP_MS) -> None:
        """Controlled shutdown (SIGTERM); returns when the process has ended.

        Raises:
            DevKafkaError: the process had not ended after `timeout_ms`, and was killed.
        """
        process = self._running()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired as error:
            self.kill()
            message = f"node {self.node_id} was killed: it did not stop in {timeout_ms} ms\n{self.log_tail()}"
            raise DevKafkaError(message) from error
        self._paused = False

    def kill(self) -> None:
        """SIGKILL, as in a crash; returns when the process has ended. Does nothing if it had ended before."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._paused = False

    def pause(self) -> None:
        """SIGSTOP: sockets stay open and nothing answers, as in a long garbage collection."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        # wait: on a busy machine its threads may run on for a moment, and answer
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)
        self._paused = False

    def exit_code(self) -> int | None:
        """None while the JVM runs or never started."""
        return self._process.poll() if self._process is not None else None

    def log_tail(self, lines: int = 40) -> str:
        """The end of the JVM's log."""
        try:
            with self.log_path.open(errors="replace") as log:
                return "".join(deque(log, maxlen=lines))
        except FileNotFoundError:
            return ""

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.is_running:
            raise DevKafkaError(f"node {self.node_id} does not run")
        return self._process
