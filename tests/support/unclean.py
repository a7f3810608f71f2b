"""An unclean leader election: the only replica that has the newest records dies, and one without them leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiogroup import AiogroupError, TopicPartition
from aiogroup._core.cluster import PartitionInfo
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig
from aiogroup.devkafka import Cluster
from tests.support.brokers import EmbeddedCluster
from tests.support.kafka import eventually

TOPIC = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
"""With these settings a topic loses records rather than being without a leader."""


class Shaky:
    """A topic with one partition and two replicas, `leader` and `follower` (nodes)."""

    def __init__(self, cluster: Cluster | EmbeddedCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.tp = TopicPartition(topic, 0)
        self.leader = self.follower = cluster.nodes[0]
        self._common_end = 0

    async def make(self) -> None:
        await asyncio.to_thread(self.cluster.create_topic, self.topic, 1, replication_factor=2, config=TOPIC)
        state = await self.state()
        nodes = {node.node_id: node for node in self.cluster.nodes}
        self.leader = nodes.pop(state.leader)
        self.follower = nodes[next(each for each in state.replicas if each != state.leader)]

    async def leave_follower_behind(self) -> None:
        """Kill the follower: only the leader has the records that it takes from now on."""
        if isinstance(self.cluster, EmbeddedCluster):
            self._common_end = len(self.cluster.records(self.topic, 0))
        await asyncio.to_thread(self.follower.kill)
        await self._wait_for(lambda state: state.in_sync == (self.leader.node_id,))

    async def lose_leader(self) -> None:
        """Kill the leader too. The follower comes back and leads with the records that it has."""
        self.leader, self.follower = self.follower, self.leader
        if isinstance(self.cluster, EmbeddedCluster):  # its replicas share one log, which must be truncated by a call
            self.leader.start()
            self.cluster.truncate(self.topic, 0, self._common_end)
            self.follower.kill()
        else:
            await asyncio.to_thread(self.follower.kill)
            await asyncio.to_thread(self.leader.start)
        await self._wait_for(lambda state: state.leader == self.leader.node_id)

    async def state(self) -> PartitionInfo:
        """The leader, its epoch, and the in-sync replicas, asked of any node that is up."""
        up = [f"127.0.0.1:{node.port}" for node in self.cluster.nodes if node.is_running]
        async with Link(ConsumerConfig(bootstrap_servers=up)) as link:
            found = (await link.fetch_metadata([self.topic])).partition(self.tp)
        assert found is not None
        return found

    async def _wait_for(self, is_so: Callable[[PartitionInfo], bool]) -> None:
        async def look() -> bool:
            try:
                return is_so(await self.state())
            except AiogroupError:
                return False

        await eventually(look, within_s=40)
