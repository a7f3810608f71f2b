"""The work of a group's leader: it runs the assignor, and asks for what is missing to decide about another round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.classic.leadership import Leadership, why_released, why_unread, withheld_by
from aiogroup._core.membership.classic.requests import read_subscription, write_assignment
from aiogroup._core.protocol.consumer_protocol import read_assignment
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.loop.threads import Threads
from aiogroup._runtime.membership.current_rebalance import CurrentRebalance
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import COMMIT, Link
from aiogroup.assignors import Assignor, MemberSubscription
from aiogroup.assignors.checks import run
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, AssignorError, BrokerError, ProtocolError
from aiogroup.structs import TopicPartition

__all__ = ["Leader"]

STABLE: Final = "Stable"

INLINE_ASSIGNMENT: Final = 200
"""An assignor over more partitions than this runs in a worker thread."""


class Leader:
    """Does nothing while another member leads. What follows from the metadata is decided by `leadership`."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        threads: Threads,
        current: CurrentRebalance,
        coordinator: Coordinator,
        assignors: Sequence[Assignor],
        leadership: Leadership,
        refresher: Refresher,
    ) -> None:
        self._config = config
        self._link = link
        self._threads = threads
        self._current = current
        self._coordinator = coordinator
        self._assignors = {each.name: each for each in assignors}
        self._leadership = leadership
        self._refresher = refresher

    async def compute_assignment(self, effect: f.ComputeAssignment) -> None:
        members = {}
        for member_id, instance_id, blob in effect.members:
            try:
                members[member_id] = read_subscription(blob, instance_id)
            except ProtocolError as error:  # this member gets no partitions; the others still get theirs
                members[member_id] = MemberSubscription(topics=(), user_data=None, instance_id=instance_id)
                self._current.emit_failed(f"subscription of {member_id}: {error}")
        topics = {topic for member in members.values() for topic in member.topics}
        await self._refresher.know(topics)
        cluster = self._link.cluster
        counts = cluster.partition_counts(topics)
        have_racks = any(member.rack for member in members.values())
        racks = cluster.partition_racks(topics) if have_racks else {}
        self._leadership.on_assigned({topic: counts.get(topic, 0) for topic in topics}, racks)
        if effect.only_watch:
            await self._coordinator.report(f.AssignmentComputed(effect.generation, {}))
            await self._ask_if(self._why_unfit)
            return
        assignor = self._assignors[effect.assignor]
        try:
            if sum(counts.values()) > INLINE_ASSIGNMENT:
                assigned = await self._threads.compute(run, assignor, members, counts, racks)
            else:
                assigned = run(assignor, members, counts, racks)
        except AssignorError as error:
            await self._coordinator.report(f.Failed(error))
            return
        blobs = {member: write_assignment(assigned.get(member, ())) for member in members}
        withheld = withheld_by(assigned, members, counts)
        await self._coordinator.report(f.AssignmentComputed(effect.generation, blobs, withheld))

    async def check_withheld(self, effect: f.CheckWithheld) -> None:
        """Ask for another round if the owner of partitions that were withheld for it does not claim them any more."""
        await self._ask_if(lambda members: why_released(effect.withheld, _subscriptions(members)))

    async def check_unread(self, effect: f.CheckUnread) -> None:
        """Ask for another round if topics of this member, which follows, are read by nobody."""
        await self._refresher.know(effect.topics)
        counts = self._link.cluster.partition_counts(effect.topics)
        if any(counts.values()):
            await self._ask_if(lambda members: why_unread(_assigned(members), counts))

    def _why_unfit(self, members: Sequence[DescribedGroupMember]) -> str | None:
        return self._leadership.why_unfit(_assigned(members))

    async def _ask_if(self, why_ask: Callable[[Sequence[DescribedGroupMember]], str | None]) -> None:
        """Ask for another round if there is a reason in what the coordinator knows of the members."""
        group_id = self._coordinator.identity.group_id
        request = DescribeGroupsRequest(groups=(group_id,))
        limit_ms = self._config.request_timeout_ms // 3
        try:
            response = await self._coordinator.exchange(COMMIT, limit_ms, lambda: request)
            if response and (code := next((each.error_code for each in response.groups if each.error_code), 0)):
                row = lookup(code)
                raise BrokerError(code, row.name, row.message, retriable=row.retriable)
            # A group that is not stable is in another round already, and reports no assignments.
            groups = [group for group in response.groups if group.group_state == STABLE] if response else []
            found = why_ask([member for group in groups for member in group.members]) if groups else None
            why = None if found is None else f.Why(f.Reason.METADATA, found)
        except AiogroupError as error:
            # The coordinator may have died since JoinGroup. Nobody would ask again, and a partition that no member has
            # would stay unread. A round that was not needed does less harm.
            why = f.Why(f.Reason.MEMBERSHIP, f"the members of group {group_id!r} are not known: {error}")
            self._current.emit_failed(why.text)
        if why is not None:
            await self._coordinator.report(f.RejoinWanted(why))


def _assigned(members: Sequence[DescribedGroupMember]) -> set[TopicPartition]:
    blobs = [bytes(each.member_assignment) for each in members]
    return {tp for each in blobs if each for tp in read_assignment(each)}


def _subscriptions(members: Sequence[DescribedGroupMember]) -> Iterator[MemberSubscription]:
    for each in members:
        with suppress(ProtocolError):  # who cannot be read claims nothing, as in the assignment
            yield read_subscription(bytes(each.member_metadata), each.group_instance_id)
