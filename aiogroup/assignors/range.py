"""Java's RangeAssignor."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from aiogroup.assignors.assignor import Assignor, MemberSubscription, Racks, topic_sets
from aiogroup.assignors.order import in_order
from aiogroup.assignors.racks import NOWHERE, member_racks, racks_matter
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class RangeAssignor(Assignor):
    """Gives each member a run of every topic's partitions, the first members one partition more.

    Topics with the same number of partitions and the same subscribers are divided in the same way, so that records of
    one key in two topics meet at one member. Where racks matter (KIP-881), members first get partitions that are near
    to them. They get as many as without racks, but not in one run.
    """

    name: Final = "range"

    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in members}
        subscribers = _subscribers(members)
        topics = [
            _Topic(topic, subscribers[topic], partitions[topic])
            for topic in sorted(subscribers.keys() & partitions.keys())
        ]
        _give_nearby(topics, members, racks)
        for each in topics:
            each.give_rest(assignment)
        return assignment


def _subscribers(members: Mapping[str, MemberSubscription]) -> dict[str, tuple[str, ...]]:
    """The members that subscribed to each topic, in order; topics with the same members share one tuple."""
    subscribed = topic_sets(members)
    kinds: dict[str, list[int]] = defaultdict(list)
    numbers = {topics: number for number, topics in enumerate(set(subscribed.values()))}
    for topics, number in numbers.items():
        for topic in topics:
            kinds[topic].append(number)
    ordered = [(member, numbers[subscribed[member]]) for member in in_order(members)]
    known: dict[tuple[int, ...], tuple[str, ...]] = {}
    for those in map(tuple, kinds.values()):
        if those not in known:
            wanted = frozenset(those)
            known[those] = tuple(member for member, kind in ordered if kind in wanted)
    return {topic: known[tuple(those)] for topic, those in kinds.items()}


class _Topic:
    def __init__(self, name: str, members: tuple[str, ...], count: int) -> None:
        self.name = name
        self.members = members
        self.count = count
        self.owner: dict[int, str] = {}
        self._quota, self._extra = divmod(count, len(members))
        self._has: dict[str, int] = defaultdict(int)

    def room(self, member: str) -> int:
        return max(0, self._quota + (self._extra > 0) - self._has[member])

    def give(self, member: str, number: int) -> None:
        self.owner[number] = member
        self._has[member] += 1
        self._extra -= self._has[member] > self._quota

    def give_nearby(self, rack_of: Mapping[str, str], racks: Racks) -> None:
        near: dict[str, deque[int]] = defaultdict(deque)
        for number in range(self.count):
            for rack in racks.get(TopicPartition(self.name, number), NOWHERE):
                near[rack].append(number)
        everything = deque(range(self.count))
        self._give_from(lambda member: near[rack_of[member]] if member in rack_of else everything)

    def give_rest(self, assignment: Mapping[str, list[TopicPartition]]) -> None:
        rest = deque(range(self.count))
        self._give_from(lambda _member: rest)
        for number in range(self.count):
            assignment[self.owner[number]].append(TopicPartition(self.name, number))

    def _give_from(self, queue_of: Callable[[str], deque[int]]) -> None:
        for member in self.members:
            queue, room = queue_of(member), self.room(member)
            while room and queue:
                number = queue.popleft()
                if number not in self.owner:
                    self.give(member, number)
                    room -= 1
            if len(self.owner) == self.count:
                return


def _give_nearby(topics: Iterable[_Topic], members: Mapping[str, MemberSubscription], racks: Racks) -> None:
    """Give members partitions that are near to them, as far as their quotas allow.

    Topics that are divided in the same way stay so: a member gets a partition number that is near to it in all of them.
    """
    rack_of = member_racks(members)
    if not rack_of or not racks:
        return
    racks_of: dict[tuple[str, ...], frozenset[str]] = {}
    co_partitioned: dict[tuple[tuple[str, ...], int], list[_Topic]] = defaultdict(list)
    for each in topics:
        if each.members not in racks_of:
            racks_of[each.members] = frozenset(rack_of[member] for member in each.members if member in rack_of)
        if racks_of[each.members]:
            co_partitioned[each.members, each.count].append(each)
    matter = {
        each.name
        for group in co_partitioned.values()
        for each in group
        if racks_matter(racks_of[each.members], {each.name: each.count}, racks)
    }
    if not matter:
        return
    for group in co_partitioned.values():
        if len(group) > 1:
            _give_co_partitioned(group, rack_of, racks)
        elif group[0].name in matter:
            group[0].give_nearby(rack_of, racks)


def _give_co_partitioned(topics: Sequence[_Topic], rack_of: Mapping[str, str], racks: Racks) -> None:
    first = topics[0]  # the others give the same numbers to the same members
    queues: dict[str | None, deque[int]] = defaultdict(deque)
    for place, member in enumerate(first.members):
        queues[rack_of.get(member)].append(place)
    for number in range(first.count):
        near = [racks.get(TopicPartition(each.name, number), NOWHERE) for each in topics]
        places = []
        for rack in (None, *frozenset.intersection(*near)):
            queue = queues[rack]
            while queue and not first.room(first.members[queue[0]]):
                queue.popleft()
            places += [queue[0]] if queue else []
        if places:
            for each in topics:
                each.give(first.members[min(places)], number)
