"""What the tasks have to do when the subscription changes, or what the metadata says of it.

Decided here and carried out upstairs, in this order: each effect may count on those before it.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from aiogroup.membership.states import MemberState
from aiogroup.structs import TopicPartition
from aiogroup.subscription import Subscription
from aiogroup.values import dataclass

__all__ = [
    "AskForRound",
    "AssignAllOf",
    "AssignToSelf",
    "BeginAutoCommit",
    "BeginMembership",
    "Cause",
    "ChangeTopics",
    "CommitAs",
    "Effect",
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
    """Why the tasks look at the subscription; the value is what events and the broker's log say."""

    START = "start"
    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"
    UNSUBSCRIBE = "unsubscribe"
    GROUP_LEFT = "the group was left"


@dataclass(frozen=True, slots=True)
class MemberView:
    """What counts of the member for this: `topics` are those that it told the group, `has_begun` that its tasks run."""

    state: MemberState
    topics: frozenset[str]
    has_begun: bool


@dataclass(frozen=True, slots=True)
class PrepareForSelf:
    """These partitions will be assigned by the application's own word: until then they can be moved and paused."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AssignToSelf:
    """These partitions are ours, and no others; no group decides. What goes is committed first."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AssignAllOf:
    """All partitions of these topics are ours, without a group. `appeared`: were made since they were subscribed to."""

    topics: frozenset[str]
    appeared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitAs:
    """Commits are a member's from now on, or nobody's."""

    is_member: bool


@dataclass(frozen=True, slots=True)
class BeginMembership:
    """Start the member's tasks, unless they run."""


@dataclass(frozen=True, slots=True)
class BeginAutoCommit:
    """Start auto-commit alone, unless it runs: partitions that the application assigned are committed without them."""


@dataclass(frozen=True, slots=True)
class ChangeTopics:
    """Tell the member. `at_once`: the application asked for it itself, so that no hand-over point is waited for."""

    topics: frozenset[str]
    why: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class AskForRound:
    """The group is to give the partitions out again; `at_once` as in `ChangeTopics`."""

    why: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class NoteTopics:
    """Remember how many partitions the topics have. Those of topics that `appeared` are all new to the group."""

    appeared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Look the topics up; with `only_if_incomplete` where some are not known."""

    only_if_incomplete: bool


GroupEffect: TypeAlias = CommitAs | BeginMembership | BeginAutoCommit | ChangeTopics | AskForRound | NoteTopics
Effect: TypeAlias = PrepareForSelf | AssignToSelf | AssignAllOf | RefreshMetadata | GroupEffect


def follow(subscription: Subscription, member: MemberView, cause: Cause, *, owns: bool) -> tuple[Effect, ...]:
    """What a member does when its application changed the subscription; `owns`: partitions are assigned.

    From topics to partitions of its own, and back, the way leads over leaving the group: what the group gave is given
    up, and committed for the group, before anything is assigned without it. `GROUP_LEFT` is the cause then.
    """
    is_manual, has_left = subscription.is_manual, member.state is MemberState.LEFT
    effects: list[Effect] = []
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
        elif cause is Cause.SUBSCRIBE:  # the same topics, perhaps with another listener: it hears what is assigned
            effects.append(AskForRound(cause.value, at_once=True))
        effects.append(NoteTopics())
    return (*effects, _refresh(cause))


def follow_alone(subscription: Subscription, cause: Cause) -> tuple[Effect, ...]:
    """The same for a consumer without a group."""
    if subscription.is_manual:
        return AssignToSelf(subscription.assigned), _refresh(cause)
    return AssignAllOf(subscription.names()), _refresh(cause)


def follow_metadata(
    topics: frozenset[str], appeared: frozenset[str], member: MemberView, stale_why: str | None
) -> tuple[Effect, ...]:
    """What a member does after a refresh; `stale_why`: the assignment that it made as leader fits no more."""
    if not member.has_begun:
        return ()
    noted = NoteTopics(appeared)
    if topics != member.topics:
        return noted, ChangeTopics(topics, PATTERN_WHY, at_once=False)
    return (noted,) if stale_why is None else (noted, AskForRound(stale_why, at_once=False))


def _refresh(cause: Cause) -> RefreshMetadata:
    return RefreshMetadata(only_if_incomplete=cause is Cause.START)  # which has just looked all of them up
