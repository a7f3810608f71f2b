"""An observer that names the record in hand in every line that the application logs with structlog."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from typing import Any

from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.record_observer import Current, End, Whose, drop_what_is_over
from aiogroup.records import Record

__all__ = ["LogContext"]


class LogContext:
    """`Consumer(..., observers=[LogContext()])`: while a record is handled, structlog's context variables hold its
    `topic`, `partition`, `offset`, `lane`, and the member's `generation`.

    They are merged into each line by `structlog.contextvars.merge_contextvars`. Two tasks never see each other's.
    Neither key nor value of a record is ever among them.
    """

    def on_event(self, event: Event) -> None:
        """Events have fields of their own."""

    def begin_record(self, record: Record[Any, Any], whose: Whose) -> End:
        import structlog.contextvars  # noqa: PLC0415 (costs 40 ms at import)

        drop_what_is_over()
        tokens = structlog.contextvars.bind_contextvars(
            topic=record.topic, partition=record.partition, offset=record.offset, lane=record.lane,
            generation=whose.generation,
        )  # fmt: skip
        return Current(_restore, tokens).end


def _restore(tokens: Mapping[str, Token[Any]]) -> None:
    import structlog.contextvars  # noqa: PLC0415 (as above)

    try:
        structlog.contextvars.reset_contextvars(**tokens)
    except (ValueError, RuntimeError):  # in a copy of the context in which they were set
        for name, token in tokens.items():
            if token.old_value is Token.MISSING:
                structlog.contextvars.unbind_contextvars(name)
            else:
                token.var.set(token.old_value)
