"""Finds the pending ranges: from the token in the group's commit, the progress of jobs, and the bounds of the logs.

A service with `parallel_handoff` commits a token when it takes a partition over. If a group is behind and has no token,
it is unknown what is pending. That is reported, and never taken for "nothing is pending".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from aiogroup._core.cluster import Cluster
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.recovery.ranges import Ranges, above, below, count, subtract
from aiogroup._core.recovery.token import (
    DoneRanges,
    HandOffNote,
    LogId,
    Token,
    read_done,
    read_token,
    second_group_mark,
    write_done,
)
from aiogroup._runtime.loop.clock import now_ms, sleep_ms, wall_ms
from aiogroup._runtime.net.group_link import GroupLink, check_code, from_outside
from aiogroup.admin import list_members, members_in
from aiogroup.consumer import Consumer
from aiogroup.errors import TopicAuthorizationError
from aiogroup.spark.access import Access
from aiogroup.spark.errors import (
    CatchupGroupError,
    ForeignTokenError,
    IsolationLevelError,
    NotHandedOffError,
    TopicGoneError,
)
from aiogroup.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Lagging", "Pending", "Standing", "look", "look_at_rest"]

REST_MS: Final = 10_000
"""How long a running member may take to commit what it has just read: twice the default interval of auto-commit."""
AGAIN_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Lagging:
    """A partition in which the group is behind, and no token says which offsets are left to jobs.

    `committed` is the group's offset, `None` if it has none.
    """

    tp: TopicPartition
    committed: int | None
    log_start: int
    log_end: int

    @property
    def lag_count(self) -> int:
        """The number of offsets between the group's offset and the log's end."""
        return max(0, self.log_end - max(self.committed or 0, self.log_start))

    def __str__(self) -> str:
        where = "has committed nothing" if self.committed is None else f"has committed {self.committed}"
        return (
            f"{self.tp.topic}-{self.tp.partition}: the group {where} and is {self.lag_count:,} offsets behind, and no "
            "token says that these are left to jobs. The service writes one when it takes the partition over with "
            "parallel_handoff=True: start it (again), then run the job"
        )


class Standing(dict[TopicPartition, "Pending"]):
    """The ranges that the group has left to jobs, by partition.

    `lagging` are partitions with records that the group has not read, and without a token. `isolation_level` is the
    service's, or the stricter one that the caller named. `topic_ids` tell a topic from a later one of the same name.
    `log_starts` has all partitions of the topics, whether or not anything in them is pending.
    """

    def __init__(
        self,
        pending: Mapping[TopicPartition, Pending] | None = None,
        lagging: Mapping[TopicPartition, Lagging] | None = None,
        isolation_level: str = "read_uncommitted",
    ) -> None:
        super().__init__(pending or {})
        self.lagging = dict(lagging or {})
        self.isolation_level = isolation_level
        self.topic_ids: dict[str, UUID] = {}
        self.log_starts: dict[TopicPartition, int] = {}

    def entries(self, done: Mapping[TopicPartition, tuple[str, Ranges]]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Entries of the second commit log that add these done ranges, each given with its token's id.

        There is no entry for a partition whose token has another id by now, or is gone.
        """
        return {
            tp: self[tp].entry(ranges) for tp, (id_, ranges) in done.items() if tp in self and self[tp].token.id == id_
        }


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending ranges of one partition, and the bounds of its log under the isolation level.

    `done` are the ranges that the second commit log lists as done for the token with the same id.
    """

    place: LogId
    token: Token
    done: Ranges
    log_start: int
    log_end: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.place.topic, self.place.partition)

    @property
    def ranges(self) -> Ranges:
        """The ranges that are pending and not done, including offsets that retention has deleted."""
        return subtract(self.token.pending, self.done)

    @property
    def readable(self) -> Ranges:
        """The ranges without the offsets that retention has deleted."""
        return above(self.ranges, self.log_start)

    @property
    def expired_count(self) -> int:
        """The number of pending offsets that retention has deleted."""
        return count(below(self.ranges, self.log_start))

    @property
    def record_count(self) -> int:
        """The number of offsets to read. With compaction or transactions there are fewer records than that."""
        return count(self.readable)

    def entry(self, news: Ranges = ()) -> OffsetAndMetadata:
        """An entry with all done ranges of this token, including `news`, and the current time, which says that a job
        works on it.

        The offset is only for tools that show lag.
        """
        left = subtract(self.ranges, news)
        done = DoneRanges(self.token.id, subtract(self.token.pending, left), wall_ms() // 1_000)
        return OffsetAndMetadata(left[0].start if left else self.token.live, write_done(done, self.place))


async def look_at_rest(access: Access) -> Standing:
    """As `look`, but gives a running member time to commit what it has just read.

    A running member is always behind for a moment. It does not count as lagging once it has committed the offset at
    which the log ended when it was first looked at.
    """
    standing, until_ms = await look(access), now_ms() + REST_MS
    ends: dict[TopicPartition, int] = {}
    while True:
        for tp, each in standing.lagging.items():
            ends.setdefault(tp, each.log_end)
        standing.lagging = {tp: each for tp, each in standing.lagging.items() if (each.committed or 0) < ends[tp]}
        if not standing.lagging or now_ms() >= until_ms:
            return standing
        if not await list_members(access.group_id, **access.settings()):
            return standing
        await sleep_ms(AGAIN_MS)
        standing = await look(access)


async def look(access: Access) -> Standing:
    """Ask the brokers for every partition with a usable token, and for the partitions that lag without one.

    Raises:
        GroupNotFoundError: the cluster has no such group.
        TopicGoneError: a topic does not exist.
        ForeignTokenError: a token must not be obeyed.
        NotHandedOffError: the service reads its ranges itself.
        CatchupGroupError: the second commit log is another group's offsets.
        IsolationLevelError: the service's level is stricter than the level that the caller named.
        GroupAuthorizationError, TopicAuthorizationError: the message says what to grant.
        KafkaTimeoutError: not done in `default_api_timeout_ms`.
        AiogroupError: no broker was reached, or it refused.
    """
    async with from_outside(access.config()) as groups:
        cluster = await _topics(groups, access.topics)
        tps = sorted(tp for topic in access.topics for tp in cluster.partitions_of(topic))
        committed = await _committed(groups, access.group_id, tps)
        if not committed:
            await members_in(groups, access.group_id)  # a group without commits, or no group
        tokens = _tokens(committed, cluster)
        access = access.at(_isolation_level(access, _notes(access, tokens)))
        done = await _committed(groups, access.catchup_group_id, list(tokens)) if tokens else {}
        offsets = {tp: committed[tp].offset if tp in committed else None for tp in tps}
        standing = await _with_bounds(access, offsets, tokens, {tp: each.metadata for tp, each in done.items()})
        standing.topic_ids = {topic: cluster.topics[topic].topic_id for topic in access.topics}
        return standing


def _tokens(
    committed: Mapping[TopicPartition, Committed], cluster: Cluster
) -> dict[TopicPartition, tuple[LogId, Token]]:
    tokens, foreign = {}, {}
    for tp, each in committed.items():
        log_id = LogId(cluster.cluster_id or "", tp.topic, cluster.topics[tp.topic].topic_id, tp.partition)
        found = read_token(each.offset, each.metadata, log_id)
        if found.token is not None:
            tokens[tp] = (log_id, found.token)
        elif found.foreign:
            foreign[tp] = found.foreign
    if foreign:
        raise ForeignTokenError(foreign)
    return tokens


def _notes(access: Access, tokens: Mapping[TopicPartition, tuple[LogId, Token]]) -> dict[TopicPartition, HandOffNote]:
    """The tokens' fields for jobs, if the ranges are left to jobs and the service reads this job's group."""
    notes = {tp: token.handoff for tp, (_, token) in tokens.items() if token.handoff is not None}
    if notes.keys() != tokens.keys():
        raise NotHandedOffError(tokens.keys() - notes.keys())
    mark = second_group_mark(access.catchup_group_id)
    if others := [tp for tp, note in notes.items() if note.second_group != mark]:
        raise CatchupGroupError(access.catchup_group_id, others)
    return notes


def _isolation_level(access: Access, notes: Mapping[TopicPartition, HandOffNote]) -> str:
    strict = [tp for tp, note in notes.items() if note.read_committed]
    named = access.isolation_level
    if strict and named == "read_uncommitted":
        raise IsolationLevelError(strict)
    return named or ("read_committed" if strict else "read_uncommitted")


async def _with_bounds(
    access: Access,
    offsets: Mapping[TopicPartition, int | None],
    tokens: Mapping[TopicPartition, tuple[LogId, Token]],
    done: Mapping[TopicPartition, str],
) -> Standing:
    async with Consumer(**access.settings()) as reader:
        starts = await reader.beginning_offsets(offsets)
        ends = await reader.end_offsets(offsets)
    found = {}
    for tp, (log_id, token) in tokens.items():
        said = read_done(done.get(tp, ""), log_id) or DoneRanges("", ())
        found[tp] = Pending(log_id, token, said.done if said.id == token.id else (), starts[tp], ends[tp])
    others = (Lagging(tp, offset, starts[tp], ends[tp]) for tp, offset in offsets.items() if tp not in tokens)
    lagging = {each.tp: each for each in others if each.lag_count}
    standing = Standing(found, lagging, access.config().isolation_level)
    standing.log_starts = dict(starts)
    return standing


async def _topics(groups: GroupLink, names: Collection[str]) -> Cluster:
    """These topics, each with its id."""

    async def ask() -> Cluster | None:
        cluster = await groups.link.fetch_metadata(names)
        _refuse(cluster.errors)
        return None if cluster.errors else cluster

    return await groups.until_answered(ask)


async def _committed(
    groups: GroupLink, group_id: str, tps: Collection[TopicPartition]
) -> dict[TopicPartition, Committed]:
    found, refused = await groups.committed(group_id, tps)
    _refuse({tp.topic: code for tp, code in refused.items()})
    for code in refused.values():
        check_code(code, group_id, "DESCRIBE")
    return found


def _refuse(topics: Mapping[str, int]) -> None:
    """Raise for topics whose error code is final."""
    for code, error in (
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicGoneError),
    ):
        if those := [name for name, found in topics.items() if found == code]:
            raise error(those)
