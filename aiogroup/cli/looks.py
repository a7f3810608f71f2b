"""One look at a group: what it has committed, where the logs begin and end, who reads what, what its tokens say."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiogroup._core.cluster import Broker, Cluster
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.constants import EARLIEST, LATEST
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.describe_groups import DescribedGroup
from aiogroup._core.protocol.messages.list_groups import ListedGroup
from aiogroup._core.recovery.lane_starts import fold
from aiogroup._core.recovery.ranges import Ranges, above, count
from aiogroup._core.recovery.token import DoneRanges, Found, LogId, Token, read_done, read_token, second_group_mark
from aiogroup.admin import GroupMember, members_of
from aiogroup.cli.asking import Asking, asked
from aiogroup.cli.connecting import settings_of
from aiogroup.cli.printing import tell
from aiogroup.errors import GroupAuthorizationError, GroupNotFoundError
from aiogroup.structs import TopicPartition

__all__ = ["QUIET", "GroupLook", "PartitionLook", "look_at", "look_once", "sum_of", "sum_of_lags"]

QUIET: Final = frozenset({"Empty", "Dead"})
"""The states in which a group has no members, and takes commits from anybody."""
NOTHING: Final = Found(None, "")
"""What a commit without metadata holds."""


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """One partition. What is `None` is not known: nothing was committed, or the partition's leader did not answer.

    `lag` is what Kafka's own tool calls so: the offsets from the committed one to the log's end. With a token (KIP-333)
    some of these are processed already, `ahead_count`; `left_count` are the others that the log still holds. `done` is
    what jobs have noted in the second commit log; the service takes it into its token with its next commit.
    """

    tp: TopicPartition
    committed: Committed | None = None
    log_start: int | None = None
    log_end: int | None = None
    found: Found = NOTHING
    member: GroupMember | None = None
    done: DoneRanges | None = None

    @property
    def current(self) -> int | None:
        return None if self.committed is None else self.committed.offset

    @property
    def token(self) -> Token | None:
        return self.found.token

    @property
    def pending(self) -> Ranges:
        """What is pending by the token, without what jobs have done."""
        return () if self.token is None else fold(self.token.pending, self.token.id, self.done)

    @property
    def live(self) -> int | None:
        """The offset up to which all is processed but `pending`."""
        return self.current if self.token is None else self.token.live

    @property
    def lag(self) -> int | None:
        """Below 0 where the committed offset lies beyond the end of the log, which was cut off or replaced."""
        return None if self.current is None or self.log_end is None else self.log_end - self.current

    @property
    def ahead_count(self) -> int | None:
        if self.current is None or self.live is None:
            return None
        return self.live - self.current - count(self.pending)

    @property
    def left_count(self) -> int | None:
        if self.log_end is not None and self.log_start == self.log_end:
            return 0
        if self.live is None or self.log_end is None:
            return None
        log_start = self.log_start or 0
        return max(0, self.log_end - max(self.live, log_start)) + count(above(self.pending, log_start))


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group. `members` is empty, and `members_count` is `None`, where it is not one of the classic protocol.

    `failures` says of what is not known why; it is empty when all brokers have answered.
    """

    group_id: str
    state: str | None
    protocol: str | None
    protocol_type: str | None
    assignor: str | None
    members: tuple[GroupMember, ...]
    members_count: int | None
    coordinator: Broker | None
    partitions: tuple[PartitionLook, ...]
    cluster: Cluster
    failures: tuple[str, ...] = ()

    @property
    def idle(self) -> tuple[GroupMember, ...]:
        """The members that read no partition."""
        return tuple(each for each in self.members if not each.partitions)


def sum_of(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known, `None` if nothing is."""
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def sum_of_lags(lags: Iterable[int | None]) -> int | None:
    """The sum of what is known. A lag below 0 is none, and does not hide that of other partitions."""
    return sum_of(None if lag is None else max(0, lag) for lag in lags)


async def look_once(given: argparse.Namespace) -> GroupLook:
    """Look at the group that was named. What is not known is reported beside what is printed of it.

    Raises:
        AiogroupError: as `look_at`.
    """
    async with asked(settings_of(given)) as asking:
        looking = look_at(asking, given.group, catchup_group=given.catchup_group)
        look = await asking.within(f"{given.what} {given.group}", looking)
    for failure in look.failures:
        tell(failure)
    return look


async def look_at(
    asking: Asking,
    group_id: str,
    *,
    must_exist: bool = True,
    also: Collection[TopicPartition] = (),
    catchup_group: str | None = None,
) -> GroupLook:
    """Look at the partitions that the group has committed or reads, and those in `also`. Jobs note what they have done
    in the offsets of `catchup_group` (KIP-333).

    Raises:
        GroupNotFoundError: there is no such group, and it must exist.
        AiogroupError: no broker was reached, or the coordinator refused.
    """
    group = await asking.described(group_id)
    committed, why = await asking.committed(group_id)
    coordinator = await asking.coordinator(group_id)
    listed = await asking.listed_at(coordinator, group_id) if isinstance(group, str) else None
    if isinstance(group, str) and listed is None and not committed and must_exist:
        raise GroupNotFoundError(group)
    members = () if isinstance(group, str) else members_of(group)
    owners = {tp: each for each in members for tp in each.partitions}
    tps = sorted({*committed, *why, *owners, *also})
    cluster = await asking.cluster({tp.topic for tp in tps})
    there = [tp for tp in tps if cluster.partition(tp) is not None]
    starts, _ = await asking.offsets(dict.fromkeys(there, EARLIEST))
    ends, why_no_end = await asking.offsets(dict.fromkeys(there, LATEST))
    why |= why_no_end | {tp: _why_not_there(tp, cluster) for tp in tps if tp not in there}
    found = {tp: _found(tp, committed.get(tp), cluster) for tp in tps}
    done, why_not_done = await _done(asking, catchup_group or f"{group_id}.catchup", found, cluster)
    why |= why_not_done
    return GroupLook(
        group_id,
        **(_listed_words(listed) if isinstance(group, str) else _words(group)),
        members=members,
        members_count=None if isinstance(group, str) else len(members),
        coordinator=cluster.brokers.get(coordinator),
        partitions=tuple(
            PartitionLook(
                tp,
                committed.get(tp),
                starts.get(tp),
                ends.get(tp),
                found[tp],
                owners.get(tp),
                done.get(tp),
            )
            for tp in tps
        ),
        cluster=cluster,
        failures=tuple(_failures(why)),
    )


def _listed_words(group: ListedGroup | None) -> dict[str, Any]:
    """Of a group whose protocol is not spoken here (KIP-848), or of one that is not there."""
    if group is None:
        return {"state": None, "protocol": None, "protocol_type": None, "assignor": None}
    return {
        "state": group.group_state or None,
        "protocol": group.group_type or None,
        "protocol_type": group.protocol_type or None,
        "assignor": None,
    }


def _words(group: DescribedGroup) -> dict[str, Any]:
    is_consumers = group.protocol_type == "consumer"
    return {
        "state": group.group_state,
        "protocol": "classic",
        "protocol_type": group.protocol_type or None,
        "assignor": (group.protocol_data or None) if is_consumers else None,
    }


async def _done(
    asking: Asking, catchup_group: str, found: Mapping[TopicPartition, Found], cluster: Cluster
) -> tuple[dict[TopicPartition, DoneRanges], dict[TopicPartition, str]]:
    """What jobs have done of ranges that are left to them, and why that is not known."""
    tokens = ((tp, each.token) for tp, each in found.items() if each.token is not None)
    groups = {tp: token.handoff.second_group for tp, token in tokens if token.handoff is not None}
    if not groups:
        return {}, {}
    mark = second_group_mark(catchup_group)
    elsewhere = f"its ranges are left to jobs of another group than {catchup_group!r}: name it by --catchup-group"
    why = {tp: elsewhere for tp, of in groups.items() if of != mark}
    said: Mapping[TopicPartition, Committed] = {}
    if len(why) < len(groups):
        try:
            said, _ = await asking.committed(catchup_group)
        except GroupAuthorizationError as error:
            why |= {tp: f"what jobs have done is not known: {error}" for tp in groups if tp not in why}
    done = {tp: read_done(said[tp].metadata, _log_id(tp, cluster)) for tp in groups if tp in said}
    return {tp: each for tp, each in done.items() if each is not None}, why


def _log_id(tp: TopicPartition, cluster: Cluster) -> LogId:
    return LogId(cluster.cluster_id or "", tp.topic, cluster.topics[tp.topic].topic_id, tp.partition)


def _found(tp: TopicPartition, committed: Committed | None, cluster: Cluster) -> Found:
    if committed is None or tp.topic not in cluster.topics:
        return NOTHING
    return read_token(committed.offset, committed.metadata, _log_id(tp, cluster))


def _why_not_there(tp: TopicPartition, cluster: Cluster) -> str:
    code = cluster.errors.get(tp.topic)
    return "there is no such partition" if code is None else f"{lookup(code).name}: {lookup(code).message}"


def _failures(why: Mapping[TopicPartition, str]) -> Iterator[str]:
    for tp, reason in sorted(why.items()):
        yield f"{tp.topic}-{tp.partition}: {reason}"
