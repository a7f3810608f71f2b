"""Java's RoundRobinAssignor."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Final

from aiogroup.assignors.assignor import Assignor, MemberSubscription, Racks, topic_sets
from aiogroup.assignors.order import in_order
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping


class RoundRobinAssignor(Assignor):
    """Deals the partitions of all topics to the members in turn, and skips members not subscribed to the topic."""

    name: Final = "roundrobin"

    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in members}
        subscribed = topic_sets(members)
        turn = cycle(in_order(members))
        for topic in sorted(frozenset().union(*set(subscribed.values())) & partitions.keys()):
            for number in range(partitions[topic]):
                member = next(turn)
                while topic not in subscribed[member]:  # it ends, as at least one member subscribed to the topic
                    member = next(turn)
                assignment[member].append(TopicPartition(topic, number))
        return assignment
