"""What can happen to a member (facts, past tense) and what it may ask to be done (effects, imperative)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, TypeVar

from aiogroup._core.membership.identity import Identity
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup._core.values import dataclass
from aiogroup.errors import AiogroupError
from aiogroup.structs import TopicPartition

T = TypeVar("T")


class Reason(StrEnum):
    """Why a rebalance began, in eight words, for figures: prose may hold the names of topics and members."""

    JOINING = "joining"
    """The member was in no group."""
    GROUP = "group"
    """The coordinator says that the group rebalances; the cause is another member's."""
    SUBSCRIPTION = "subscription"
    METADATA = "metadata"
    """The leader's assignment does not fit the topics, or leaves partitions to nobody."""
    COOPERATIVE = "cooperative"
    """What was given up in one round is assigned in the next (KIP-429)."""
    ASKED_AGAIN = "asked_again"
    """The application asks for records again, after a poll interval without a request."""
    MEMBERSHIP = "membership"
    """The generation ended, or a request of the join failed."""
    OTHER = "other"
    """The application asked for it: `enforce_rebalance`."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a round is wanted: in one word, and in prose for the log and the broker (KIP-800)."""

    reason: Reason
    text: str


# Facts. `identity` is the member's when the request was sent: an answer under an older identity changes nothing. Only
# FENCED_INSTANCE_ID under an older generation counts, as it is about the static name and the member id alone.


@dataclass(frozen=True, slots=True)
class SubscriptionChanged:
    topics: frozenset[str]
    why: str


@dataclass(frozen=True, slots=True)
class RejoinWanted:
    """Something other than the coordinator asks for a new round: the metadata, or `enforce_rebalance`."""

    why: Why


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The partitions to give up were given up at the hand-over point, and no commit is under way any more."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """Positions are known and the assigned callback has returned."""

    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    identity: Identity
    error_code: int


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The coordinator answered a commit with an error code that is about the membership, not about the offsets."""

    identity: Identity
    error_code: int


@dataclass(frozen=True, slots=True)
class CoordinatorGone:
    """The coordinator moved, or does not answer: state that it had not written to its log may be forgotten."""


@dataclass(frozen=True, slots=True)
class NameNotCarried:
    """The coordinator speaks no version of JoinGroup that has a static member's name."""


@dataclass(frozen=True, slots=True)
class PollIntervalPassed:
    """`left_as` is the member id for which the heartbeat thread has already sent LeaveGroup."""

    left_as: str = ""


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """The application asks for records again."""


@dataclass(frozen=True, slots=True)
class LeaveWanted:
    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Something outside of the protocol failed for good: the principal may not look up the coordinator, for example."""

    error: AiogroupError


# Facts of the classic protocol alone.


@dataclass(frozen=True, slots=True)
class ApisAnswered:
    """The coordinator says which APIs and features it has."""

    identity: Identity
    response: ApiVersionsResponse


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    identity: Identity
    response: JoinGroupResponse


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """`withheld` are the partitions that their owners must give up before a next round can assign them (KIP-429)."""

    generation: int
    assignments: Mapping[str, bytes]
    withheld: frozenset[TopicPartition] = frozenset()


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
    """Nothing was sent: when the request was to be written, the member did not want it any more."""


Fact: TypeAlias = (
    SubscriptionChanged
    | RejoinWanted
    | HandedOver
    | Adopted
    | HeartbeatAnswered
    | CommitAnswered
    | CoordinatorGone
    | NameNotCarried
    | PollIntervalPassed
    | RecordsWanted
    | LeaveWanted
    | Failed
    | ApisAnswered
    | JoinAnswered
    | AssignmentComputed
    | SyncAnswered
    | RequestLost
    | RequestDropped
)

# Effects.


@dataclass(frozen=True, slots=True)
class HandOver:
    """Wait for the hand-over point or the end of the generation, revoke, commit; then report `HandedOver`.

    With `keeps` (cooperative) only partitions of topics that are not subscribed to any more are revoked. The fact that
    asks for the round came in at `since_ms`; `None` where none did before this effect.
    """

    why: Why
    keeps: bool = False
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take these partitions over: find their positions, run the assigned callback; then report `Adopted`."""

    generation: int
    partitions: tuple[TopicPartition, ...]
    is_leader: bool


@dataclass(frozen=True, slots=True)
class Fail:
    error: AiogroupError


# Effects of the classic protocol alone.


@dataclass(frozen=True, slots=True)
class ComputeAssignment:
    """This member leads: run the assignor over the members' subscriptions; then report `AssignmentComputed`.

    With `only_watch` every member keeps its partitions: compute nothing, but watch the members' topics from now on.
    """

    generation: int
    assignor: str
    members: tuple[tuple[str, str | None, bytes], ...]
    only_watch: bool = False


@dataclass(frozen=True, slots=True)
class CheckWithheld:
    """No round has followed although owners should have given these partitions up: look at their subscriptions.

    If one of the partitions is claimed by no member any more, report `RejoinWanted`.
    """

    withheld: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class CheckUnread:
    """A static member came back, perhaps with other topics, and has no partition of these: look who reads them.

    If nobody does although they have partitions, report `RejoinWanted`.
    """

    topics: frozenset[str]


Effect: TypeAlias = HandOver | Adopt | Fail | ComputeAssignment | CheckWithheld | CheckUnread
Request: TypeAlias = ApiVersionsRequest | JoinGroupRequest | SyncGroupRequest | LeaveGroupRequest


class Outbox(list[T]):
    """Effects or requests that wait, in order, for the task that carries them out."""

    def take(self) -> tuple[T, ...]:
        taken = tuple(self)
        self.clear()
        return taken


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now, in order, and when to call `poll` again (`None`: only after the next fact)."""

    requests: tuple[Request, ...] = ()
    effects: tuple[Effect, ...] = ()
    wake_at_ms: int | None = None
