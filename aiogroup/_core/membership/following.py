"""The effects of a change of the subscription, or of the metadata of its topics.

They are decided here and carried out by `_runtime/following.py` in this order: each may rely on those before it.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from aiogroup._core.membership.facts import Reason, Why
from aiogroup._core.membership.states import MemberState
from aiogroup._core.subscription import Subscription
from aiogroup._core.values import dataclass
from aiogroup.structs import TopicPartition

__all__ = [
    "AskForRound",
    "AssignAllOf",
    "AssignToSelf",
    "BeginAutoCommit",
    "BeginMembership",
    "Cause",
    "ChangeTopics",
    "CommitAs",
    "FollowingEffect",
    "GroupEffect",
    "MemberView",
    "NoteTopics",
    "PrepareForSelf",
    "RefreshMetadata",
    "follow",
    "follow_alone",
    "follow_metadata",
]

PATTERN_WHY = "the topics that match the pattern changed"


class Cause(Enum):
    """Why the tasks look at the subscription; the value stands in events and in the broker's log."""

    START = "start"
    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"
    UNSUBSCRIBE = "unsubscribe"
    GROUP_LEFT = "the group was left"


@dataclass(frozen=True, slots=True)
class MemberView:
    """The part of the member that is looked at here.

    `topics` are those that it subscribes to in the group; `has_begun` says whether its tasks run.
    """

    state: MemberState
    topics: frozenset[str]
    has_begun: bool


@dataclass(frozen=True, slots=True)
class PrepareForSelf:
    """The application will assign these partitions to itself: until then it can seek in them and pause them."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AssignToSelf:
    """Assign exactly these partitions, without a group. Those that are given up are committed first."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AssignAllOf:
    """Assign all partitions of these topics, without a group. `appeared`: topics made after they were subscribed to."""

    topics: frozenset[str]
    appeared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitAs:
    """From now on commits are sent as a member of the group, or without a membership."""

    is_member: bool


@dataclass(frozen=True, slots=True)
class BeginMembership:
    """Start the member's tasks, unless they run."""


@dataclass(frozen=True, slots=True)
class BeginAutoCommit:
    """Start the auto-commit task alone, unless it runs: partitions assigned by the application need no member tasks."""


@dataclass(frozen=True, slots=True)
class ChangeTopics:
    """Give the member its new topics. `at_once`: the application called for it, so no hand-over point is waited for."""

    topics: frozenset[str]
    why: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class AskForRound:
    """Ask the group to assign its partitions again; `at_once` as in `ChangeTopics`."""

    why: Why
    at_once: bool


@dataclass(frozen=True, slots=True)
class NoteTopics:
    """Remember how many partitions the topics have. Those of topics that `appeared` are all new to the group."""

    appeared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Look the topics up; with `only_if_incomplete` only when some of them are not known."""

    only_if_incomplete: bool


GroupEffect: TypeAlias = CommitAs | BeginMembership | BeginAutoCommit | ChangeTopics | AskForRound | NoteTopics
FollowingEffect: TypeAlias = PrepareForSelf | AssignToSelf | AssignAllOf | RefreshMetadata | GroupEffect


def follow(subscription: Subscription, member: MemberView, cause: Cause, *, owns: bool) -> tuple[FollowingEffect, ...]:
    """The effects for a member whose application changed the subscription; `owns`: partitions are assigned.

    Between `subscribe` and `assign` the member leaves the group: the partitions that the group gave are committed and
    given up before any is assigned without the group. The cause is `GROUP_LEFT` when that is done.
    """
    is_manual, has_left = subscription.is_manual, member.state is MemberState.LEFT
    effects: list[FollowingEffect] = []
    if has_left and owns and not is_manual:
        effects.append(AssignToSelf(frozenset()))  # the group knows nothing of what the application assigned
    effects += (CommitAs(is_member=not (is_manual and has_left)), PrepareForSelf(subscription.assigned))
    if is_manual and not has_left:
        return tuple(effects)
    if is_manual:
        effects += (AssignToSelf(subscription.assigned), BeginAutoCommit())
    elif subscription.is_by_topic or member.has_begun:
        effects.append(BeginMembership())
        names = subscription.names()
        if names != member.topics:
            effects.append(ChangeTopics(names, cause.value, at_once=cause is not Cause.START))
        elif cause is Cause.SUBSCRIBE:  # the same topics, perhaps with another listener, which must hear the assignment
            effects.append(AskForRound(Why(Reason.SUBSCRIPTION, cause.value), at_once=True))
        effects.append(NoteTopics())
    return (*effects, _refresh(cause))


def follow_alone(subscription: Subscription, cause: Cause) -> tuple[FollowingEffect, ...]:
    """The effects for a consumer without a group whose application changed the subscription."""
    if subscription.is_manual:
        return AssignToSelf(subscription.assigned), _refresh(cause)
    return AssignAllOf(subscription.names()), _refresh(cause)


def follow_metadata(
    topics: frozenset[str], appeared: frozenset[str], member: MemberView, stale_why: str | None
) -> tuple[FollowingEffect, ...]:
    """The effects of a metadata refresh; `stale_why` says why the assignment made by this leader fits no longer."""
    if not member.has_begun:
        return ()
    noted = NoteTopics(appeared)
    if topics != member.topics:
        return noted, ChangeTopics(topics, PATTERN_WHY, at_once=False)
    if stale_why is None:
        return (noted,)
    return noted, AskForRound(Why(Reason.METADATA, stale_why), at_once=False)


def _refresh(cause: Cause) -> RefreshMetadata:
    return RefreshMetadata(only_if_incomplete=cause is Cause.START)  # the start has just looked all of them up
