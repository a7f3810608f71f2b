"""Cuts what a socket gives into frames; the socket writes a long one right where it stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiogroup.errors import ProtocolError
from aiogroup.native import blank

__all__ = ["FRAME_LIMIT_BYTES", "Receiver"]

SIZE_BYTES: Final = 4
SCRATCH_BYTES: Final = 16 * 1024
"""For sizes and short frames, and for the beginning of a long one, which alone is copied."""
STEP_BYTES: Final = 256 * 1024
"""The most that is read before the loop runs: in one piece 8 MiB would hold it for milliseconds."""
FRAME_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""An answer announced longer than this is garbage: a fetch is at most fetch_max_bytes and one oversized batch."""


class Receiver(asyncio.BufferedProtocol):
    """`on_frame` gets each frame without its size, `on_end` why there will be no more, once.

    Whatever `on_frame` raises is such an end. `closed` is done when the socket is.
    """

    def __init__(
        self,
        on_frame: Callable[[bytes | bytearray], None],
        on_end: Callable[[Exception], None],
        closed: asyncio.Future[None],
    ) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._closed = closed
        self._is_ended = False
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._scratch_count = 0
        self._frame = bytearray()
        self._missing = memoryview(self._frame)  # what the frame lacks, at its end

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._missing[:STEP_BYTES] if self._missing else self._scratch[self._scratch_count :]

    def buffer_updated(self, count: int) -> None:
        if self._is_ended:
            return
        try:
            if self._missing:
                self._missing = self._missing[count:]
                if not self._missing:
                    frame, self._frame = self._frame, bytearray()
                    self._on_frame(frame)
            else:
                self._scratch_count += count
                self._cut()
        except Exception as error:  # noqa: BLE001 (whatever hostile bytes make of a decoder)
            self._end(error)

    def eof_received(self) -> None:
        self._end(EOFError("the broker closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        self._end(exc or EOFError("the connection was closed"))

    def _cut(self) -> None:
        """Take every frame that begins in the scratch."""
        pos, count = 0, self._scratch_count
        while count - pos >= SIZE_BYTES and not self._is_ended:
            size = int.from_bytes(self._scratch[pos : pos + SIZE_BYTES], "big", signed=True)
            if not SIZE_BYTES <= size <= FRAME_LIMIT_BYTES:
                raise ProtocolError(f"a frame of {size} bytes was announced")
            pos += SIZE_BYTES
            here = self._scratch[pos : min(pos + size, count)]
            pos += len(here)
            if len(here) == size:
                self._on_frame(bytes(here))
            else:
                self._frame = blank(size)
                self._missing = memoryview(self._frame)[len(here) :]
                self._frame[: len(here)] = here
        self._scratch[: count - pos] = self._scratch[pos:count]
        self._scratch_count = count - pos

    def _end(self, error: Exception) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._on_end(error)
