"""The work of a group's leader: it assigns the partitions, and watches for what makes the assignment out of date."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from aiogroup.assignors import Assignor, MemberSubscription, Racks
from aiogroup.assignors.checks import run
from aiogroup.errors import AiogroupError, AssignorError, BrokerError, ProtocolError
from aiogroup.membership import facts as f
from aiogroup.membership.requests import read_assignment, read_subscription, write_assignment
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup.runtime.context import Context
from aiogroup.runtime.coordinator import Coordinator
from aiogroup.runtime.net.link import COMMIT
from aiogroup.structs import TopicPartition
from aiogroup.telemetry import events

__all__ = ["Leader"]

INLINE_ASSIGNMENT: Final = 200
"""An assignor over more partitions than this runs in a worker thread."""


class Leader:
    """Does nothing while another member leads."""

    def __init__(self, context: Context, coordinator: Coordinator, assignors: Sequence[Assignor]) -> None:
        self._context = context
        self._coordinator = coordinator
        self._assignors = {each.name: each for each in assignors}
        self._assigned_from: Mapping[str, int] = {}
        self._racks: Racks = {}

    async def compute_assignment(self, effect: f.ComputeAssignment) -> None:
        members = {}
        for member_id, instance_id, blob in effect.members:
            try:
                members[member_id] = read_subscription(blob, instance_id)
            except ProtocolError as error:  # this member gets no partitions; the others still get theirs
                members[member_id] = MemberSubscription(topics=(), user_data=None, instance_id=instance_id)
                self._context.tell_rebalance_failed(f"subscription of {member_id}: {error}")
        topics = {topic for member in members.values() for topic in member.topics}
        await self.know(topics)
        counts = self._context.link.cluster.partition_counts(topics)
        self._assigned_from = {topic: counts.get(topic, 0) for topic in topics}
        have_racks = any(member.rack for member in members.values())
        self._racks = self._context.link.cluster.partition_racks(topics) if have_racks else {}
        if effect.only_watch:
            await self._coordinator.tell(f.AssignmentComputed(effect.generation, {}))
            await self._look_for_what_nobody_has()
            return
        assignor = self._assignors[effect.assignor]
        try:
            if sum(counts.values()) > INLINE_ASSIGNMENT:
                assigned = await asyncio.to_thread(run, assignor, members, counts, self._racks)
            else:
                assigned = run(assignor, members, counts, self._racks)
        except AssignorError as error:
            await self._coordinator.tell(f.Failed(error))
            return
        blobs = {member: write_assignment(assigned.get(member, ())) for member in members}
        await self._coordinator.tell(f.AssignmentComputed(effect.generation, blobs))

    async def _look_for_what_nobody_has(self) -> None:
        """Ask for another round if a partition is in no member's share.

        A static leader that comes back keeps the assignment that it made before it went, and partitions that were added
        meanwhile are not in it. Java's leader compares later metadata with that which it finds when it comes back, and
        so leaves such a partition unread until the next rebalance.
        """
        group_id = self._coordinator.identity.group_id
        request = DescribeGroupsRequest(groups=(group_id,))
        limit_ms = self._context.config.request_timeout_ms // 3
        try:
            response = await self._coordinator.exchange(COMMIT, limit_ms, lambda: request)
            if response and (code := next((each.error_code for each in response.groups if each.error_code), 0)):
                row = lookup(code)
                raise BrokerError(code, row.name, row.message, retriable=row.retriable)
            shares = [each.member_assignment for group in response.groups for each in group.members] if response else []
            held = {tp for share in shares if share for tp in read_assignment(bytes(share))}
        except AiogroupError as error:
            # The coordinator may have died since JoinGroup. Nobody would ask again, and a partition in no share would
            # stay unread. A round that was not needed does less harm.
            why = f"the shares of group {group_id!r} are not known: {error}"
            self._context.tell_rebalance_failed(why)
            await self._coordinator.tell(f.RejoinWanted(why))
            return
        orphaned = {
            topic
            for topic, count in self._assigned_from.items()
            for n in range(count)
            if TopicPartition(topic, n) not in held
        }
        if held and orphaned:
            why = f"partitions of {', '.join(sorted(orphaned))} are in nobody's share"
            await self._coordinator.tell(f.RejoinWanted(why))

    async def know(self, topics: Collection[str]) -> None:
        """Fetch the metadata of topics that are not known yet: a leader also assigns topics that only others read."""
        cluster = self._context.link.cluster
        if unknown := [topic for topic in topics if topic not in cluster.topics]:
            try:
                await self._context.link.fetch_metadata({*cluster.topics, *unknown})
            except AiogroupError as error:
                self._context.tell(events.MetadataFailed(str(error)))

    def adopt(self, *, is_leader: bool) -> None:
        """The round is decided; a member that does not lead watches no metadata for the group."""
        if not is_leader:
            self._assigned_from, self._racks = {}, {}

    def stale_assignment(self) -> str | None:
        """The reason why the assignment that this leader made no longer fits the metadata; `None` while it fits."""
        if not self._coordinator.membership.is_leader or not self._assigned_from:
            return None
        cluster = self._context.link.cluster
        now = cluster.partition_counts(self._assigned_from)
        for topic in self._assigned_from.keys() - now.keys():
            if cluster.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                now[topic] = 0  # deleted; any other error says nothing about its partitions
        if grown := sorted(topic for topic, count in self._assigned_from.items() if now.get(topic, count) != count):
            return f"partitions of {', '.join(grown)} changed"
        racks = cluster.partition_racks(self._assigned_from) if self._racks else {}
        if moved := {tp.topic for tp, before in self._racks.items() if racks.get(tp, before) != before}:
            return f"replicas of {', '.join(sorted(moved))} moved to other racks"
        return None

    def topics_led(self) -> frozenset[str]:
        """The topics that this leader assigned: it watches all of them, also those that only other members read."""
        return frozenset(self._assigned_from) if self._coordinator.membership.is_leader else frozenset()
