"""FastStream's own broker, which makes aiogroup's consumers where FastStream's makes aiokafka's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final

import faststream.kafka

from aiogroup._core.telemetry.event import Observer
from aiogroup._runtime.loop.clock import now_ms
from aiogroup.config import OBSOLETE
from aiogroup.errors import ConfigError
from aiogroup.faststream.consumer import StreamConsumer
from aiogroup.faststream.process_message import ProcessMessage
from aiogroup.settings import ConsumerSettings

__all__ = ["KafkaBroker"]

DEFAULT_STOP_MS: Final = 20_000
"""`Consumer.stop`'s own, where `graceful_timeout` is None."""
LEAST_STOP_MS: Final = 1_000
"""What a consumer has to commit and to leave its group where handlers have used the whole `graceful_timeout`."""


class KafkaBroker(faststream.kafka.KafkaBroker):
    """FastStream's `KafkaBroker` with aiogroup's consumer; all of its arguments are FastStream's, but two.

    Args:
        consumer_settings: settings of aiogroup that FastStream does not have, for all consumers of the broker.
        observers: get every telemetry event of each consumer.

    Raises:
        ConfigError: when a subscriber starts: a setting is unknown, or FastStream's subscriber or broker has it too.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost",
        *,
        consumer_settings: ConsumerSettings | None = None,
        observers: Iterable[Observer] = (),
        **settings: Any,  # noqa: ANN401 (FastStream's)
    ) -> None:
        super().__init__(bootstrap_servers, **settings)
        self._consumer_settings: dict[str, Any] = dict(consumer_settings or {})
        self._observers = tuple(observers)
        self._stop_by_ms: int | None = None
        self._make_ours()

    async def _connect(self) -> Callable[..., Any]:
        await super()._connect()
        self._make_ours()
        builder: Callable[..., Any] = self.config.broker_config.builder
        return builder

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers, and close; see docs/faststream.md for how long it takes at most."""
        self._stop_by_ms = now_ms() + self._graceful_ms
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            self._stop_by_ms = None

    @property
    def _graceful_ms(self) -> int:
        graceful = self.config.broker_config.graceful_timeout
        return DEFAULT_STOP_MS if graceful is None else round(graceful * 1_000)

    def _left_ms(self) -> int:
        """How long a consumer that stops now may take."""
        left = self._graceful_ms if self._stop_by_ms is None else self._stop_by_ms - now_ms()
        return max(LEAST_STOP_MS, left)

    def _make_ours(self) -> None:
        config: Any = self.config.broker_config
        theirs = config.builder  # a partial of aiokafka's class, with the broker's settings
        config.builder = partial(self._consumer, **theirs.keywords)

    def _consumer(self, *topics: str, **given: Any) -> StreamConsumer:  # noqa: ANN401 (settings)
        if twice := given.keys() & self._consumer_settings.keys():
            raise ConfigError(
                f"consumer_settings: {', '.join(sorted(twice))}: FastStream's broker or subscriber has this setting; "
                "give it there"
            )
        creates = getattr(self.config.broker_config, "allow_auto_create_topics", True)
        settings: Any = {
            "allow_auto_create_topics": creates,
            **{name: value for name, value in given.items() if name not in OBSOLETE},
            **self._consumer_settings,
        }
        return StreamConsumer(
            *topics, attach=self._attach, stop_within_ms=self._left_ms, observers=self._observers, **settings
        )

    def _attach(self, consumer: StreamConsumer) -> bool:
        for each in self.subscribers:
            subscriber: Any = each
            if subscriber.consumer is consumer or consumer in getattr(subscriber, "consumer_subgroup", ()):
                ProcessMessage.attach(subscriber)
                return bool(subscriber.calls)
        return False
