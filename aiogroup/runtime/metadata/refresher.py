"""The refresher task, which refreshes metadata by age and on demand, and the look-ups of offsets by time at the
leaders.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from aiogroup.cluster import Cluster
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConnectionLostError,
    ConsumerStoppedError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    named,
)
from aiogroup.fetching.truncation import leader_of
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiogroup.runtime.context import Context
from aiogroup.runtime.loop.clock import Signal, now_ms, sleep_ms
from aiogroup.runtime.loop.retries import Retries
from aiogroup.runtime.net.link import METADATA
from aiogroup.structs import OffsetAndTimestamp, TopicPartition
from aiogroup.telemetry import events

__all__ = ["EARLIEST", "LATEST", "Listed", "MetadataReader", "Offsets", "Refresher"]

Offsets = dict[TopicPartition, OffsetAndTimestamp]


class Listed(OffsetAndTimestamp):
    """As the application gets it, with the leader epoch of the record before the end if the end was asked for."""

    leader_epoch: int = -1


LOOK_UP_MISSING_MS: Final = 1_000
"""How often metadata that lack a wanted topic are refreshed."""


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
    def __init__(self, context: Context, reader: MetadataReader) -> None:
        self._context = context
        self._reader = reader
        self._wanted = Signal()
        self._wanted_at_ms: int | None = None
        self._refreshed = Signal()
        self._refreshed_at_ms = self._asked_at_ms = self._failed_at_ms = -(2**40)

    async def run(self) -> None:
        config = self._context.config
        retries = Retries(config)
        while True:
            due_at_ms = self._refreshed_at_ms + config.metadata_max_age_ms
            if self.is_incomplete():
                due_at_ms = min(due_at_ms, self._refreshed_at_ms + LOOK_UP_MISSING_MS)
            if self._wanted_at_ms is not None:
                due_at_ms = min(due_at_ms, max(self._wanted_at_ms, self._refreshed_at_ms + config.retry_backoff_ms))
            if now_ms() < due_at_ms:
                await self._wanted.wait(due_at_ms)
                continue
            try:
                await self.refresh()
                retries.on_success()
            except AuthenticationFailedError as error:
                self._context.inbox.fail(error)
                self._context.changed.pulse()
                raise
            except ConsumerStoppedError:
                return
            except AiogroupError as error:
                self._failed_at_ms = now_ms()
                self._refreshed.pulse()
                self._context.emit(events.MetadataFailed(str(error)))
                await retries.back_off()

    def is_incomplete(self) -> bool:
        """Whether a topic that we are to read does not exist (any more): then ask again before the metadata gets
        old.
        """
        wanted = self._reader.wanted()
        names = self._reader.matched() if isinstance(wanted, re.Pattern) else wanted
        return bool(names - self._context.link.cluster.topics.keys())

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
        while max(self._asked_at_ms, self._failed_at_ms) < since_ms and now_ms() < until_ms:
            self.want()
            await self._refreshed.wait(until_ms)

    async def refresh(self) -> None:
        """Ask now.

        Raises:
            AiogroupError: no broker answered.
        """
        wanted, asked_at_ms = self._reader.wanted(), now_ms()
        since_ms, self._wanted_at_ms = self._wanted_at_ms, None  # a request from now on concerns the next answer
        try:
            await self._context.link.fetch_metadata(None if isinstance(wanted, re.Pattern) else wanted)
        except BaseException:
            self._wanted_at_ms = since_ms if since_ms is not None else self._wanted_at_ms
            raise
        self._reader.on_refreshed(self._context.link.cluster)
        self._refreshed_at_ms, self._asked_at_ms = now_ms(), asked_at_ms
        self._refreshed.pulse()
        self._context.fetchable.pulse()
        self._context.positions_wanted.pulse()

    async def all_topics(self) -> Cluster:
        """The metadata of every topic, asked for now, again while brokers are not reached, in `request_timeout_ms`.

        Raises:
            AiogroupError: no broker answered.
        """
        config = self._context.config
        until_ms = now_ms() + config.request_timeout_ms
        retries = Retries(config, until_ms)
        while True:
            try:
                return await self._context.link.fetch_metadata(None, max(1, until_ms - now_ms()))
            except (ConnectionLostError, KafkaTimeoutError) as error:
                if not await retries.back_off():
                    raise retries.last_error("Metadata", error) from error

    # Offsets by time.

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], until_ms: int, *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after each timestamp (milliseconds; EARLIEST, LATEST), -1 where there is none.

        Raises:
            KafkaTimeoutError: a leader did not answer until `until_ms`. TopicAuthorizationError,
            UnsupportedVersionError
        """
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        retries = Retries(self._context.config, until_ms)
        while True:
            left = {tp: at for tp, at in wanted.items() if tp not in found}
            why = await self.ask_leaders(left, until_ms, found.update, read_committed=read_committed)
            if len(found) == len(wanted):
                return found
            if not await retries.back_off():
                missing = named(wanted.keys() - found.keys())
                raise KafkaTimeoutError(f"no offsets for {missing} in time: {why}")

    async def ask_leaders(
        self,
        wanted: Mapping[TopicPartition, int],
        until_ms: int,
        take: Callable[[Offsets], object],
        *,
        read_committed: bool,
    ) -> str:
        """Ask every leader once, all at the same time; `take` is called with each answer when it arrives.

        Returns the last reason why a partition was refused or has no answer, "" if there is none. If there is one, a
        metadata refresh was requested, too.

        Raises:
            TopicAuthorizationError: these topics may not be read; `take` was called with the answers for the others.
            UnsupportedVersionError, AuthenticationFailedError
        """
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, at in wanted.items():
            by_leader[self._context.link.cluster.leader(tp)][tp] = at
        why = "no leader is known" if by_leader.pop(-1, None) else ""
        unauthorized: set[str] = set()

        async def ask(node_id: int, part: Mapping[TopicPartition, int]) -> str:
            found: Offsets = {}
            refusal = await self._ask_leader(
                node_id, part, until_ms, found, unauthorized, read_committed=read_committed
            )
            answered = {tp: found[tp] for tp in part if tp in found}  # ignore partitions that it was not asked for
            take(answered)
            return refusal or ("" if len(answered) == len(part) else "the answer lacks partitions")

        begin = self._context.supervisor.begin
        answers = [begin("offsets", partial(ask, *each)) for each in by_leader.items()]
        if answers:
            await asyncio.wait(answers)
        for answer in answers:
            try:
                why = answer.result() or why
            except (UnsupportedVersionError, AuthenticationFailedError, ConsumerStoppedError):
                raise
            except AiogroupError as error:
                why = str(error)
        if refused := unauthorized & {tp.topic for tp in wanted}:
            raise TopicAuthorizationError(refused)
        if why:
            self.want()
        return why

    async def _ask_leader(
        self,
        node_id: int,
        wanted: Mapping[TopicPartition, int],
        until_ms: int,
        found: Offsets,
        unauthorized: set[str],
        *,
        read_committed: bool,
    ) -> str:
        """Put this leader's offsets into `found`, and the topics that may not be read into `unauthorized`.

        A log without timestamps has the offset -1. Returns the last partition that was refused, for whatever reason,
        with the name of the error; "" if none was.
        """
        request = ListOffsetsRequest(
            isolation_level=int(read_committed), topics=_by_topic(wanted, self._context.link.cluster)
        )
        limit_ms = max(1, min(until_ms - now_ms(), self._context.config.request_timeout_ms))
        response: ListOffsetsResponse = await self._context.link.send(node_id, request, METADATA, limit_ms)
        why = ""
        for topic in response.topics:
            for answer in topic.partitions:
                tp = TopicPartition(topic.name, answer.partition_index)
                if not answer.error_code and (answer.offset >= 0 or wanted.get(tp, EARLIEST) >= 0):
                    timestamp = answer.timestamp if answer.timestamp >= 0 else None
                    found[tp] = listed = Listed(answer.offset, timestamp)
                    listed.leader_epoch = answer.leader_epoch
                    continue
                row = lookup(answer.error_code)
                why = f"{tp.topic}-{tp.partition}: {row.name}"
                if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized.add(topic.name)
                if answer.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    found[tp] = OffsetAndTimestamp(-1, None)
        return why

    async def require_partitions(self, tps: Iterable[TopicPartition], until_ms: int) -> None:
        """Wait until each partition is known.

        Raises:
            UnknownTopicOrPartitionError: one of them is not known until `until_ms`.
            AuthenticationFailedError, ConsumerStoppedError
        """
        wanted = set(tps)
        while missing := [tp for tp in wanted if self._context.link.cluster.partition(tp) is None]:
            try:
                left_ms = max(1, until_ms - now_ms())
                limit_ms = min(left_ms, self._context.config.request_timeout_ms)
                await self._context.link.fetch_metadata({tp.topic for tp in wanted}, limit_ms)
            except (AuthenticationFailedError, ConsumerStoppedError):
                raise
            except AiogroupError as error:
                self._context.emit(events.MetadataFailed(str(error)))
            if all(self._context.link.cluster.partition(tp) is not None for tp in missing):
                return
            if now_ms() >= until_ms:
                raise UnknownTopicOrPartitionError(f"no such partitions: {sorted(missing)}")
            await sleep_ms(min(self._context.config.retry_backoff_ms, max(0, until_ms - now_ms())))


def _by_topic(wanted: Mapping[TopicPartition, int], cluster: Cluster) -> tuple[ListOffsetsTopic, ...]:
    """The topics of a request, with the known leader epochs (KIP-320): a replaced leader that does not know so has
    other offsets.
    """
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for tp, at in sorted(wanted.items()):
        epoch = leader_of(cluster, tp).epoch
        topics[tp.topic].append(ListOffsetsPartition(tp.partition, current_leader_epoch=epoch, timestamp=at))
    return tuple(ListOffsetsTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items())
