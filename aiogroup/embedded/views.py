"""The broker's views of its groups: immutable values, taken at one instant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from aiogroup._core.protocol.consumer_protocol import decode_subscription, read_assignment
from aiogroup.errors import ProtocolError
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from aiogroup.embedded.machine.cluster import Cluster
    from aiogroup.embedded.machine.groups.group import Group
    from aiogroup.embedded.machine.groups.log import Committed
    from aiogroup.embedded.machine.groups.members import Member

__all__ = [
    "ByPartition",
    "CommittedOffset",
    "GroupView",
    "MemberView",
    "committed_of",
    "group_ids_of",
    "lag_of",
    "view_of",
]

T = TypeVar("T")
D = TypeVar("D")

DEAD = "Dead"
"""What Kafka calls a group that it does not know."""


class ByPartition(Mapping[TopicPartition, T]):
    """A value for each partition: `found["orders", 0]`, or by a `TopicPartition`, which equals that tuple."""

    def __init__(self, values: Mapping[TopicPartition, T]) -> None:
        self._values = dict(values)

    def __getitem__(self, partition: tuple[str, int]) -> T:
        return self._values[TopicPartition(*partition)]

    if TYPE_CHECKING:  # the methods of `Mapping`, typed for the keys of `__getitem__`

        @overload
        def get(self, partition: tuple[str, int], /) -> T | None: ...
        @overload
        def get(self, partition: tuple[str, int], default: T | D, /) -> T | D: ...
        def get(self, partition: tuple[str, int], default: Any = None, /) -> Any: ...

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class CommittedOffset(int):
    """A committed offset: an int with the metadata and the leader epoch that were committed with it."""

    def __new__(cls, committed: Committed) -> CommittedOffset:
        made = super().__new__(cls, committed.offset)
        made._metadata, made._leader_epoch = committed.metadata, committed.leader_epoch
        return made

    _metadata: str
    _leader_epoch: int

    @property
    def metadata(self) -> str:
        """The text that was committed with the offset; `""` without one."""
        return self._metadata

    @property
    def leader_epoch(self) -> int:
        """The epoch of the record before the offset; -1 if none was committed."""
        return self._leader_epoch


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member of a group."""

    member_id: str
    name: str | None
    """Its `group.instance.id`; `None`: it has none."""
    client_id: str
    partitions: tuple[TopicPartition, ...]
    """Its partitions, as the leader assigned them last."""
    topics: tuple[str, ...]
    """The topics that it has subscribed to. A pattern is shown as a list of names."""
    silent_ms: int
    """The time since the coordinator last heard of it; 0 while it waits for the coordinator's answer."""
    session_timeout_ms: int
    is_leader: bool

    def __str__(self) -> str:
        name = "" if self.name is None else f" (static, {self.name})"
        share = ", ".join(f"{each.topic}-{each.partition}" for each in self.partitions) or "nothing"
        leads = ", leads" if self.is_leader else ""
        return f"{self.member_id}{name}{leads}: {share}; last heard of {self.silent_ms} ms ago"


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group at one instant."""

    group_id: str
    state: str
    """As Kafka calls it: Empty, PreparingRebalance, CompletingRebalance, Stable; Dead: there is no such group."""
    generation: int
    protocol: str | None
    """The assignor of this generation."""
    members: tuple[MemberView, ...]
    """The members in the order in which they joined."""
    coordinator: int
    """The node that coordinates it; -1: none does, as the node is down."""
    is_loading: bool
    """The coordinator still reads the group's log, and serves no request."""

    def __str__(self) -> str:
        what = f"group {self.group_id}: {self.state}, generation {self.generation}, {len(self.members)} members"
        where = f"coordinated by node {self.coordinator}" if self.coordinator >= 0 else "without a coordinator"
        lines = [f"{what}, {where}{', which loads' if self.is_loading else ''}"]
        return "\n    ".join([*lines, *map(str, self.members)])


def view_of(cluster: Cluster, group_id: str, now_ms: int) -> GroupView:
    """The group as its coordinator sees it now."""
    seat = cluster.coordinators.seat_of(group_id)
    node = cluster.coordinators.node_of(group_id)
    group = None if seat.coordinator is None else seat.coordinator.groups.get(group_id)
    return GroupView(
        group_id,
        DEAD if group is None else group.state.value,
        0 if group is None else group.generation,
        None if group is None else group.protocol,
        () if group is None else tuple(_member(group, each, now_ms) for each in group.members),
        -1 if node is None else node.node_id,
        node is not None and seat.coordinator is None,
    )


def _member(group: Group, member: Member, now_ms: int) -> MemberView:
    waits = member.joining is not None or member.syncing is not None
    return MemberView(
        member.member_id,
        member.instance_id,
        member.client_id,
        _share(member),
        _topics(member, group.protocol),
        0 if waits else now_ms - member.heard_at_ms,
        member.session_timeout_ms,
        group.members.leader == member.member_id,
    )


def _share(member: Member) -> tuple[TopicPartition, ...]:
    try:
        return read_assignment(member.assignment)
    except ProtocolError:
        return ()  # a group of another kind than consumers


def _topics(member: Member, protocol: str | None) -> tuple[str, ...]:
    named = (each.name for each in member.protocols)
    chosen = protocol if protocol is not None else next(named, None)
    try:
        return decode_subscription(member.metadata(chosen)).topics
    except ProtocolError:
        return ()


def group_ids_of(cluster: Cluster) -> tuple[str, ...]:
    """All groups that have members or have committed, in the order of their coordinators."""
    found: dict[str, None] = {}
    for seat in cluster.coordinators:
        found.update(dict.fromkeys(seat.log))
        if seat.coordinator is not None:
            found.update(dict.fromkeys(seat.coordinator.groups))
    return tuple(found)


def committed_of(cluster: Cluster, group_id: str) -> ByPartition[CommittedOffset]:
    """The group's committed offsets, whichever node coordinates it."""
    log = cluster.coordinators.log_of(group_id)
    offsets = {} if log is None else log.offsets
    return ByPartition({TopicPartition(*each): CommittedOffset(value) for each, value in offsets.items()})


def lag_of(cluster: Cluster, group_id: str, now_ms: int) -> ByPartition[int]:
    """How many offsets the group has not committed, for each partition that it has committed and for all partitions of
    its members' topics.
    """
    committed = committed_of(cluster, group_id)
    of_group: dict[TopicPartition, None] = dict.fromkeys(committed)
    for member in view_of(cluster, group_id, now_ms).members:
        of_group.update(dict.fromkeys(member.partitions))
        for name in member.topics:
            topic = cluster.topics.get(name)
            of_group.update({TopicPartition(name, each.index): None for each in (topic.partitions if topic else ())})
    lags: dict[TopicPartition, int] = {}
    for tp in of_group:
        partition = cluster.topics.partition(tp.topic, tp.partition)
        if partition is not None:
            log = partition.log
            begin = max(committed.get(tp, log.start_offset), log.start_offset)
            lags[tp] = max(0, log.last_stable_offset - begin)
    return ByPartition(lags)
