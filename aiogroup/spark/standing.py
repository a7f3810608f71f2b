"""What is pending: the token in the group's commit, what jobs have done of it, and where the logs begin and end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeVar

from aiogroup.admin import list_members
from aiogroup.cluster import Cluster
from aiogroup.config import ConsumerConfig
from aiogroup.consumer import Consumer
from aiogroup.errors import (
    BrokerError,
    ConnectionLostError,
    GroupAuthorizationError,
    KafkaTimeoutError,
    ProtocolError,
    TopicAuthorizationError,
)
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from aiogroup.recovery.ranges import Ranges, above, below, count, subtract
from aiogroup.recovery.token import DoneRanges, Place, Token, read_committed, read_done
from aiogroup.runtime.clock import sleep_ms, timeout_ms
from aiogroup.runtime.link import METADATA, Link
from aiogroup.spark.access import Access
from aiogroup.spark.errors import ForeignTokenError, TopicGoneError
from aiogroup.structs import TopicPartition

__all__ = ["Pending", "look"]

T = TypeVar("T")
BY_NAME: Final = 9
"""The last version of OffsetFetch that names topics."""
MOVING: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Ask again in a moment: the coordinator moves, or a transaction is about to commit offsets (KIP-447)."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What a group has left behind of one partition, and where the log begins and ends under the isolation level.

    `done` is what the second commit log says of the token with this very id.
    """

    place: Place
    token: Token
    done: Ranges
    log_start: int
    log_end: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.place.topic, self.place.partition)

    @property
    def ranges(self) -> Ranges:
        """Pending and not done, what retention has deleted included."""
        return subtract(self.token.pending, self.done)

    @property
    def readable(self) -> Ranges:
        """The same without what the log does not hold any more."""
        return above(self.ranges, self.log_start)

    @property
    def expired_count(self) -> int:
        """Offsets that are pending below the log's start: retention has deleted them."""
        return count(below(self.ranges, self.log_start))

    @property
    def record_count(self) -> int:
        """Offsets to read; compaction and transactions make it more than there are records."""
        return count(self.readable)


async def look(access: Access) -> dict[TopicPartition, Pending]:
    """Ask the brokers: every partition with a usable token. Empty: the group is there, and nothing is pending.

    Raises:
        GroupNotFoundError: the cluster has no such group.
        TopicGoneError: a topic is not there.
        ForeignTokenError: a token must not be obeyed.
        GroupAuthorizationError, TopicAuthorizationError: the message says what to grant.
        KafkaTimeoutError: not done in `default_api_timeout_ms`.
        AiogroupError: no broker was reached, or it refused.
    """
    config = access.config()
    link = Link(config)
    try:
        async with timeout_ms(config.default_api_timeout_ms):
            asking = _Asking(config, link)
            cluster = await asking.topics(access.topics)
            tps = sorted(tp for topic in access.topics for tp in cluster.partitions_of(topic))
            committed = await asking.committed(access.group_id, tps)
            if not committed:
                await list_members(access.group_id, **access.settings())  # a group without commits, or no group
                return {}
            tokens = _tokens(committed, cluster)
            done = await asking.committed(access.catchup_group_id, list(tokens)) if tokens else {}
            return await _with_bounds(access, tokens, {tp: metadata for tp, (_, metadata) in done.items()})
    except KafkaTimeoutError:
        raise
    except TimeoutError as error:
        limit_ms = config.default_api_timeout_ms
        raise KafkaTimeoutError(f"group {access.group_id!r}: not asked in default_api_timeout_ms={limit_ms}") from error
    finally:
        await link.wait_closed(link.close())


def _tokens(
    committed: Mapping[TopicPartition, tuple[int, str]], cluster: Cluster
) -> dict[TopicPartition, tuple[Place, Token]]:
    tokens, foreign = {}, {}
    for tp, (offset, metadata) in committed.items():
        place = Place(cluster.cluster_id or "", tp.topic, cluster.topics[tp.topic].topic_id, tp.partition)
        found = read_committed(offset, metadata, place)
        if found.token is not None:
            tokens[tp] = (place, found.token)
        elif found.foreign:
            foreign[tp] = found.foreign
    if foreign:
        raise ForeignTokenError(foreign)
    return tokens


async def _with_bounds(
    access: Access, tokens: Mapping[TopicPartition, tuple[Place, Token]], done: Mapping[TopicPartition, str]
) -> dict[TopicPartition, Pending]:
    if not tokens:
        return {}
    async with Consumer(**access.settings()) as reader:
        starts = await reader.beginning_offsets(tokens)
        ends = await reader.end_offsets(tokens)
    found = {}
    for tp, (place, token) in tokens.items():
        said = read_done(done.get(tp, ""), place) or DoneRanges("", ())
        found[tp] = Pending(place, token, said.done if said.id == token.id else (), starts[tp], ends[tp])
    return found


class _Asking:
    """One enquiry. Whoever uses it ends it in time: what a retry mends is tried again without a bound."""

    def __init__(self, config: ConsumerConfig, link: Link) -> None:
        self._config = config
        self._link = link

    async def topics(self, names: Collection[str]) -> Cluster:
        """These topics, each with its id."""

        async def ask() -> Cluster | None:
            cluster = await self._link.fetch_metadata(names)
            for code, error in (
                (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicGoneError),
            ):
                if those := [name for name, found in cluster.errors.items() if found == code]:
                    raise error(those)
            return None if cluster.errors else cluster

        return await self._until_answered(ask)

    async def committed(self, group_id: str, tps: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        """Offset and metadata of what the group has committed."""
        topics = tuple(
            OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(tp.partition for tp in of_topic))
            for topic, of_topic in groupby(sorted(tps), key=lambda tp: tp.topic)
        )
        groups = (OffsetFetchRequestGroup(group_id=group_id, topics=topics),)
        request = OffsetFetchRequest(groups=groups, require_stable=True)

        async def ask() -> dict[TopicPartition, tuple[int, str]] | None:
            found = await self._link.ask_any(FindCoordinatorRequest(coordinator_keys=(group_id,)))
            node_id = -1
            for each in found.coordinators:
                if not self._is_settled(group_id, each.error_code):
                    return None
                node_id = each.node_id
            return self._offsets(group_id, await self._link.send(node_id, request, METADATA, at_most=BY_NAME))

        return await self._until_answered(ask)

    def _offsets(self, group_id: str, answer: OffsetFetchResponse) -> dict[TopicPartition, tuple[int, str]] | None:
        offsets = {}
        for group in answer.groups:
            if not self._is_settled(group_id, group.error_code):
                return None
            for topic in group.topics:
                for each in topic.partitions:
                    if each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        raise TopicAuthorizationError([topic.name])
                    if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise TopicGoneError([topic.name])
                    if not self._is_settled(group_id, each.error_code):
                        return None
                    if each.committed_offset >= 0:
                        tp = TopicPartition(topic.name, each.partition_index)
                        offsets[tp] = (each.committed_offset, each.metadata or "")
        return offsets

    def _is_settled(self, group_id: str, code: int) -> bool:
        """Whether there is an answer; not yet, when it is worth asking again."""
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise GroupAuthorizationError(
                f"not authorized for group {group_id!r}: grant READ on the group to this principal"
            )
        row = lookup(code)
        if code and code not in MOVING and not row.retriable:
            raise BrokerError(code, row.name, f"group {group_id!r}: {row.message}", retriable=row.retriable)
        return not code

    async def _until_answered(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        failures_count = 0
        while True:
            try:
                if (answer := await ask()) is not None:
                    return answer
            except (ConnectionLostError, KafkaTimeoutError, ProtocolError):
                if not self._link.cluster.brokers:
                    raise  # not one bootstrap server was reached: that is what to tell
            failures_count += 1
            await sleep_ms(self._config.backoff_ms(failures_count))
