"""The document of `/state`: all loops of a service, its newest events and samples. At most about 1 MB."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from aiogroup._runtime.loop.clock import now_ms, wall_ms
from aiogroup.asgi.page.journal import Journal
from aiogroup.asgi.page.watched import Watched
from aiogroup.asgi.probes import Snapshot
from aiogroup.asgi.supervised import SupervisedLoop

__all__ = ["State"]

Work = Callable[[], Awaitable[None]]
KEPT_MS: Final = 900
"""What many pages ask for at the same time is looked up once."""


class State:
    """What a service shows to those with access. `begin` carries out what nobody waits for."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        loops: Callable[[], Mapping[str, SupervisedLoop]],
        begin: Callable[[Work], None],
        names: tuple[str, ...],
    ) -> None:
        self.journal = Journal()
        self.watched = {name: Watched(name, self.journal, len(names)) for name in names}
        self._snapshot = snapshot
        self._loops = loops
        self._begin = begin
        self._process = os.urandom(8).hex()
        self._began_at_ms = wall_ms()
        self._lock = anyio.Lock()
        self._looked_at_ms: int | None = None
        self._looked = ""

    async def sample(self) -> None:
        """Take a sample of each loop."""
        for name, loop in self._loops().items():
            consumer = loop.consumer
            await self.watched[name].sample(None if consumer is None else consumer.inside())

    async def document(self, after: int, samples_after_ms: int, process: str) -> bytes:
        """The text: events with a higher number than `after`, samples later than that instant.

        All of them if `process`, of which the asker knows these, is not this one; it is empty where he does not say.
        """
        if process not in ("", self._process):
            after = samples_after_ms = 0
        looked = await self._look()
        events = ", ".join(self.journal.events(after))
        samples = json.dumps(self.journal.samples(samples_after_ms))
        return f'{looked}, "samples": {samples}, "events": [{events}]}}'.encode()

    async def _look(self) -> str:
        """All but events and samples, as the beginning of the text."""
        async with self._lock:
            if self._looked_at_ms is None or now_ms() - self._looked_at_ms >= KEPT_MS:
                self._looked = await self._look_anew()
                self._looked_at_ms = now_ms()
            return self._looked

    async def _look_anew(self) -> str:
        loops = self._loops()
        about = {
            **self._snapshot().plain(),
            "version": 1,
            "process": self._process,
            "pid": os.getpid(),
            "began_at_ms": self._began_at_ms,
            "at_ms": wall_ms(),
            "last_number": self.journal.last_number,
        }
        texts = []
        for name, loop in loops.items():
            watched = self.watched[name]
            if loop.consumer is not None and (asking := watched.ask_members(loop.consumer)) is not None:
                self._begin(asking)
            texts.append(f"{json.dumps(name)}: {await watched.details(loop)}")
        return f'{json.dumps(about)[:-1]}, "loops": {{{", ".join(texts)}}}'
