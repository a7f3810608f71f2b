"""The sticky division among members that subscribe to different topics (GeneralAssignmentBuilder)."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from aiogroup.assignors.order import utf16
from aiogroup.assignors.racks import NOWHERE
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aiogroup.assignors.assignor import Racks
    from aiogroup.assignors.previous import Claims


class Loads:
    """The number of partitions of each member, and the first of the least loaded members among several kinds.

    Members of one kind may get the same partitions, so that one heap serves them all: the search for the least loaded
    subscriber looks only at kinds, and a change of one load changes only one heap.
    """

    def __init__(self, kinds: Sequence[int]) -> None:
        self.of = [0] * len(kinds)
        self._kinds = kinds
        self._heaps: list[list[int]] = [[] for _ in range(max(kinds, default=-1) + 1)]
        for member, kind in enumerate(kinds):
            self._heaps[kind].append(member)
        self._least = [heap[0] for heap in self._heaps]

    def add(self, member: int, count: int) -> None:
        loads, width = self.of, len(self.of)
        loads[member] += count
        kind = self._kinds[member]
        heap = self._heaps[kind]
        heappush(heap, loads[member] * width + member)
        while loads[heap[0] % width] != heap[0] // width:
            heappop(heap)  # an entry with a former load
        self._least[kind] = heap[0]

    def least(self, kinds: Iterable[int]) -> int:
        return min(map(self._least.__getitem__, kinds)) % len(self.of)


class Moves:
    """The partitions that were moved between two members while loads were evened out.

    Suppose a partition is to move from one member to another, and a partition of the same topic was moved the opposite
    way before. Then both should go back to where they came from. Of several such partitions the first choice is one
    that its new holder also held `before`, and the last choice one that its present holder held.
    """

    def __init__(self, before: Mapping[TopicPartition, int]) -> None:
        self._before = before
        self._ways: dict[TopicPartition, tuple[int, int]] = {}
        self._by_way: dict[tuple[str, int, int], set[TopicPartition]] = defaultdict(set)

    def moved_against(self, tp: TopicPartition, source: int, target: int) -> TopicPartition | None:
        source = self._ways.get(tp, (source, target))[0]
        against = self._by_way.get((tp.topic, target, source))
        if not against:
            return None
        before = self._before.get
        return min(against, key=lambda other: (before(other) != target, before(other) == source, other))

    def note(self, tp: TopicPartition, source: int, target: int) -> None:
        if tp in self._ways:
            source, middle = self._ways.pop(tp)
            self._by_way[tp.topic, source, middle].discard(tp)
        if source != target:
            self._ways[tp] = source, target
            self._by_way[tp.topic, source, target].add(tp)

    def home(self, tp: TopicPartition) -> int | None:
        return self._ways[tp][0] if tp in self._ways else None


def divide(
    subscribed: Mapping[str, frozenset[str]],
    claims: Claims,
    partitions: Mapping[str, int],
    member_racks: Mapping[str, str],
    racks: Racks,
) -> dict[str, list[TopicPartition]]:
    """Every member's partitions."""
    return _Division(subscribed, claims, partitions, member_racks, racks).result()


class _Division:
    """Members are numbers here, in the order of their ids."""

    def __init__(
        self,
        subscribed: Mapping[str, frozenset[str]],
        claims: Claims,
        partitions: Mapping[str, int],
        member_racks: Mapping[str, str],
        racks: Racks,
    ) -> None:
        self._ids = sorted(subscribed, key=utf16)
        numbers = {member: number for number, member in enumerate(self._ids)}
        self._topics = [subscribed[member] for member in self._ids]
        self._racks = racks
        kinds: dict[tuple[frozenset[str], str | None], int] = {}
        of_member = [
            kinds.setdefault((topics, member_racks.get(member)), len(kinds))
            for member, topics in zip(self._ids, self._topics, strict=True)
        ]
        self._rack_of_kind = [rack for _, rack in kinds]
        self._kinds: dict[str, list[int]] = {topic: [] for topic in partitions}
        for (topics, _), kind in kinds.items():
            for topic in topics & partitions.keys():
                self._kinds[topic].append(kind)
        sizes = [0] * len(kinds)
        for kind in of_member:
            sizes[kind] += 1
        subscribers = {topic: sum(map(sizes.__getitem__, kinds)) for topic, kinds in self._kinds.items()}
        self._all = [
            TopicPartition(topic, number)
            for topic in sorted(partitions, key=lambda topic: (subscribers[topic], topic))
            for number in range(partitions[topic])
        ]
        self._loads = Loads(of_member)
        self._owner: dict[TopicPartition, int] = {}
        self._former = {tp: numbers[member] for tp, member in claims.former.items()}
        before = {tp: numbers[member] for tp, member in claims.owner.items()}
        self._moves = Moves(before)
        self._all_kept = self._keep(before, of_member)

    def _keep(self, owners: Mapping[TopicPartition, int], kinds: Sequence[int]) -> bool:
        """Let members keep the partitions they own, as far as they may; whether all may be kept."""
        kept = [0] * len(kinds)
        for tp, member in owners.items():
            rack = self._rack_of_kind[kinds[member]]
            if tp.topic in self._topics[member] and (rack is None or rack in self._racks.get(tp, NOWHERE)):
                self._owner[tp] = member
                kept[member] += 1
        for member, count in enumerate(kept):
            self._loads.add(member, count)
        return len(self._owner) == len(owners)

    def result(self) -> dict[str, list[TopicPartition]]:
        rest = [tp for tp in self._all if tp not in self._owner]
        left = self._give_nearby(rest) if any(self._rack_of_kind) else rest
        for tp in left:
            self._give(tp, self._kinds[tp.topic])
        if self._all_kept:  # moving only partitions that had no owner may be enough to even the loads out
            self._even_out(rest)
        self._even_out(self._all)
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in self._ids}
        for tp in sorted(self._owner):
            assignment[self._ids[self._owner[tp]]].append(tp)
        return assignment

    def _give(self, tp: TopicPartition, kinds: Iterable[int]) -> None:
        member = self._loads.least(kinds)
        self._owner[tp] = member
        self._loads.add(member, 1)

    def _give_nearby(self, rest: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Give partitions to subscribers in a rack of their replicas; a member without a rack is near all partitions.

        Returns:
            The partitions without such a subscriber.
        """
        near: dict[tuple[str, frozenset[str]], list[int]] = {}
        left = []
        for tp in rest:
            racks = self._racks.get(tp, NOWHERE)
            kinds = near.get((tp.topic, racks))
            if kinds is None:
                kinds = [k for k in self._kinds[tp.topic] if (rack := self._rack_of_kind[k]) is None or rack in racks]
                near[tp.topic, racks] = kinds
            if kinds:
                self._give(tp, kinds)
            else:
                left.append(tp)
        return left

    def _even_out(self, tps: Sequence[TopicPartition]) -> None:
        """Move partitions one by one to members that have at least two fewer, until none can be moved.

        Every move makes the sum of the squares of all loads smaller, so this ends.
        """
        loads, owner = self._loads.of, self._owner
        is_even = False
        while not is_even:
            is_even = True
            low = min(loads)
            for tp in tps:
                member = owner[tp]
                if loads[member] <= low + 1:
                    continue
                target = self._former.get(tp)
                if target is None or loads[member] <= loads[target] + 1:
                    target = self._loads.least(self._kinds[tp.topic])
                if loads[member] > loads[target] + 1:
                    self._move(tp, member, target)
                    is_even = False
                    low = min(loads)

    def _move(self, tp: TopicPartition, member: int, target: int) -> None:
        other = self._moves.moved_against(tp, member, target)
        if other is None:
            self._put(tp, target)
        else:  # both partitions go back to where they came from: the loads change as by the move asked for
            home = self._moves.home(tp)
            self._put(other, target)
            if home is not None:
                self._put(tp, home)

    def _put(self, tp: TopicPartition, target: int) -> None:
        member = self._owner[tp]
        self._moves.note(tp, member, target)
        self._owner[tp] = target
        self._loads.add(member, -1)
        self._loads.add(target, 1)
