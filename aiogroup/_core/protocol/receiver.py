"""Cuts a socket's bytes into frames; the socket writes a long frame directly into its final place.

In an answer to Fetch the long records of each partition get a buffer of their own. Each buffer then lives only as long
as it is needed, and records need not be copied out of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from typing import Final

from aiogroup._core.native import blank, next_records
from aiogroup._core.native.frames import AT_START, LOST
from aiogroup._core.protocol.codec import NOTHING_APART
from aiogroup.config import FRAME_LIMIT_BYTES
from aiogroup.errors import ProtocolError

__all__ = ["Receiver"]

SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">i")
SCRATCH_BYTES: Final = 16 * 1024
"""The buffer for sizes, short frames and the beginning of a long frame; only these are copied."""
STEP_BYTES: Final = 256 * 1024
"""The most that is read before the loop runs again: 8 MiB in one piece would hold up the loop for milliseconds."""
APART_BYTES: Final = 64 * 1024
"""Records of at least this size get a buffer of their own."""
KEPT_BYTES: Final = 8 * 1024 * 1024


@cache
def _keep_pages() -> None:
    """Keep the memory of answers for the next ones, instead of returning it to the system in between.

    glibc returns memory as soon as twice the size of the largest block ever freed is idle. Then the system must clear
    each page of the next answer again, which takes a tenth of the time of a drain. This allocates one large block and
    frees it; nothing is written into it, so it costs nothing. It runs once per process, at the first connection.
    """
    blank(KEPT_BYTES)


class _LongFrame:
    """A frame of `size` bytes that begins with `here`. `apart` maps a place in the frame to the long records that
    belong there and have a buffer of their own.

    `has_ids` is None if no records are to be kept apart.
    """

    def __init__(self, size: int, here: memoryview, has_ids: bool | None) -> None:
        self.frame = bytearray(here)
        self.apart: dict[int, memoryview] = {}
        self._left_count = size - len(here)
        self._missing = memoryview(b"")  # the rest of the buffer that the socket writes into directly
        self._place = AT_START
        self._has_ids = has_ids
        self._look()

    @property
    def is_complete(self) -> bool:
        return not self._left_count

    def buffer(self, scratch: memoryview) -> memoryview:
        """The memory to receive the next bytes in."""
        return self._missing[:STEP_BYTES] if self._missing else scratch[: self._left_count]

    def take(self, scratch: memoryview, count: int) -> None:
        """`count` bytes were written into `buffer`."""
        self._left_count -= count
        if self._missing:
            self._missing = self._missing[count:]
        else:
            self.frame += scratch[:count]
            self._look()

    def _look(self) -> None:
        """Find the next long records. If they are short, or cannot be found, the rest of the frame is received in one
        piece.
        """
        while self._left_count and not self._missing:
            pos, length = 0, 0
            if self._has_ids is not None:
                self._place, length = next_records(self.frame, self._place, self._has_ids)
                pos = self._place[0]
            here_count = len(self.frame) - pos
            if APART_BYTES <= length <= here_count + self._left_count:
                self.apart[pos] = records = memoryview(blank(length))
                here = self.frame[pos : pos + length]
                records[: len(here)] = here
                del self.frame[pos : pos + len(here)]
                self._missing = records[len(here) :]
            elif length or self._has_ids is None or self._place[1] == LOST or here_count > APART_BYTES:
                whole = blank(len(self.frame) + self._left_count)
                whole[: len(self.frame)] = self.frame
                self._missing = memoryview(whole)[len(self.frame) :]
                self.frame = whole
            else:
                return


class Receiver:
    """`on_frame` gets each frame without its size, and the records kept apart; `on_end` is called once, with the reason
    for the end.

    The reader of the socket gets the buffer to fill from `get_buffer`, and passes the number of received bytes to
    `buffer_updated`. An error raised by `on_frame` ends it, too. `has_ids` is called when a frame begins: it returns
    True for an answer to Fetch that names its topics by id, False for one of version 12, and None for any other answer.
    """

    def __init__(
        self,
        on_frame: Callable[[bytes | bytearray, Mapping[int, memoryview]], None],
        on_end: Callable[[Exception], None],
        has_ids: Callable[[], bool | None] = lambda: None,
    ) -> None:
        _keep_pages()
        self._on_frame = on_frame
        self._on_end = on_end
        self._has_ids = has_ids
        self._is_ended = False
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._scratch_count = 0
        self._long: _LongFrame | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch[self._scratch_count :] if self._long is None else self._long.buffer(self._scratch)

    def buffer_updated(self, count: int) -> None:
        if self._is_ended:
            return
        try:
            if self._long is None:
                self._scratch_count += count
                self._cut()
                return
            self._long.take(self._scratch, count)
            if self._long.is_complete:
                done, self._long = self._long, None
                self._on_frame(done.frame, done.apart)
        except Exception as error:  # noqa: BLE001 (hostile bytes may make a decoder raise anything)
            self.end(error)

    def _cut(self) -> None:
        """Cut every frame that begins in the scratch buffer."""
        pos, count = 0, self._scratch_count
        while count - pos >= SIZE_BYTES and not self._is_ended:
            (size,) = _SIZE.unpack_from(self._scratch, pos)
            if not SIZE_BYTES <= size <= FRAME_LIMIT_BYTES:
                raise ProtocolError(
                    f"an answer of {size} bytes was announced, and at most {FRAME_LIMIT_BYTES} are read: no Kafka "
                    "broker listens there, the listener wants TLS, or a batch is that large"
                )
            begin, pos = pos + SIZE_BYTES, pos + SIZE_BYTES + size
            if pos <= count:
                self._on_frame(bytes(self._scratch[begin:pos]), NOTHING_APART)
            else:
                self._long, pos = _LongFrame(size, self._scratch[begin:count], self._has_ids()), count
        if pos < count:
            self._scratch[: count - pos] = self._scratch[pos:count]
        self._scratch_count = count - pos

    def end(self, error: Exception) -> None:
        """Note that the connection ended for this reason; only the first reason is reported."""
        if not self._is_ended:
            self._is_ended = True
            self._on_end(error)
