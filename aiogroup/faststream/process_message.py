"""How a consumer learns that FastStream is done with a message."""

from __future__ import annotations

import asyncio
from typing import Any

from faststream.kafka.subscriber.usecase import LogicSubscriber

from aiogroup.faststream.messages import Acknowledging, RawMessage

__all__ = ["ProcessMessage"]


class ProcessMessage:
    """Stands in front of a subscriber's `process_message`, with all of its middlewares.

    A middleware of ours would be seen among the application's. Nor would it notice that FastStream, when a subscriber
    stops, drops messages that no worker has begun.
    """

    def __init__(self, subscriber: LogicSubscriber[Any]) -> None:
        self._process = subscriber.process_message
        self._parser: Any = subscriber.parser

    @classmethod
    def attach(cls, subscriber: LogicSubscriber[Any]) -> None:
        """Do so, once: a subscriber may be started again."""
        if not isinstance(subscriber.process_message, cls):
            subscriber.process_message = cls(subscriber)  # type: ignore[assignment]

    async def __call__(self, message: Any) -> Any:  # noqa: ANN401 (FastStream's)
        several = message if isinstance(message, tuple) else (message,)
        # Records of FastStream's in-memory test broker are not ours.
        messages = [each for each in several if isinstance(each, RawMessage)]
        if not messages:
            return await self._process(message)
        if isinstance(message, tuple):
            self._parser._setup(Acknowledging(messages[0].deliverer, messages))
        under_way = messages[0].under_way
        under_way.begins()
        try:
            result = await self._process(message)
        except (Exception, SystemExit):  # FastStream goes on with the next one, or stops the subscriber
            if not _is_task_cancelled():
                _end(messages)
            raise
        finally:
            under_way.ends()
        _end(messages)
        return result


def _end(messages: list[RawMessage]) -> None:
    for each in messages:
        each.end()


def _is_task_cancelled() -> bool:
    """Whether the exception may stand for a cancellation that the handler has replaced."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
