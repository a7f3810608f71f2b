"""The base of the broker's calls: each changes the machine, or looks into it, in the place where it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiogroup.embedded.machine.cluster import Cluster
from aiogroup.embedded.machine.logs.topics import Partition, Topic
from aiogroup.embedded.machine.refusals import BrokerRefusal, whole_number
from aiogroup.embedded.shell.thread import Place

__all__ = ["Running"]

T = TypeVar("T")


class Running:
    """A machine and the place where it runs. The calls of `Broker` are in the classes that derive from this one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._place: Place | None = None

    def _running(self) -> Place:
        if self._place is None:
            raise BrokerRefusal("the embedded broker is not started: `with Broker() as broker:`")
        return self._place

    def _call(self, act: Callable[[int], T]) -> T:
        """Call `act` in the machine, from any thread, with the machine's time. Answers that result are sent."""
        found: list[T] = []
        self._running().call(lambda now_ms: found.append(act(now_ms)))
        return found[0]

    def _look_back(self, look: Callable[[], T]) -> T:
        """Look into the machine. It is allowed after the broker was closed, too, when the machine no longer changes."""
        if self._place is not None and self._place.is_closed:
            return look()
        return self._call(lambda _now_ms: look())

    def change(self, act: Callable[[], None]) -> None:
        """Call `act` in the machine if the broker still runs. Handles use it, since they may outlive the broker."""
        if self._place is not None and not self._place.is_closed:
            self._call(lambda _now_ms: act())

    def _look_for_node(self, node_id: int | None) -> None:
        if node_id is not None and self._cluster.nodes.get(node_id) is None:
            ids = [str(each.node_id) for each in self._cluster.nodes]
            raise BrokerRefusal(
                f"there is no node {node_id}: there {'are' if ids[1:] else 'is only'} {', '.join(ids)} (nodes are "
                "numbered from 1, and Broker(nodes=3) has three)"
            )

    def _topic(self, name: str) -> Topic:
        topic = self._cluster.topics.get(name)
        if topic is None:
            raise BrokerRefusal(f"there is no topic {name}: make it with create_topic")
        return topic

    def _partition(self, name: str, index: int) -> Partition:
        partitions = self._topic(name).partitions
        if not 0 <= whole_number("partition", index) < len(partitions):
            raise BrokerRefusal(f"{name} has {len(partitions)} partitions, and none with the number {index}")
        return partitions[index]

    def _partitions(self, name: str, index: int | None) -> list[Partition]:
        """One partition of a topic, or all of them."""
        return list(self._topic(name).partitions) if index is None else [self._partition(name, index)]
