"""An observer that names the record in hand in every line that the application logs with structlog."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from typing import Any

from aiogroup.records import Record
from aiogroup.telemetry.event import Event
from aiogroup.telemetry.record_observer import End, Whose

__all__ = ["LogContext"]


class LogContext:
    """`Consumer(..., observers=[LogContext()])`: while a record is handled, structlog's context variables hold its
    `topic`, `partition`, `offset`, `lane`, and the member's `generation`.

    They are merged into each line by `structlog.contextvars.merge_contextvars`. Two tasks never see each other's.
    Neither key nor value of a record is ever among them.
    """

    def on_event(self, event: Event) -> None:
        """Events have fields of their own."""

    def begin_record(self, record: Record, whose: Whose) -> End:
        import structlog.contextvars  # noqa: PLC0415 (costs 40 ms at import)

        tokens = structlog.contextvars.bind_contextvars(
            topic=record.topic, partition=record.partition, offset=record.offset, lane=record.lane,
            generation=whose.generation,
        )  # fmt: skip

        def end(error: str | None) -> None:
            _restore(tokens)

        return end


def _restore(tokens: Mapping[str, Token[Any]]) -> None:
    import structlog.contextvars  # noqa: PLC0415 (as above)

    try:
        structlog.contextvars.reset_contextvars(**tokens)
    except ValueError:  # another context, which never had these values: the iterator was dropped by another task
        return
