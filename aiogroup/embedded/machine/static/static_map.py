"""The topic `static_member_map`: a group's names, for its next coordinator."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiogroup.embedded.machine.logs.batches import Record, build, records_of

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Partition, Topics
    from aiogroup.embedded.machine.timers import Timers

__all__ = ["DRAFT_FEATURE", "DRAFT_VERSION", "MappedGroup", "MappedName", "StaticMap"]

DRAFT_FEATURE = "static.membership.draft"
"""The feature that ApiVersions lists."""
DRAFT_VERSION = 41
"""The version of the KIP's page."""
TOPIC = "static_member_map"


@dataclass(frozen=True, slots=True)
class MappedName:
    """The map's entry for one name."""

    member_id: str
    registration_timeout_ms: int
    expansion_timeout_ms: int


@dataclass(frozen=True, slots=True)
class MappedGroup:
    """One value of the topic: the complete map of a group in a stable state."""

    generation: int
    leader: str
    """A member id: the leader may be nameless."""
    names: dict[str, MappedName]

    def encoded(self) -> bytes:
        members = {
            name: {
                "id": each.member_id,
                "registration_timeout_ms": each.registration_timeout_ms,
                "expansion_timeout_ms": each.expansion_timeout_ms,
            }
            for name, each in self.names.items()
        }
        value = {"version": DRAFT_VERSION, "generation": self.generation, "leader": self.leader, "members": members}
        return json.dumps(value).encode()

    @classmethod
    def decoded(cls, value: bytes) -> MappedGroup:
        read = json.loads(value)
        names = {
            name: MappedName(each["id"], each["registration_timeout_ms"], each["expansion_timeout_ms"])
            for name, each in read["members"].items()
        }
        return cls(read["generation"], read["leader"], names)


class StaticMap:
    """Writes and reads the topic. It is compacted, and has one partition for each coordinator partition.

    Args:
        topics: the cluster's topics.
        timers: the source of the time.
        partition_of: the coordinator partition of a group.
        partitions_count: how many coordinator partitions there are.
        replication_factor: of the topic.
    """

    def __init__(
        self,
        topics: Topics,
        timers: Timers,
        partition_of: Callable[[str], int],
        partitions_count: int,
        replication_factor: int,
    ) -> None:
        self._topics = topics
        self._timers = timers
        self._partition_of = partition_of
        self._partitions_count = partitions_count
        self._replication_factor = replication_factor
        self._make()

    def _make(self) -> None:
        self._topics.create(
            TOPIC,
            self._partitions_count,
            self._timers.now_ms,
            replication_factor=self._replication_factor,
            config={"cleanup.policy": "compact"},
            is_internal=True,
        )

    def write(self, group_id: str, mapped: MappedGroup) -> None:
        self._append(group_id, mapped.encoded())

    def erase(self, group_id: str) -> None:
        """Append a tombstone: the group has no static members any more."""
        self._append(group_id, None)

    def read(self, group_id: str) -> MappedGroup | None:
        """The latest value of the group; `None`: it has none, or a tombstone."""
        found, key = None, group_id.encode()
        if self._topics.get(TOPIC) is not None:
            for batch in self._partition(group_id).log.batches():
                for record in records_of(batch):
                    if record.key == key:
                        found = record.value
        return None if found is None else MappedGroup.decoded(found)

    def _append(self, group_id: str, value: bytes | None) -> None:
        """Append without the checks for producers: `max_bytes` must not stop a group."""
        if self._topics.get(TOPIC) is None:
            self._make()  # somebody has deleted it
        partition, now_ms = self._partition(group_id), self._timers.now_ms
        batch = build([Record(0, now_ms, group_id.encode(), value)])
        partition.log.append(batch, partition.leader_epoch)
        partition.appended(len(batch), now_ms)

    def _partition(self, group_id: str) -> Partition:
        partition = self._topics.partition(TOPIC, self._partition_of(group_id))
        assert partition is not None
        return partition
