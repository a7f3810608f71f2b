"""What can happen to a member (facts, past tense) and what it may ask to be done (effects, imperative)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from aiogroup.errors import AiogroupError
from aiogroup.membership.identity import Identity
from aiogroup.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup.structs import TopicPartition
from aiogroup.values import dataclass

T = TypeVar("T")

# Facts. `identity` is who we were when the request was sent: an answer to an older self changes nothing.


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    topics: frozenset[str]
    why: str


@dataclass(frozen=True, slots=True)
class RejoinWanted:
    """Something outside of the coordinator asks for a new round (metadata, `enforce_rebalance`)."""

    why: str


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What had to be given up is, at the hand-over point, and every commit in flight has settled."""


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    identity: Identity
    response: JoinGroupResponse


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    identity: Identity
    response: SyncGroupResponse


@dataclass(frozen=True, slots=True)
class RequestLost:
    """JoinGroup or SyncGroup got no answer: connection broken or time-out."""

    identity: Identity
    why: str


@dataclass(frozen=True, slots=True)
class RequestDropped:
    """A request was no longer what the member wants when it was to be written: nothing was sent."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """Positions are known and the assigned callback has returned."""

    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    identity: Identity
    error_code: int


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The coordinator refused a commit with a code about the membership."""

    identity: Identity
    error_code: int


@dataclass(frozen=True, slots=True)
class CoordinatorGone:
    """The coordinator moved or is silent, whatever it was asked for: what it had not written down is forgotten."""


@dataclass(frozen=True, slots=True)
class NameNotCarried:
    """The coordinator speaks no version of JoinGroup that has a static member's name."""


@dataclass(frozen=True, slots=True)
class PollIntervalPassed:
    """`left_as` is the member id for which the heartbeat thread has said good-bye already."""

    left_as: str = ""


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """The application asks for records again."""


@dataclass(frozen=True, slots=True)
class LeaveWanted:
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Something outside of the protocol failed for good (not authorized to find the coordinator)."""

    error: AiogroupError


Fact: TypeAlias = (
    SubscriptionChanged
    | RejoinWanted
    | HandedOver
    | JoinAnswered
    | AssignmentComputed
    | SyncAnswered
    | RequestLost
    | RequestDropped
    | Adopted
    | HeartbeatAnswered
    | CommitRefused
    | CoordinatorGone
    | NameNotCarried
    | PollIntervalPassed
    | RecordsWanted
    | LeaveWanted
    | Failed
)

# Effects.


@dataclass(frozen=True, slots=True)
class HandOver:
    """Wait for the hand-over point (unless the generation ends before), revoke, commit; then say `HandedOver`.

    `keeps`: only what we are not subscribed to any more is revoked (cooperative), and its commit waits for nobody.
    """

    why: str
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class ComputeAssignment:
    """We lead: run the assignor over the members' subscriptions; then say `AssignmentComputed`.

    With `only_watch` everybody keeps what they have: compute nothing, but watch the members' topics from now on.
    """

    generation: int
    assignor: str
    members: tuple[tuple[str, str | None, bytes], ...]
    only_watch: bool = False


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take these partitions over: positions, then the assigned callback; then say `Adopted`."""

    generation: int
    partitions: tuple[TopicPartition, ...]
    is_leader: bool


@dataclass(frozen=True, slots=True)
class Fail:
    error: AiogroupError


Effect: TypeAlias = HandOver | ComputeAssignment | Adopt | Fail
Request: TypeAlias = JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest


class Outbox(list[T]):
    """What waits for whoever carries it out, in order."""

    def take(self) -> tuple[T, ...]:
        taken = tuple(self)
        self.clear()
        return taken


@dataclass(frozen=True, slots=True)
class Step:
    """One turn: what to do now, in order, and when to ask again (`None`: only a fact can move me)."""

    requests: tuple[Request, ...] = ()
    effects: tuple[Effect, ...] = ()
    wake_at_ms: int | None = None
