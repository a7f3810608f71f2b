"""Which node coordinates which group: by Java's hash over the coordinator partitions, or by hand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.schema import Response
from aiogroup.embedded.machine.groups.coordinator import GroupCoordinator
from aiogroup.embedded.machine.groups.form import Form, MakeForm
from aiogroup.embedded.machine.groups.log import CoordinatorLog, GroupLog, TransactionEnd
from aiogroup.embedded.machine.refusals import BrokerRefusal

if TYPE_CHECKING:
    from aiogroup.embedded.machine.groups.group import Group
    from aiogroup.embedded.machine.ids import Ids
    from aiogroup.embedded.machine.logs.topics import Topic, Topics
    from aiogroup.embedded.machine.nodes import Node, Nodes
    from aiogroup.embedded.machine.observers import Observer
    from aiogroup.embedded.machine.settings import Settings
    from aiogroup.embedded.machine.timers import Timer, Timers

__all__ = ["Coordinators", "Seat", "java_bucket", "java_hash"]


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, which is computed over UTF-16 code units."""
    raw = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(raw), 2):
        found = (31 * found + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFF_FFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def java_bucket(text: str, count: int) -> int:
    """Which of `count` partitions a name belongs to."""
    number = java_hash(text)
    # Utils.abs: the one number whose absolute value does not fit into an int becomes 0.
    return (0 if number == -(1 << 31) else abs(number)) % count


class Seat:
    """The place of a coordinator for some groups: its node, the log that outlives the node, and the coordinator itself,
    unless it loads or the node is down.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.log = CoordinatorLog()
        self.coordinator: GroupCoordinator | None = None
        self.loading: Timer | None = None


class Coordinators:
    """The seats of all groups. The part that serves the groups' requests sets `answer`."""

    def __init__(
        self,
        nodes: Nodes,
        settings: Settings,
        timers: Timers,
        ids: Ids,
        topics: Topics,
        observer: Observer,
        make_form: MakeForm = Form,
    ) -> None:
        self._nodes = nodes
        self._settings = settings.groups()
        self._timers = timers
        self._ids = ids
        self._observer = observer
        self._make_form = make_form
        self.answer: Callable[[Hashable, Response], None] = _lost
        node_ids = [node.node_id for node in nodes]
        self._seats = [Seat(node_ids[each % len(node_ids)]) for each in range(settings.coordinator_partitions)]
        self._pinned: dict[str, Seat] = {}
        self._open: dict[int, dict[tuple[str, int], None]] = {}
        """By producer: the groups with pending offsets, each with the producer epoch of these offsets."""
        for seat in self._seats:
            self._load(seat, timers.now_ms)
        nodes.on_down.append(self._on_down)
        nodes.on_failover.append(self._on_failover)
        nodes.on_up.append(self._on_up)
        topics.on_deleted.append(self._on_deleted)

    def __iter__(self) -> Iterator[Seat]:
        yield from self._seats
        yield from self._pinned.values()

    # Questions.

    def seat_of(self, group_id: str) -> Seat:
        found = self._pinned.get(group_id)
        if found is not None:
            return found
        return self._seats[self.number_of(group_id)]

    def number_of(self, group_id: str) -> int:
        """The group's coordinator partition, by its name alone."""
        return java_bucket(group_id, len(self._seats))

    def node_of(self, group_id: str) -> Node | None:
        """The node that coordinates the group, even while it loads. `None`: the node is down, and nobody has noticed
        yet.
        """
        return self._nodes.serving(self.seat_of(group_id).node_id)

    def at(self, node_id: int, group_id: str) -> GroupCoordinator | ErrorCode:
        """The group's coordinator, or why this node does not serve the group."""
        seat = self.seat_of(group_id)
        if seat.node_id != node_id:
            return ErrorCode.NOT_COORDINATOR
        return seat.coordinator or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def log_of(self, group_id: str) -> GroupLog | None:
        """The group's log, whichever node coordinates it."""
        return self.seat_of(group_id).log.get(group_id)

    # What happens to them.

    def move(self, group_id: str, node_id: int, loading_ms: int, now_ms: int) -> None:
        """Let another node coordinate this one group from now on. It reads the log for `loading_ms` first."""
        if not self._nodes.is_up(node_id):
            raise BrokerRefusal(f"node {node_id} is down: it cannot coordinate {group_id}")
        seat = self._pinned.get(group_id)
        if seat is None:
            former = self.seat_of(group_id)
            if former.coordinator is not None:
                former.coordinator.give_up(group_id)
            seat = self._pinned[group_id] = Seat(node_id)
            log = former.log.take(group_id)
            if log is not None:
                seat.log.put(group_id, log)
        self._hand_over(seat, node_id, loading_ms, now_ms)

    def lose_commits(self, group_id: str, last: int, now_ms: int) -> None:
        """Lose the end of the group's log, from its `last` commits on, as in an unclean election. The log is then read
        again: requests that wait are answered as after a move of the coordinator.
        """
        seat = self.seat_of(group_id)
        log = seat.log.get(group_id)
        if last < 1:
            raise BrokerRefusal(f"last={last}: at least one commit is lost")
        if log is None or not log.has_commits:
            raise BrokerRefusal(f"{group_id} has committed nothing that could be lost")
        if seat.coordinator is not None:
            seat.coordinator.give_up(group_id)
        log.cut(log.position_of_commit(last))
        if seat.coordinator is not None:
            seat.coordinator.load(group_id, now_ms)

    # Transactions.

    def is_in_transaction(self, group_id: str, producer_id: int, epoch: int) -> bool:
        """Whether the group has offsets of the producer's transaction under way."""
        return (group_id, epoch) in self._open.get(producer_id, {})

    def begin_transaction(self, group_id: str, producer_id: int, epoch: int) -> None:
        """Note that the group has offsets of the producer's transaction."""
        self._open.setdefault(producer_id, {})[group_id, epoch] = None

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Commit or forget the pending offsets of the producer's transaction. The marker reaches the log even if nobody
        coordinates the group just now.
        """
        for group_id, _ in self._open.pop(producer_id, {}):
            log = self.log_of(group_id)
            if log is not None:
                log.append(TransactionEnd(producer_id, is_committed))

    def replace_logs(self, logs: Mapping[str, GroupLog], now_ms: int) -> None:
        """Replace the logs of all groups: their coordinators read them again."""
        for seat in self:
            for group_id in list(seat.log):
                if seat.coordinator is not None:
                    seat.coordinator.give_up(group_id)
                seat.log.take(group_id)
            if seat.coordinator is not None:
                seat.coordinator.resign()
        self._open.clear()
        for group_id, log in logs.items():
            seat = self.seat_of(group_id)
            seat.log.put(group_id, log)
            if seat.coordinator is not None:
                seat.coordinator.load(group_id, now_ms)

    def expel(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Remove the member as if its session had expired now."""
        group = self._served(group_id)
        if member_id not in group.members:
            ids = ", ".join(each.member_id for each in group.members) or "nobody"
            raise BrokerRefusal(f"{group_id} has no member {member_id!r}: there is {ids}")
        self._observer.on_expired(group, member_id, now_ms)
        group.remove(group.members[member_id], now_ms)

    def rebalance(self, group_id: str, now_ms: int) -> None:
        """Begin a rebalance. If one is in its join phase already, that one goes on."""
        group = self._served(group_id)
        if not len(group.members):
            raise BrokerRefusal(f"{group_id} has no members that could rebalance")
        group.rebalance(now_ms)

    def _served(self, group_id: str) -> Group:
        seat = self.seat_of(group_id)
        if seat.coordinator is None:
            raise BrokerRefusal(f"nobody coordinates {group_id} now: node {seat.node_id} is down, or loads")
        group = seat.coordinator.groups.get(group_id)
        if group is None:
            there = ", ".join(seat.coordinator.groups)
            raise BrokerRefusal(f"there is no group {group_id}: there is {there or 'none at all'}")
        return group

    def _hand_over(self, seat: Seat, node_id: int, loading_ms: int, now_ms: int) -> None:
        self._end(seat, is_dead=False)
        seat.node_id = node_id
        if loading_ms:
            seat.loading = self._timers.at(now_ms + loading_ms, lambda at_ms: self._load(seat, at_ms))
        else:
            self._load(seat, now_ms)

    def _end(self, seat: Seat, *, is_dead: bool) -> None:
        coordinator, seat.coordinator = seat.coordinator, None
        if seat.loading is not None:
            seat.loading.cancel()
            seat.loading = None
        if coordinator is None:
            return
        if is_dead:
            coordinator.die()
        else:
            coordinator.resign()

    def _load(self, seat: Seat, now_ms: int) -> None:
        seat.loading = None
        seat.coordinator = GroupCoordinator(
            self._ids.member_id,
            self._settings,
            seat.log,
            now_ms,
            timers=self._timers,
            answer=self._answered,
            observer=self._observer,
            make_form=self._make_form,
        )

    def _answered(self, ticket: Hashable, response: Response) -> None:
        self.answer(ticket, response)

    def _on_down(self, node: Node, _now_ms: int) -> None:
        for seat in self:
            if seat.node_id == node.node_id:
                self._end(seat, is_dead=True)

    def _on_failover(self, node: Node, now_ms: int) -> None:
        up = [each.node_id for each in self._nodes.up]
        for number, seat in enumerate(self):
            if seat.node_id == node.node_id and up:
                self._hand_over(seat, up[number % len(up)], 0, now_ms)

    def _on_up(self, _node: Node, now_ms: int) -> None:
        """A node that came back before the others noticed loads its groups; if it is the only one, it takes all."""
        up = [each.node_id for each in self._nodes.up]
        for number, seat in enumerate(self):
            if seat.coordinator is None and seat.loading is None:
                node = self._nodes[seat.node_id]
                if not node.is_up and node.failover is None:
                    seat.node_id = up[number % len(up)]
                if self._nodes.is_up(seat.node_id):
                    self._load(seat, now_ms)

    def _on_deleted(self, topic: Topic, _now_ms: int) -> None:
        for seat in self:
            seat.log.forget(topic.name)


def _lost(_ticket: Hashable, _response: Response) -> None:
    raise RuntimeError("nobody serves the requests of groups")
