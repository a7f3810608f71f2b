"""Which node coordinates which transactional id: by Java's hash over the partitions of the transactions' log, or by
hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.groups.coordinators import java_bucket
from aiogroup.embedded.machine.refusals import BrokerRefusal

if TYPE_CHECKING:
    from aiogroup.embedded.machine.nodes import Node, Nodes
    from aiogroup.embedded.machine.timers import Timer, Timers
    from aiogroup.embedded.machine.transactions.states import TransactionalId

__all__ = ["Seat", "Seats"]


class Seat:
    """The place of a coordinator for some transactional ids: its node, and the ids' states. The states are also its
    log: the next node takes them over unchanged.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.ids: dict[str, TransactionalId] = {}
        self.epoch = 0
        """How often a node has taken over, be it another or the same one again. Markers contain this number."""
        self.is_served = True
        """Whether the node is up and has read the log."""
        self.loading: Timer | None = None


class Seats:
    """The seats of all transactional ids. `on_load(seat, now_ms)` is called whenever a node begins to serve one."""

    def __init__(self, nodes: Nodes, timers: Timers, count: int) -> None:
        self._nodes = nodes
        self._timers = timers
        self.on_load: Callable[[Seat, int], None] = lambda _seat, _now_ms: None
        node_ids = [node.node_id for node in nodes]
        self._seats = [Seat(node_ids[each % len(node_ids)]) for each in range(count)]
        self._pinned: dict[str, Seat] = {}
        nodes.on_down.append(self._on_down)
        nodes.on_failover.append(self._on_failover)
        nodes.on_up.append(self._on_up)

    def __iter__(self) -> Iterator[Seat]:
        yield from self._seats
        yield from self._pinned.values()

    # Questions.

    def of(self, transactional_id: str) -> Seat:
        found = self._pinned.get(transactional_id)
        if found is not None:
            return found
        return self._seats[java_bucket(transactional_id, len(self._seats))]

    def node_of(self, transactional_id: str) -> Node | None:
        """The node that coordinates the id, even while it loads. `None`: it is down, and nobody has noticed yet."""
        return self._nodes.serving(self.of(transactional_id).node_id)

    def at(self, node_id: int, transactional_id: str) -> Seat | ErrorCode:
        """The id's seat, or why this node does not serve it."""
        seat = self.of(transactional_id)
        if seat.node_id != node_id:
            return ErrorCode.NOT_COORDINATOR
        return seat if seat.is_served else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def anywhere(self, transactional_id: str) -> Seat | ErrorCode:
        """The id's seat as other nodes reach it, or why they cannot."""
        if self.node_of(transactional_id) is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        seat = self.of(transactional_id)
        return seat if seat.is_served else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # What happens to them.

    def move(self, transactional_id: str, node_id: int, loading_ms: int, now_ms: int) -> None:
        """Let another node coordinate this one id from now on. It reads the log for `loading_ms` first."""
        if not self._nodes.is_up(node_id):
            raise BrokerRefusal(f"node {node_id} is down: it cannot coordinate {transactional_id}")
        seat = self._pinned.get(transactional_id)
        if seat is None:
            former = self.of(transactional_id)
            seat = self._pinned[transactional_id] = Seat(node_id)
            seat.epoch = former.epoch
            if transactional_id in former.ids:
                seat.ids[transactional_id] = former.ids.pop(transactional_id)
        self._end(seat)
        seat.node_id = node_id
        if loading_ms:
            seat.loading = self._timers.at(now_ms + loading_ms, lambda at_ms: self._load(seat, at_ms))
        else:
            self._load(seat, now_ms)

    def _end(self, seat: Seat) -> None:
        seat.is_served = False
        if seat.loading is not None:
            seat.loading.cancel()
            seat.loading = None

    def _load(self, seat: Seat, now_ms: int) -> None:
        seat.loading = None
        seat.is_served = True
        seat.epoch += 1
        self.on_load(seat, now_ms)

    def _on_down(self, node: Node, _now_ms: int) -> None:
        for seat in self:
            if seat.node_id == node.node_id:
                self._end(seat)

    def _on_failover(self, node: Node, now_ms: int) -> None:
        up = [each.node_id for each in self._nodes.up]
        for number, seat in enumerate(self):
            if seat.node_id == node.node_id and up:
                self._end(seat)
                seat.node_id = up[number % len(up)]
                self._load(seat, now_ms)

    def _on_up(self, _node: Node, now_ms: int) -> None:
        """A node that came back before the others noticed loads its ids; if it is the only one, it takes all."""
        up = [each.node_id for each in self._nodes.up]
        for number, seat in enumerate(self):
            if not seat.is_served and seat.loading is None:
                node = self._nodes[seat.node_id]
                if not node.is_up and node.failover is None:
                    seat.node_id = up[number % len(up)]
                if self._nodes.is_up(seat.node_id):
                    self._load(seat, now_ms)
