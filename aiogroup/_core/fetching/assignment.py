"""The partitions that are ours now, and the counter that distinguishes one ownership of a partition from the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar
from uuid import UUID

from aiogroup._core.changes import Bell, Change, Changes
from aiogroup._core.fetching.blocks import Blocks
from aiogroup._core.fetching.lane import Bar, Lane, LaneTally
from aiogroup._core.fetching.partition import Partition
from aiogroup._core.offsets.commit_errors import gone_error
from aiogroup._core.offsets.commit_order import Commit
from aiogroup._core.offsets.commit_plan import CommitEntry, Committed
from aiogroup.config import ResetPolicy
from aiogroup.structs import TopicPartition

__all__ = ["Assignment", "LaneTable"]

FORMER_COUNT: Final = 20_000
"""How many partitions that were given up are remembered: with a pattern over topics that live for a minute they would
become ever more.
"""
L_co = TypeVar("L_co", bound=Lane, covariant=True)


class LaneTable(Generic[L_co]):
    """Lanes by the name of their partition. `changes_count` rises with every change: whoever keeps a plan for all lanes
    compares it. `changes` hears of what happens to the table and its lanes.
    """

    def __init__(self, changes: Changes[Bell] | None = None) -> None:
        self._lanes: dict[TopicPartition, L_co] = {}
        self.changes_count = 0
        self.tally = LaneTally(changes)

    def __getitem__(self, tp: TopicPartition) -> L_co:
        return self._lanes[tp]

    def __contains__(self, tp: object) -> bool:
        return tp in self._lanes

    def __iter__(self) -> Iterator[L_co]:
        return iter(self._lanes.values())

    def __len__(self) -> int:
        return len(self._lanes)

    def get(self, tp: TopicPartition) -> L_co | None:
        return self._lanes.get(tp)

    @property
    def names(self) -> frozenset[TopicPartition]:
        return frozenset(self._lanes)

    @property
    def buffered_bytes(self) -> int:
        return self.tally.fetched_bytes + self.tally.decoded_bytes

    def put(self, lanes: Iterable[L_co]) -> None:
        """Add lanes: from now on the planner considers them."""
        added = {lane.tp: lane for lane in lanes}
        self._lanes |= added
        self.tally.touch(added)
        for lane in added.values():
            lane.count_in(self.tally)
        self._on_changed()

    def remove(self, tps: Iterable[TopicPartition]) -> list[L_co]:
        """Remove lanes, and close their ledgers."""
        removed = [self._lanes.pop(tp) for tp in tuple(tps) if tp in self._lanes]
        for lane in removed:
            lane.close()
        self._on_changed()
        return removed

    def _on_changed(self) -> None:
        self.changes_count += 1
        self.tally.changes.tell(Change.ASSIGNED)

    def limit(self, enough_count: int) -> None:
        """For a merge: no more is fetched of a lane that has this many buffered records. 0: there is no merge."""
        self.tally.enough_count = enough_count
        self.tally.needed, self.tally.needs_records = frozenset(), False
        self.tally.touch(self._lanes)
        self.tally.changes.tell(Change.FETCHABLE)

    def need(self, tps: frozenset[TopicPartition]) -> None:
        """Requests wait for records of these partitions alone."""
        tally = self.tally
        if tally.needed == tps:
            return
        tally.touch(tally.needed | tps)
        tally.needed, tally.needs_records = tps, bool(tps)
        tally.changes.tell(Change.FETCHABLE)

    def need_any(self, *, when: bool) -> None:
        """A merge waits for records of any partition that has none, as long as `when` is True."""
        self.tally.needs_records = when


class Assignment(LaneTable[Partition]):
    """The partitions that are ours, each with the number of its ownership, and what is known of former ownerships."""

    def __init__(self, changes: Changes[Bell] | None = None) -> None:
        super().__init__(changes)
        self._ownerships_count = 0
        self._former: dict[TopicPartition, tuple[UUID | None, int, int]] = {}
        self.failed_commit: set[TopicPartition] = set()
        """Partitions that went with records whose commit the application has not seen fail yet."""
        self.blocks = Blocks()

    def put(self, lanes: Iterable[Partition]) -> None:
        added = tuple(lanes)
        for partition in added:
            partition.pause(Bar.SUSPENDED, when=self.blocks.cover(partition.tp))
        super().put(added)

    def note_lost(self, tps: Iterable[TopicPartition]) -> None:
        """What was delivered of these partitions is not committed: the application's next commit raises it."""
        self.failed_commit.update(tps)

    def suspend(self) -> None:
        """The application entered or left a block that pauses: pause what the blocks cover now, and nothing else."""
        for partition in self:
            partition.pause(Bar.SUSPENDED, when=self.blocks.cover(partition.tp))
        self.tally.changes.tell(Change.HAND)  # a block sets aside what is in hand

    def was_owned(self, tp: TopicPartition) -> bool:
        """Whether the partition was ours, among the latest `FORMER_COUNT` that were given up, and is not now."""
        return tp in self._former and tp not in self._lanes

    def add(self, policies: Mapping[TopicPartition, ResetPolicy]) -> list[Partition]:
        """Add partitions, each with the policy for when nothing is committed for it."""
        added = self.make(policies)
        self.put(added)
        return added

    def make(self, policies: Mapping[TopicPartition, ResetPolicy]) -> list[Partition]:
        """The first of two steps of `add`: their positions can be looked up, but they are not ours yet.

        Until they are added by `put`, none of their records is fetched or delivered, and none of their errors is
        raised: each keeps a tally of its own. In a cooperative rebalance they are added after others were given
        up, or never if the generation ends first.
        """
        made = []
        for tp, policy in policies.items():
            self._ownerships_count += 1
            made.append(Partition(tp, self._ownerships_count, policy))
        return made

    def remove(self, tps: Iterable[TopicPartition]) -> list[Partition]:
        removed = super().remove(tps)
        for partition in removed:
            self._former.pop(partition.tp, None)  # the one given up last is forgotten last
            position = partition.ledger.position
            self._former[partition.tp] = partition.topic_id, position, max(partition.former_end, position)
        for tp in tuple(itertools.islice(self._former, max(0, len(self._former) - FORMER_COUNT))):
            del self._former[tp]
        return removed

    def name_topic(self, partition: Partition, topic_id: UUID) -> tuple[UUID, int] | None:
        """Note the topic id that the metadata gives for the partition. If we read a former topic of that name: its id,
        and up to where.
        """
        partition.topic_id = topic_id
        former_id, position, former_end = self._former.get(partition.tp, (None, 0, 0))
        if former_id is None or former_id == topic_id:
            return None
        partition.former_end = former_end
        return former_id, position

    def name_topics(self, commit: Commit) -> None:
        """Note, for a commit that begins now, the ids of the topics that its offsets belong to."""
        for tp, entry in commit.pending.items():
            partition = self._lanes.get(tp)
            if partition is None or partition.ownership != entry.ownership:
                continue
            if partition.topic_id is not None:
                commit.topic_ids[tp] = partition.topic_id
            if partition.is_of_former_log(entry.offset):
                commit.gone.add(tp)

    def start_over(self, partition: Partition, topic_id: UUID) -> None:
        """The topic was deleted and recreated. Its log is another one, so this is another ownership."""
        self._ownerships_count += 1
        *_, former_end = self._former.get(partition.tp, (None, 0, 0))
        partition.former_end = max(partition.former_end, former_end)
        partition.start_over(self._ownerships_count, topic_id)

    def refuse_former(self, entries: Mapping[TopicPartition, CommitEntry]) -> None:
        """Raises `CommitFailedError` for offsets that can only be of records that are gone."""
        former = [tp for tp, each in entries.items() if tp in self and self[tp].is_of_former_log(each.offset)]
        if former:
            raise gone_error(former)

    def is_owned_since(self, tp: TopicPartition, ownership: int) -> bool:
        """Whether the partition has been ours without interruption since the ownership with this number began."""
        partition = self._lanes.get(tp)
        return partition is not None and partition.ownership == ownership

    def note_durable(self, tp: TopicPartition, entry: CommitEntry) -> None:
        """The offset is committed. The caller has settled the delivery."""
        partition = self._lanes.get(tp)
        if partition is not None and partition.ownership == entry.ownership:
            partition.committed = Committed(entry.offset, entry.metadata, entry.leader_epoch)
            partition.lanes.note_durable(entry)

    def shorter(self, tp: TopicPartition, entry: CommitEntry) -> CommitEntry | None:
        """The same commit with a shorter token (KIP-333), after the coordinator refused its length; `None`: it has
        none.
        """
        partition = self._lanes.get(tp)
        return None if partition is None else partition.lanes.shorter(entry)
