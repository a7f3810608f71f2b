"""Look-ups of offsets by time: each leader is asked for the partitions that it leads (ListOffsets)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from aiogroup._core.cluster import Cluster
from aiogroup._core.fetching.epochs import NO_EPOCH
from aiogroup._core.fetching.truncation import leader_of
from aiogroup._core.protocol.constants import EARLIEST, LATEST
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import METADATA, Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    AuthenticationFailedError,
    ConsumerStoppedError,
    KafkaTimeoutError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    named,
)
from aiogroup.structs import OffsetAndTimestamp, TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "LeaderOffsets",
    "Listed",
    "Offsets",
    "answers_in",
    "by_leader",
    "epoch_before",
    "list_request",
]

Offsets = dict[TopicPartition, OffsetAndTimestamp]


class Listed(OffsetAndTimestamp):
    """As the application gets it, with a leader epoch: of the record before the end, if the end was asked for."""

    leader_epoch: int = NO_EPOCH


def epoch_before(end: OffsetAndTimestamp) -> int:
    """The leader epoch of the record before this end of a log: a position there can be checked by it (KIP-320)."""
    return end.leader_epoch if isinstance(end, Listed) else NO_EPOCH


class LeaderOffsets:
    def __init__(self, config: ConsumerConfig, link: Link, supervisor: Supervisor, refresher: Refresher) -> None:
        self._config = config
        self._link = link
        self._supervisor = supervisor
        self._refresher = refresher

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], until_ms: int, *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after each timestamp (milliseconds; EARLIEST, LATEST), -1 where there is none.

        Raises:
            KafkaTimeoutError: a leader did not answer until `until_ms`. TopicAuthorizationError,
            UnsupportedVersionError
        """
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        retries = Retries(self._config, until_ms)
        while True:
            left = {tp: at for tp, at in wanted.items() if tp not in found}
            why = await self.ask_leaders(left, until_ms, found.update, read_committed=read_committed)
            if len(found) == len(wanted):
                return found
            if not await retries.back_off():
                missing = named(wanted.keys() - found.keys())
                raise KafkaTimeoutError(f"no offsets for {missing} in time: {why}")
            # The refresher asks for the topics that are read, and these may be others.
            topics = {tp.topic for tp in wanted.keys() - found.keys()}
            await self._link.look_again(topics, min(until_ms - now_ms(), self._config.request_timeout_ms))

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
        parts = by_leader(wanted, self._link.cluster)
        why = "no leader is known" if parts.pop(-1, None) else ""
        unauthorized: set[str] = set()

        async def ask(node_id: int, part: Mapping[TopicPartition, int]) -> str:
            found: Offsets = {}
            refusal = await self._ask_leader(
                node_id, part, until_ms, found, unauthorized, read_committed=read_committed
            )
            answered = {tp: found[tp] for tp in part if tp in found}  # ignore partitions that it was not asked for
            take(answered)
            return refusal or ("" if len(answered) == len(part) else "the answer lacks partitions")

        begin = self._supervisor.begin
        answers = [begin("offsets", partial(ask, *each)) for each in parts.items()]
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
            self._refresher.want()
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
        request = list_request(wanted, self._link.cluster, read_committed=read_committed)
        limit_ms = max(1, min(until_ms - now_ms(), self._config.request_timeout_ms))
        response: ListOffsetsResponse = await self._link.send(node_id, request, METADATA, limit_ms)
        why = ""
        for tp, answer in answers_in(response):
            if not answer.error_code and (answer.offset >= 0 or wanted.get(tp, EARLIEST) >= 0):
                timestamp = answer.timestamp if answer.timestamp >= 0 else None
                found[tp] = listed = Listed(answer.offset, timestamp)
                listed.leader_epoch = answer.leader_epoch
                continue
            row = lookup(answer.error_code)
            why = f"{tp.topic}-{tp.partition}: {row.name}"
            if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unauthorized.add(tp.topic)
            if answer.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                found[tp] = OffsetAndTimestamp(-1, None)
        return why


def by_leader(wanted: Mapping[TopicPartition, int], cluster: Cluster) -> dict[int, dict[TopicPartition, int]]:
    """The part of it that each leader is to be asked for; -1 has the partitions without a leader."""
    parts: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for tp, at in wanted.items():
        parts[cluster.leader(tp)][tp] = at
    return parts


def list_request(
    wanted: Mapping[TopicPartition, int], cluster: Cluster, *, read_committed: bool = False
) -> ListOffsetsRequest:
    """The request to one leader, with the known leader epochs (KIP-320): a replaced leader that does not know so has
    other offsets.
    """
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for tp, at in sorted(wanted.items()):
        epoch = leader_of(cluster, tp).epoch
        topics[tp.topic].append(ListOffsetsPartition(tp.partition, current_leader_epoch=epoch, timestamp=at))
    named_topics = tuple(
        ListOffsetsTopic(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
    )
    return ListOffsetsRequest(isolation_level=int(read_committed), topics=named_topics)


def answers_in(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
    """The answer about each partition."""
    for topic in response.topics:
        for answer in topic.partitions:
            yield TopicPartition(topic.name, answer.partition_index), answer
