"""Java's RangeAssignor (without racks)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokafka.structs import TopicPartition

from aiogroup.assignors.assignor import Assignor, MemberSubscription, Racks
from aiogroup.assignors.order import in_order

if TYPE_CHECKING:
    from collections.abc import Mapping


class RangeAssignor(Assignor):
    """Gives each member a run of every topic's partitions, the first members one more.

    Topics with as many partitions and the same subscribers are divided alike, so that records of one key in
    two topics meet at one member.
    """

    name: Final = "range"

    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in members}
        subscribers: dict[str, list[str]] = {}
        for member in in_order(members):
            for topic in dict.fromkeys(members[member].topics):
                subscribers.setdefault(topic, []).append(member)
        for topic in sorted(subscribers.keys() & partitions.keys()):
            share, extra = divmod(partitions[topic], len(subscribers[topic]))
            start = 0
            for rank, member in enumerate(subscribers[topic]):
                end = start + share + (rank < extra)
                assignment[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return assignment
