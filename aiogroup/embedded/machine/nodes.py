"""The nodes of a cluster: which are up, which are paused, and who leads after one has died."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aiogroup.embedded.machine.refusals import BrokerRefusal

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.timers import Timer, Timers

__all__ = ["Leaders", "Node", "Nodes"]


@dataclass(slots=True, eq=False)
class Node:
    """One node. The code that makes its socket sets its address. Ids begin with 1, as in devkafka."""

    node_id: int
    rack: str | None = None
    host: str = "127.0.0.1"
    """An address, because some clients resolve the name `localhost` to ::1."""
    port: int = 0
    is_up: bool = True
    is_paused: bool = False
    is_fenced: bool = False
    """It has been silent for so long that the others have taken its place."""
    failover: Timer | None = field(default=None, repr=False)
    """Runs when the others notice that the node has died or is silent."""

    @property
    def is_live(self) -> bool:
        """Whether the other nodes count it among the live ones."""
        return self.is_up and not self.is_fenced


Told = Callable[[Node, int], None]


class Nodes:
    """The nodes by id. `on_down`, `on_failover`, `on_up` and `on_resumed` hold callbacks for changes of a node, which
    get the node and the time.
    """

    def __init__(
        self,
        count: int,
        timers: Timers,
        *,
        failover_ms: int = 0,
        session_ms: int = 3_000,
        racks: Sequence[str | None] = (),
    ) -> None:
        self._timers = timers
        self._failover_ms = failover_ms
        self._session_ms = session_ms
        self._by_id = {number: Node(number, f"rack-{number}") for number in range(1, count + 1)}
        for node, rack in zip(self._by_id.values(), racks, strict=False):
            node.rack = rack
        self.on_down: list[Told] = []
        """Called when a node goes down: its connections break, and its memory is lost."""
        self.on_failover: list[Told] = []
        """Called when the others have noticed it: they lead and coordinate in its place."""
        self.on_up: list[Told] = []
        """Called when the others count it among the live ones again."""
        self.on_resumed: list[Told] = []

    def __iter__(self) -> Iterator[Node]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, node_id: int) -> Node:
        return self._by_id[node_id]

    def get(self, node_id: int) -> Node | None:
        return self._by_id.get(node_id)

    def is_up(self, node_id: int) -> bool:
        node = self._by_id.get(node_id)
        return node is not None and node.is_live

    def serving(self, node_id: int) -> Node | None:
        """The node if it is up, else `None`."""
        node = self._by_id.get(node_id)
        return node if node is not None and node.is_live else None

    @property
    def up(self) -> list[Node]:
        return [node for node in self._by_id.values() if node.is_live]

    def live(self, replicas: Iterable[int]) -> tuple[int, ...]:
        """The replicas whose nodes are up; these are in sync."""
        return tuple(each for each in replicas if self.is_up(each))

    def replicas_of(self, index: int, factor: int) -> tuple[int, ...]:
        """The replicas of a new partition, the leader first: the nodes in turn, with nodes that are down at the end."""
        ids = [node.node_id for node in self.up] or list(self._by_id)
        ids = ids[index % len(ids) :] + ids[: index % len(ids)]
        return tuple((ids + [each for each in self._by_id if each not in ids])[:factor])

    # What happens to them.

    def kill(self, node_id: int, now_ms: int, failover_ms: int | None = None) -> None:
        """Let the node die. The others notice after `failover_ms`; by default after the cluster's own."""
        self._end(node_id, now_ms, self._failover_ms if failover_ms is None else failover_ms)

    def stop(self, node_id: int, now_ms: int) -> None:
        """Controlled shutdown: other nodes lead and coordinate at once."""
        self._end(node_id, now_ms, 0)

    def _end(self, node_id: int, now_ms: int, failover_ms: int) -> None:
        node = self._by_id[node_id]
        if not node.is_up:
            return
        self._forget_failover(node)
        node.is_up = node.is_paused = node.is_fenced = False
        for act in self.on_down:
            act(node, now_ms)
        if failover_ms:
            node.failover = self._timers.at(now_ms + failover_ms, lambda at_ms: self._fail_over(node, at_ms))
        else:
            self._fail_over(node, now_ms)

    def _fail_over(self, node: Node, now_ms: int) -> None:
        node.failover = None
        for act in self.on_failover:
            act(node, now_ms)

    @staticmethod
    def _forget_failover(node: Node) -> None:
        if node.failover is not None:
            node.failover.cancel()
            node.failover = None

    def start(self, node_id: int, now_ms: int) -> None:
        """Start the node again, with its logs and at its address."""
        node = self._by_id[node_id]
        if node.is_up:
            raise BrokerRefusal(f"node {node_id} runs already")
        self._forget_failover(node)
        node.is_up = True
        for act in self.on_up:
            act(node, now_ms)
        self._watch_the_silent(now_ms)

    def pause(self, node_id: int, now_ms: int) -> None:
        """Pause the node: its sockets stay open, and it answers nothing. If a majority of the nodes works, the
        controller fences it after `broker.session.timeout.ms` (BrokerHeartbeatManager): others lead and coordinate in
        its place.
        """
        node = self._running(node_id)
        if not node.is_paused:
            node.is_paused = True
            node.failover = self._timers.at(now_ms + self._session_ms, partial(self._fence, node))

    def _fence(self, node: Node, now_ms: int) -> None:
        awake_count = sum(each.is_up and not each.is_paused for each in self)
        node.failover = None
        if 2 * awake_count > len(self):
            node.is_fenced = True
            self._fail_over(node, now_ms)

    def resume(self, node_id: int, now_ms: int) -> None:
        """Let the node go on with what has arrived meanwhile."""
        node = self._running(node_id)
        self._forget_failover(node)
        was_fenced, node.is_paused, node.is_fenced = node.is_fenced, False, False
        if was_fenced:
            for act in self.on_up:
                act(node, now_ms)
        for act in self.on_resumed:
            act(node, now_ms)
        self._watch_the_silent(now_ms)

    def _watch_the_silent(self, now_ms: int) -> None:
        """There may be a majority again, and so a controller. A node that fell silent while there was none gets a whole
        session from now on.
        """
        for node in self:
            if node.is_paused and not node.is_fenced and node.failover is None:
                node.failover = self._timers.at(now_ms + self._session_ms, partial(self._fence, node))

    def _running(self, node_id: int) -> Node:
        node = self._by_id[node_id]
        if not node.is_up:
            raise BrokerRefusal(f"node {node_id} does not run")
        return node


class Leaders:
    """Elects leaders when nodes die and come back, as the controller does (PartitionChangeBuilder): the first live
    replica in the order of the assignment.
    """

    def __init__(self, topics: Topics, nodes: Nodes) -> None:
        self._topics = topics
        self._nodes = nodes
        nodes.on_failover.append(self._on_failover)
        nodes.on_up.append(self._on_up)

    def _on_failover(self, node: Node, now_ms: int) -> None:
        for topic in self._topics:
            for partition in topic.partitions:
                if partition.leader == node.node_id:
                    partition.elect(next(iter(self._nodes.live(partition.replicas)), -1), now_ms)

    def _on_up(self, node: Node, now_ms: int) -> None:
        for topic in self._topics:
            for partition in topic.partitions:
                # A node that died and came back before the others noticed keeps its leadership, in a new epoch.
                if partition.leader in (-1, node.node_id) and node.node_id in partition.replicas:
                    partition.elect(node.node_id, now_ms)
