"""The refresher task, which refreshes metadata by age and on demand."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from aiogroup._core.cluster import Cluster
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import METADATA_FAILED, Failures
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms, sleep_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConnectionLostError,
    ConsumerStoppedError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from aiogroup.structs import TopicPartition

__all__ = ["MetadataReader", "Refresher"]

LOOK_UP_MISSING_MS: Final = 1_000
"""How often metadata that lack a wanted topic are refreshed."""
CREATED_WITHIN_MS: Final = 1_000
"""How long a start waits at most for topics that Kafka may create because it was asked for them."""


class MetadataReader(Protocol):
    """The part of the consumer that the metadata is refreshed for."""

    def wanted(self) -> frozenset[str] | re.Pattern[str]:
        """The topics that the metadata should cover: names, or a pattern over all of them."""
        ...

    def matched(self) -> frozenset[str]:
        """The topics that a pattern matched last."""
        ...

    def on_refreshed(self, cluster: Cluster) -> None:
        """After every change of the snapshot."""
        ...


class Refresher:
    def __init__(
        self, config: ConsumerConfig, link: Link, emit: Emit, failures: Failures, inbox: Inbox, reader: MetadataReader
    ) -> None:
        self._config = config
        self._link = link
        self._emit = emit
        self._failures = failures
        self._inbox = inbox
        self._reader = reader
        self._wanted = Signal()
        self._wanted_at_ms: int | None = None
        self._refreshed = Signal()
        self._refreshed_at_ms = self._failed_at_ms = -(2**40)
        self._asked_for: frozenset[str] | re.Pattern[str] | None = None
        self.asked_at_ms = -(2**40)
        """When the newest metadata were asked for."""

    async def refresh_first(self) -> None:
        """Ask now, and again while Kafka creates topics because it was asked for them.

        The first answer does not have them yet, and to join without them would cost a second rebalance. If no broker
        gives a second one in time, the start goes on with the first, and `run` asks again.

        Raises:
            AiogroupError: no broker answered the first time, or one refused the credentials.
        """
        config = self._config
        await self.refresh()
        until_ms = now_ms() + CREATED_WITHIN_MS
        while config.allow_auto_create_topics and self.is_incomplete() and (left_ms := until_ms - now_ms()) > 0:
            await sleep_ms(min(config.retry_backoff_ms, left_ms))
            try:
                await self.refresh(CREATED_WITHIN_MS)
            except (ConnectionLostError, KafkaTimeoutError) as error:
                self._emit(events.MetadataFailed(str(error)))
                return

    async def run(self) -> None:
        config = self._config
        retries = Retries(config)
        while True:
            due_at_ms = self._refreshed_at_ms + config.metadata_max_age_ms
            if self.is_incomplete():
                due_at_ms = min(due_at_ms, self._refreshed_at_ms + LOOK_UP_MISSING_MS)
            if self._wanted_at_ms is not None:
                # New topics are asked for at once, as by Java's Metadata.requestUpdateForNewTopics.
                pause_ms = config.retry_backoff_ms if self._reader.wanted() == self._asked_for else 0
                due_at_ms = min(due_at_ms, max(self._wanted_at_ms, self._refreshed_at_ms + pause_ms))
            if now_ms() < due_at_ms:
                await self._wanted.wait(due_at_ms)
                continue
            try:
                await self.refresh()
                retries.on_success()
            except AuthenticationFailedError as error:
                self._inbox.fail(error)
                raise
            except ConsumerStoppedError:
                return
            except AiogroupError as error:
                self._failed_at_ms = now_ms()
                self._refreshed.pulse()
                self._emit(events.MetadataFailed(str(error)))
                await retries.back_off()

    def is_incomplete(self) -> bool:
        """Whether a topic that we are to read does not exist (any more): then ask again before the metadata gets
        old.
        """
        wanted = self._reader.wanted()
        names = self._reader.matched() if isinstance(wanted, re.Pattern) else wanted
        return bool(names - self._link.cluster.topics.keys())

    def want(self) -> None:
        """Request a refresh soon, for example because a leader moved or a topic is not known yet. Several requests at
        about the same time lead to one refresh.
        """
        if self._wanted_at_ms is None:
            self._wanted_at_ms = now_ms()
        self._wanted.pulse()

    async def match_since(self, since_ms: int, until_ms: int) -> None:
        """Return when a pattern was compared with the topics that there were at `since_ms`, or later ones.

        Also returns when no broker answers, at the latest at `until_ms`; at once where topics are named.
        """
        # Metadata that were on their way at `since_ms` may be older, unless they are what happened then.
        if self._refreshed_at_ms >= since_ms or not isinstance(self._reader.wanted(), re.Pattern):
            return
        while max(self.asked_at_ms, self._failed_at_ms) < since_ms and now_ms() < until_ms:
            self.want()
            await self._refreshed.wait(until_ms)

    async def refresh(self, limit_ms: int | None = None) -> None:
        """Ask now, and wait for so long (`request_timeout_ms` by default).

        Raises:
            AiogroupError: no broker answered.
        """
        wanted, asked_at_ms = self._reader.wanted(), now_ms()
        since_ms, self._wanted_at_ms = self._wanted_at_ms, None  # a request from now on concerns the next answer
        try:
            await self._link.fetch_metadata(None if isinstance(wanted, re.Pattern) else wanted, limit_ms)
        except BaseException:
            self._wanted_at_ms = since_ms if since_ms is not None else self._wanted_at_ms
            raise
        self._failures.end(METADATA_FAILED)
        self._reader.on_refreshed(self._link.cluster)
        self._refreshed_at_ms, self.asked_at_ms, self._asked_for = now_ms(), asked_at_ms, wanted
        self._refreshed.pulse()

    async def know(self, topics: Collection[str]) -> None:
        """Fetch the metadata of topics that are not known yet. A failure is emitted as an event, not raised."""
        cluster = self._link.cluster
        if unknown := [topic for topic in topics if topic not in cluster.topics]:
            try:
                await self._link.fetch_metadata({*cluster.topics, *unknown})
            except AiogroupError as error:
                self._emit(events.MetadataFailed(str(error)))

    async def all_topics(self) -> Cluster:
        """The metadata of every topic, asked for now, again while brokers are not reached, in `request_timeout_ms`.

        Raises:
            AiogroupError: no broker answered.
        """
        config = self._config
        until_ms = now_ms() + config.request_timeout_ms
        retries = Retries(config, until_ms)
        while True:
            try:
                return await self._link.fetch_metadata(None, max(1, until_ms - now_ms()))
            except (ConnectionLostError, KafkaTimeoutError) as error:
                if not await retries.back_off():
                    raise retries.last_error("Metadata", error) from error

    async def require_partitions(self, tps: Iterable[TopicPartition], until_ms: int) -> None:
        """Wait until each partition is known.

        Raises:
            UnknownTopicOrPartitionError: one of them is not known until `until_ms`.
            AiogroupError: the last look-up failed; errors that pass are raised at `until_ms`.
        """
        wanted, config = set(tps), self._config
        while missing := [tp for tp in wanted if self._link.cluster.partition(tp) is None]:
            why: AiogroupError = UnknownTopicOrPartitionError(f"no such partitions: {sorted(missing)}")
            try:
                limit_ms = min(max(1, until_ms - now_ms()), config.request_timeout_ms)
                await self._link.fetch_metadata({tp.topic for tp in wanted}, limit_ms)
            except (AuthenticationFailedError, ConsumerStoppedError):
                raise
            except AiogroupError as error:
                self._emit(events.MetadataFailed(str(error)))
                why = error
            if all(self._link.cluster.partition(tp) is not None for tp in missing):
                return
            left_ms = until_ms - now_ms()
            await sleep_ms(max(0, min(config.retry_backoff_ms, left_ms)))
            if left_ms <= config.retry_backoff_ms:  # a look-up that is cut off at once would tell of healthy brokers
                raise why
