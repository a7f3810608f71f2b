"""Keeps what the tasks do in step with the subscription and the metadata: carries out what `_core/membership/` decides.

How a subscription takes effect
-------------------------------
1. `subscribe`, `assign` and `unsubscribe` change the `Subscription` and call `follow`. The refresher reports new
   metadata, and the membership reports that it has left its group.
2. The group, or `NoGroup`, lets `_core/membership/following.py` decide what has to be done: a few effects, in order.
3. They are carried out here. A member gets its topics, and joins or rejoins in the rebalance task. Partitions that
   the application names are assigned at once.
4. `assign` after topics waits for the group. `unsubscribe` was called before it, so the member hands over what the
   group gave it, commits, and leaves. Then the membership says so (`Cause.GROUP_LEFT`), and only then the partitions
   are assigned. Until then they are prepared: they can be moved and paused.
5. `AssignmentFollowers` hears of every change of what is assigned, by the rebalance and by self-assignment.
"""

from __future__ import annotations

import re
from typing import Protocol

from aiogroup._core.cluster import Cluster
from aiogroup._core.membership.following import (
    AssignAllOf,
    AssignToSelf,
    Cause,
    FollowingEffect,
    GroupEffect,
    PrepareForSelf,
    RefreshMetadata,
)
from aiogroup._core.membership.member import MemberObserver
from aiogroup._core.membership.states import MemberState
from aiogroup._core.membership.topics import Topics
from aiogroup._core.subscription import Subscription
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.delivery.stopping import Stopping
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.membership.self_assignment import SelfAssignment
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup.config import ConsumerConfig

__all__ = ["Follower", "Following"]


class Follower(Protocol):
    """The group, or no group, as it follows a subscription."""

    def follow(self, cause: Cause) -> tuple[FollowingEffect, ...]:
        """The effects of a changed subscription."""
        ...

    def follow_metadata(self, appeared: frozenset[str]) -> tuple[FollowingEffect, ...]:
        """The effects of refreshed metadata; `appeared` holds the topics that match the pattern since then."""
        ...

    def perform(self, effect: GroupEffect) -> None:
        """Carry out an effect that `follow` returned."""
        ...

    def topics_led(self) -> frozenset[str]:
        """The topics that we watch as the group's leader."""
        ...


class Following(MemberObserver):
    """Makes the group, the refresher and self-assignment follow the subscription and the metadata.

    The consumer tells it of a changed subscription, the refresher of new metadata, the membership of its moves. As the
    parts that it calls need it too, it is made before them, and gets them afterwards, by `set_parts`.
    """

    _group: Follower
    _refresher: Refresher
    _self_assignment: SelfAssignment

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        emit: Emit,
        inbox: Inbox,
        subscription: Subscription,
        stopping: Stopping,
    ) -> None:
        self.topics = Topics()
        self._config = config
        self._link = link
        self._emit = emit
        self._inbox = inbox
        self._subscription = subscription
        self._stopping = stopping

    def set_parts(self, group: Follower, refresher: Refresher, self_assignment: SelfAssignment) -> None:
        """Set the parts that carry out the decisions."""
        self._group = group
        self._refresher = refresher
        self._self_assignment = self_assignment

    def follow(self, cause: Cause) -> None:
        """Make the tasks follow the present subscription."""
        config, cluster = self._config, self._link.cluster
        self._subscription.match(cluster, exclude_internal=config.exclude_internal_topics)
        self._carry_out(self._group.follow(cause))

    def _carry_out(self, effects: tuple[FollowingEffect, ...]) -> None:
        for effect in effects:
            match effect:
                case PrepareForSelf():
                    self._self_assignment.prepare(effect.partitions)
                case AssignToSelf():
                    self._self_assignment.assign(effect.partitions)
                case AssignAllOf():
                    self._self_assignment.assign_all_of(effect.topics, effect.appeared)
                case RefreshMetadata():
                    if not effect.only_if_incomplete or self._refresher.is_incomplete():
                        self._refresher.want()
                case _:
                    self._group.perform(effect)

    def topics_named(self) -> frozenset[str]:
        """All topics that are subscribed to, and those of which the application assigned partitions."""
        return self._subscription.names() | {tp.topic for tp in self._subscription.assigned}

    # Told by the refresher.

    def wanted(self) -> frozenset[str] | re.Pattern[str]:
        """The topics that we read, and as the group's leader those that the other members read."""
        wanted = self._subscription.wanted()
        return wanted if isinstance(wanted, re.Pattern) else wanted | self._group.topics_led()

    def matched(self) -> frozenset[str]:
        return self._subscription.names()

    def on_refreshed(self, cluster: Cluster) -> None:
        subscription = self._subscription
        news = self.topics.news_in(self.topics_named(), cluster, now_ms())
        for error in news.refused:
            self._inbox.put(error)
        for name, code in news.missing:
            self._emit(events.TopicMissing(name, code))
        if self._stopping.is_stopped or subscription.is_manual:
            return
        appeared = subscription.match_again(
            cluster, exclude_internal=self._config.exclude_internal_topics, gone=self.topics.gone(cluster)
        )
        self._carry_out(self._group.follow_metadata(appeared))

    # Told by the membership.

    def on_move(self, old: MemberState, new: MemberState, why: str) -> None:
        self._emit(events.MemberMoved(old.value, new.value, why))
        if new is MemberState.LEFT and self._subscription.is_manual and not self._stopping.is_stopped:
            self.follow(Cause.GROUP_LEFT)

    def on_removed(self, member_id: str, why: str) -> None:
        self._emit(events.MemberRemoved(member_id, why))
