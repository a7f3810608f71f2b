"""A cooperative assignor of one's own, as small as it can be: for groups of one topic."""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from aiogroup.assignors import Assignor


class SimpleCooperative(Assignor):
    name = "simple-cooperative"
    is_cooperative = True

    def assign(self, members, partitions, racks):
        everything = [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
        owner = {tp: member for member in sorted(members) for tp in members[member].owned}
        share, extra = divmod(len(everything), len(members))
        goal = {member: [] for member in sorted(members)}
        free = []
        quota = {member: share + (rank < extra) for rank, member in enumerate(goal)}
        for tp in everything:
            member = owner.get(tp)
            if member is not None and tp.topic in members[member].topics and len(goal[member]) < quota[member]:
                goal[member].append(tp)
            else:
                free.append(tp)
        for tp in free:
            member = min(goal, key=lambda each: len(goal[each]) - quota[each])
            goal[member].append(tp)
        return {member: [tp for tp in tps if owner.get(tp, member) == member] for member, tps in goal.items()}
