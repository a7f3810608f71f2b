"""Calls that make things happen to a cluster: elections, moves, silence, lost commits, compaction."""

from __future__ import annotations

from aiogroup.embedded.machine.logs.compaction import compact, expire
from aiogroup.embedded.machine.refusals import BrokerRefusal, group_named, whole_number
from aiogroup.embedded.running import Running
from aiogroup.embedded.views import MemberView

__all__ = ["Controls"]


class Controls(Running):
    """The calls of `Broker` that change the cluster under its clients."""

    # Logs.

    def truncate(self, topic: str, partition: int, to_offset: int) -> None:
        """An unclean election: records from `to_offset` on are lost. The next live replica leads in a new epoch, or the
        same node if there is no other.

        Raises:
            BrokerRefusal: there is no such partition, or the log does not reach beyond this offset.
        """

        def act(now_ms: int) -> None:
            found = self._partition(topic, partition)
            if not whole_number("to_offset", to_offset, at_least=0) < found.log.end_offset:
                held = f"{topic}-{partition} ends with {found.log.end_offset}"
                raise BrokerRefusal(f"{held}: nothing is lost by cutting it at {to_offset}")
            live = self._cluster.nodes.live(found.replicas)
            if not live:
                raise BrokerRefusal(f"no replica of {topic}-{partition} is up: start one of {found.replicas} first")
            found.log.truncate(to_offset)
            others = [each for each in live if each != found.leader]
            found.elect(others[0] if others else live[0], now_ms)

        self._call(act)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Another replica leads from now on, in a new epoch; nothing is lost.

        Raises:
            BrokerRefusal: the node has no replica, is down, or leads already.
        """

        def act(now_ms: int) -> None:
            found, name = self._partition(topic, partition), f"{topic}-{partition}"
            if node_id not in found.replicas:
                raise BrokerRefusal(f"node {node_id} has no replica of {name}: {found.replicas} have")
            if not self._cluster.nodes.is_up(node_id):
                raise BrokerRefusal(f"node {node_id} is down: it cannot lead {name}")
            if found.leader == node_id:
                raise BrokerRefusal(f"node {node_id} leads {name} already")
            found.elect(node_id, now_ms)

        self._call(act)

    def compact(self, topic: str, partition: int | None = None, *, with_tombstones: bool = False) -> int:
        """Keep the last record of each key, as Kafka's cleaner does. The last batch stays whole, and so do records that
        are not older than min.compaction.lag.ms. Producers are forgotten as in `expire`.

        Args:
            topic: a compacted one.
            partition: the only partition to compact; by default all of them.
            with_tombstones: remove records without a value too, as if delete.retention.ms had passed.

        Returns:
            how many records were removed.

        Raises:
            BrokerRefusal: there is no such partition, or the topic is not compacted.
        """

        def act(now_ms: int) -> int:
            removed = 0
            for each in self._partitions(topic, partition):
                removed += compact(each, self._cluster.settings, now_ms, with_tombstones=with_tombstones)
                each.changed(now_ms)
            return removed

        return self._call(act)

    def expire(self, topic: str, partition: int | None = None, *, to_offset: int | None = None) -> None:
        """Delete what the topic's retention.ms and retention.bytes no longer keep, and forget producers that have been
        silent for producer.id.expiration.ms. With `to_offset`, delete exactly the records before it, whatever their
        age.

        Raises:
            BrokerRefusal: there is no such partition, the offset lies beyond its end, or its records do not expire.
        """

        if to_offset is not None:
            whole_number("to_offset", to_offset, at_least=0)

        def act(now_ms: int) -> None:
            for each in self._partitions(topic, partition):
                if to_offset is None:
                    expire(each, self._cluster.settings, now_ms)
                elif to_offset <= each.log.end_offset:
                    each.log.delete_before(to_offset)
                else:
                    raise BrokerRefusal(f"{topic}-{each.index} ends with {each.log.end_offset}, before {to_offset}")
                each.changed(now_ms)

        self._call(act)

    # Groups.

    def move_coordinator(self, group: str, node_id: int, loading_ms: int = 0) -> None:
        """Another node coordinates the group from now on; it reads the group's log for `loading_ms` first.

        Raises:
            BrokerRefusal: there is no such node, or it is down.
        """
        group_named(group)
        self._look_for_node(node_id)
        whole_number("loading_ms", loading_ms, at_least=0)
        self._call(lambda now_ms: self._cluster.coordinators.move(group, node_id, loading_ms, now_ms))

    def move_transactions(self, transactional_id: str, node_id: int, loading_ms: int = 0) -> None:
        """Another node coordinates the transactions of this id from now on; it reads their log for `loading_ms` first.

        Raises:
            BrokerRefusal: there is no such node, or it is down.
        """
        if not isinstance(transactional_id, str):
            raise BrokerRefusal(f"a transactional id is a text, and {transactional_id!r} is none")
        self._look_for_node(node_id)
        whole_number("loading_ms", loading_ms, at_least=0)
        seats = self._cluster.transactions.seats
        self._call(lambda now_ms: seats.move(transactional_id, node_id, loading_ms, now_ms))

    def lose_commits(self, group: str, last: int = 1) -> None:
        """The end of the group's log is lost, as in an unclean election: its `last` commits (all, if there are fewer),
        and what was stored about its members since the first of them. The coordinator reads the log again.

        Raises:
            BrokerRefusal: the group has not committed anything, or not within the last 1,000 entries of its log.
        """
        group_named(group)
        whole_number("last", last)
        self._call(lambda now_ms: self._cluster.coordinators.lose_commits(group, last, now_ms))

    def expel(self, group: str, member: str | MemberView) -> None:
        """The coordinator removes a member, as if it had been silent for its whole session.

        Raises:
            BrokerRefusal: the group has no such member, or no coordinator at present.
        """
        group_named(group)
        member_id = member.member_id if isinstance(member, MemberView) else member
        self._call(lambda now_ms: self._cluster.coordinators.expel(group, member_id, now_ms))

    def rebalance(self, group: str) -> None:
        """A rebalance begins: the members learn of it with their next heartbeat.

        Raises:
            BrokerRefusal: the group has no members, or no coordinator at present.
        """
        group_named(group)
        self._call(lambda now_ms: self._cluster.coordinators.rebalance(group, now_ms))

    # Nodes.

    def pause(self) -> None:
        """Pause every node that is up: it answers nothing, but its sockets stay open and accept connections."""

        def act(now_ms: int) -> None:
            for node in self._cluster.nodes.up:
                self._cluster.nodes.pause(node.node_id, now_ms)

        self._call(act)

    def resume(self) -> None:
        """Let every paused node go on with what has arrived meanwhile."""

        def act(now_ms: int) -> None:
            for node in self._cluster.nodes:
                if node.is_paused:
                    self._cluster.nodes.resume(node.node_id, now_ms)

        self._call(act)

    def disconnect(self, node_id: int | None = None) -> None:
        """Close the connections to a node, or all of them, now.

        Raises:
            BrokerRefusal: there is no such node.
        """
        self._look_for_node(node_id)
        self._call(lambda _now_ms: self._cluster.disconnect(node_id))

    def await_ready(self) -> None:
        """Exists because devkafka has it. A started broker is ready, so this returns at once.

        Raises:
            BrokerRefusal: the broker does not run.
        """
        self._call(lambda _now_ms: None)
