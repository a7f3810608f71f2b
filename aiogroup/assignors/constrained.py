"""The sticky division among members that all subscribe to the same topics (ConstrainedAssignmentBuilder)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from operator import itemgetter
from typing import TYPE_CHECKING

from aiogroup.assignors.order import hash_order, utf16
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiogroup.assignors.assignor import Racks
    from aiogroup.assignors.previous import Claims


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
    """Every member gets `least` partitions, and `extra` of the members get one more.

    `short` are the members that have fewer than `least`, `ready` those with `least` that may still get one more.
    """

    def __init__(
        self,
        subscribed: Mapping[str, frozenset[str]],
        claims: Claims,
        partitions: Mapping[str, int],
        member_racks: Mapping[str, str],
        racks: Racks,
    ) -> None:
        self._members = sorted(subscribed, key=utf16)
        self._claims = claims
        self._member_racks = member_racks
        self._racks = racks
        self._all = [TopicPartition(topic, n) for topic in sorted(partitions) for n in range(partitions[topic])]
        self._least, self._extra = divmod(len(self._all), len(subscribed) or 1)
        self._given: dict[str, list[TopicPartition]] = {member: [] for member in subscribed}
        self._short: list[str] = []
        self._ready: deque[str] = deque()

    def result(self) -> dict[str, list[TopicPartition]]:
        self._keep()
        kept = {tp for tps in self._given.values() for tp in tps}
        rest = [tp for tp in self._all if tp not in kept]
        if self._member_racks:
            nearby = defaultdict(int, _counts(self._member_racks.values()))
            rest.sort(key=lambda tp: sum(nearby[rack] for rack in self._racks.get(tp, ())))
            rest = self._give_nearby(rest)
        self._give(rest)
        return {member: sorted(tps) for member, tps in self._given.items()}

    def _keep(self) -> None:
        """Each member keeps the partitions it owns, up to its quota; the first ones in the order may keep one more."""
        owned: dict[str, list[TopicPartition]] = defaultdict(list)
        for tp, member in self._claims.owner.items():
            rack = self._member_racks.get(member)
            if rack is None or rack in self._racks.get(tp, ()):
                owned[member].append(tp)
        ready = []
        for member in hash_order(self._members):
            mine = sorted(owned[member], key=itemgetter(1, 0))
            if len(mine) < self._least:
                self._short.append(member)
            elif len(mine) > self._least and self._extra:
                self._extra -= 1
                mine = mine[: self._least + 1]
            else:
                mine = mine[: self._least]
                ready.append(member)
            self._given[member] += mine
        self._short.sort(key=utf16)
        if self._extra:
            self._ready.extend(sorted(ready, key=utf16))

    def _give_nearby(self, rest: list[TopicPartition]) -> list[TopicPartition]:
        """Give partitions in turn to members with a replica in their rack.

        Returns:
            The partitions for which no member in such a rack may have more.
        """
        short, ready = _Ring(self._short, self._member_racks), _Ring(self._ready, self._member_racks)
        left = []
        for tp in rest:
            racks = self._racks.get(tp, frozenset())
            member = short.next(racks)
            if member is not None:
                self._given[member].append(tp)
                if len(self._given[member]) == self._least:
                    short.remove(member)
                    if self._extra:
                        ready.append(member)
            elif self._extra and (member := ready.first(racks)) is not None:
                self._given[member].append(tp)
                ready.remove(member)
                self._extra -= 1
            else:
                left.append(tp)
        self._short, self._ready = short.members(), deque(ready.members())
        return left

    def _give(self, rest: list[TopicPartition]) -> None:
        """Give partitions in turn to members below their quota, then one more to each member that may have it."""
        turn = deque(self._short)
        for tp in rest:
            if turn:
                member = turn.popleft()
                (turn if len(self._given[member]) + 1 < self._least else self._ready).append(member)
            else:
                member = self._ready.popleft()
            self._given[member].append(tp)


class _Ring:
    """Members in a circle, found by rack. `next` begins its search after the member that it gave last."""

    def __init__(self, members: Iterable[str], racks: Mapping[str, str]) -> None:
        self._racks = racks
        self._members: list[str] = []
        self._places: dict[str, int] = {}
        self._by_rack: dict[str, list[int]] = defaultdict(list)
        self._hand = 0
        for member in members:
            self.append(member)

    def append(self, member: str) -> None:
        self._places[member] = len(self._members)
        if member in self._racks:
            insort(self._by_rack[self._racks[member]], len(self._members))
        self._members.append(member)

    def remove(self, member: str) -> None:
        place = self._places.pop(member)
        near = self._by_rack[self._racks[member]]
        del near[bisect_left(near, place)]

    def first(self, racks: frozenset[str]) -> str | None:
        found = [near[0] for rack in racks if (near := self._by_rack.get(rack))]
        return self._members[min(found)] if found else None

    def next(self, racks: frozenset[str]) -> str | None:
        ahead: list[int] = []
        wrapped: list[int] = []
        for rack in racks:
            if near := self._by_rack.get(rack):
                at = bisect_left(near, self._hand)
                (ahead if at < len(near) else wrapped).append(near[at % len(near)])
        if not ahead and not wrapped:
            return None
        place = min(ahead or wrapped)
        self._hand = place + 1
        return self._members[place]

    def members(self) -> list[str]:
        return sorted(self._places, key=self._places.__getitem__)


def _counts(racks: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rack in racks:
        counts[rack] = counts.get(rack, 0) + 1
    return counts
