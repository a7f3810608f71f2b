"""The broker in a daemon thread with a plain selector loop: a test that blocks its own loop does not stop the broker's
clock with it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.shell.tcp import TcpShell

if TYPE_CHECKING:
    from aiogroup.embedded.machine.cluster import Cluster

__all__ = ["InLoop", "InThread", "Place"]

WAIT_S = 10


class Shell(Protocol):
    """The shell around the machine: sockets, or connections in memory."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def open(self) -> None:
        """Open the nodes. Afterwards they have their addresses."""

    def close(self) -> None: ...

    def control(self, act: Callable[[int], None], /) -> None: ...

    def flush(self) -> None: ...

    def open_doors(self) -> None: ...


class Place:
    """The place where a broker runs. `call` changes the machine from any thread; the change is done when it returns."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._process_id = os.getpid()
        self._thread_id = 0
        self.is_closed = False
        self.shell.open()

    def call(self, act: Callable[[int], None]) -> None:
        """Change the machine.

        Raises:
            BrokerRefusal: the broker is closed, or this is the copy of it in a child process.
        """
        self.check()
        self.shell.control(act)
        self._flush()

    def call_nodes(self, act: Callable[[int], None]) -> None:
        """As `call`, for changes that open or close sockets. It returns when the sockets are open or closed.

        Raises:
            BrokerRefusal: as `call`, or somebody else has taken the port of a node that was down.
        """
        self.call(act)
        if self.is_here():
            self.shell.open_doors()
            return
        opened: Future[None] = Future()

        def apply() -> None:
            try:
                self.shell.open_doors()
            except Exception as error:  # noqa: BLE001 (handed to the caller)
                opened.set_exception(error)
            else:
                opened.set_result(None)

        self.shell.loop.call_soon_threadsafe(apply)
        try:
            opened.result(WAIT_S)
        except TimeoutError:
            raise BrokerRefusal(
                f"the broker's loop did not take the call within {WAIT_S} s: its thread is blocked"
            ) from None

    def is_here(self) -> bool:
        """Whether this is the machine's thread. Then the broker stands still while a call blocks."""
        return threading.get_ident() == self._thread_id

    def _flush(self) -> None:
        if self.is_here():
            self.shell.flush()
        else:
            self.shell.loop.call_soon_threadsafe(self.shell.flush)

    def check(self) -> None:
        """Refuse a call that cannot be served."""
        self.check_process()
        if self.is_closed:
            raise BrokerRefusal("the embedded broker is closed")

    def check_process(self) -> None:
        """Refuse calls in a forked child process, whose copy of the broker never runs."""
        if os.getpid() != self._process_id:
            raise BrokerRefusal("this is a copy of the embedded broker in a forked process: the broker is the parent's")

    def close(self) -> None:
        """Close all sockets."""
        raise NotImplementedError


class InThread(Place):
    """A thread of its own."""

    def __init__(self, cluster: Cluster) -> None:
        loop = asyncio.SelectorEventLoop()
        self._tcp = TcpShell(cluster, loop)
        try:
            super().__init__(self._tcp)
        except BrokerRefusal:
            loop.close()
            raise
        loop.set_exception_handler(self._on_exception)
        self._thread = threading.Thread(target=self._run, name="aiogroup embedded broker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        self.shell.loop.run_forever()

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        what = f"{context.get('message')}: {context.get('exception')!r}"
        with self._tcp.lock:
            self._tcp.cluster.troubles.note("bug", what, self._tcp.now_ms())

    def close(self) -> None:
        """Close all sockets, end the thread.

        Raises:
            BrokerRefusal: this is the thread.
        """
        if self.is_closed or os.getpid() != self._process_id:
            return
        if self.is_here():
            raise BrokerRefusal(
                "close() waits for the broker's thread, and this function is called in it: close the broker in the "
                "test, and let the function kill its nodes, or set an event"
            )
        self.is_closed = True
        loop = self.shell.loop
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(WAIT_S)
        if self._thread.is_alive():
            raise BrokerRefusal(f"the broker's thread did not end within {WAIT_S} s")
        self.shell.close()
        loop.close()


class InLoop(Place):
    """The loop that runs in this thread."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(TcpShell(cluster, asyncio.get_running_loop()))
        self._thread_id = threading.get_ident()

    def close(self) -> None:
        """Close all sockets. Called in the loop's thread."""
        if not self.is_closed and os.getpid() == self._process_id:
            self.is_closed = True
            self.shell.close()
