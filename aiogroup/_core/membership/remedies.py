"""The error table of the group protocol: (request, error code) -> remedy; and the errors when no retry helps.

What is too long in a commit `CommitOrder.too_long` decides before it. The sources of the table are Kafka's
AbstractCoordinator.java, ConsumerCoordinator.java and the codes that each response documents. A row that differs from
Java says why. For a code without a row `remedy_for` goes by whether Kafka calls it retriable. A test lists every code
that Kafka documents for these requests and fails on a missing row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final

from aiogroup._core.membership.identity import Identity
from aiogroup._core.protocol.consumer_protocol import PROTOCOL_TYPE
from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.errors import lookup
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)

__all__ = [
    "FATAL_TO_HEARTBEATS",
    "NOT_READY",
    "Remedy",
    "Rpc",
    "failure_of",
    "is_expected_at_start",
    "mismatch_of",
    "not_authorized_error",
    "remedy_for",
]


class Rpc(Enum):
    FIND_COORDINATOR = auto()
    JOIN_GROUP = auto()
    SYNC_GROUP = auto()
    HEARTBEAT = auto()
    LEAVE_GROUP = auto()
    OFFSET_COMMIT = auto()
    OFFSET_FETCH = auto()


class Remedy(Enum):
    PROCEED = auto()
    """No error."""
    RETRY = auto()
    """The same request, after a backoff."""
    REFRESH = auto()
    """The metadata may be out of date, for example when a topic was recreated: refresh it, then the same request."""
    REDISCOVER = auto()
    """Look the coordinator up again, then the same request; the member id is kept."""
    REJOIN = auto()
    """Go through a rebalance; the member keeps its identity and its partitions."""
    NEXT_GENERATION = auto()
    """The generation is over for this member: partitions are lost, the member id is kept."""
    FORGET_MEMBER = auto()
    """The coordinator does not know this member: partitions are lost, join as a newcomer."""
    TAKE_MEMBER_ID = auto()
    """Join again with the id in the answer (KIP-394)."""
    FENCED = auto()
    """Another member has the static name: fatal."""
    NOT_AUTHORIZED = auto()
    """Fatal until an ACL changes."""
    INCONSISTENT = auto()
    """No assignor in common: fatal."""
    FATAL = auto()
    """Repeating cannot help: raise it to the application."""
    REFUSE_PARTITION = auto()
    """This partition of the request failed; the others stand. Raised to the caller."""
    DONE = auto()
    """The error means that the request is not needed: its goal is reached already."""


FATAL_TO_HEARTBEATS: Final = frozenset({Remedy.FATAL, Remedy.INCONSISTENT, Remedy.NOT_AUTHORIZED})
"""Remedies that end the membership if they are those of a heartbeat's answer: without heartbeats there is no member.

If they are those of a commit's answer, only the caller of that commit gets the error.
"""

NOT_READY: Final = frozenset({E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR})
"""The answers of a coordinator that still loads the group's log, and of a broker that does not coordinate the group."""

START_MS: Final = 10_000
"""How long a cluster may take to make its offsets topic for its first group, before that is worth a warning."""

_COORDINATOR: Final = {
    E.COORDINATOR_NOT_AVAILABLE: Remedy.REDISCOVER,
    E.NOT_COORDINATOR: Remedy.REDISCOVER,
    E.NETWORK_EXCEPTION: Remedy.REDISCOVER,
}
_ALWAYS: Final = {
    E.NONE: Remedy.PROCEED,
    E.UNKNOWN_SERVER_ERROR: Remedy.RETRY,  # Java raises it; a broker that restarts sends it and recovers
    E.GROUP_AUTHORIZATION_FAILED: Remedy.NOT_AUTHORIZED,
    E.UNSUPPORTED_VERSION: Remedy.FATAL,
    E.INVALID_REQUEST: Remedy.FATAL,
    E.INVALID_GROUP_ID: Remedy.FATAL,
}

_TABLE: Final[dict[Rpc, dict[E, Remedy]]] = {
    Rpc.FIND_COORDINATOR: {
        **_ALWAYS,
        E.COORDINATOR_NOT_AVAILABLE: Remedy.RETRY,
        E.COORDINATOR_LOAD_IN_PROGRESS: Remedy.RETRY,
        E.NOT_COORDINATOR: Remedy.RETRY,
    },
    Rpc.JOIN_GROUP: {
        **_ALWAYS,
        **_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS: Remedy.RETRY,
        E.REBALANCE_IN_PROGRESS: Remedy.RETRY,
        E.UNKNOWN_MEMBER_ID: Remedy.FORGET_MEMBER,
        E.MEMBER_ID_REQUIRED: Remedy.TAKE_MEMBER_ID,
        E.ILLEGAL_GENERATION: Remedy.NEXT_GENERATION,
        E.FENCED_INSTANCE_ID: Remedy.FENCED,
        E.INCONSISTENT_GROUP_PROTOCOL: Remedy.INCONSISTENT,
        E.INVALID_SESSION_TIMEOUT: Remedy.FATAL,
        E.GROUP_MAX_SIZE_REACHED: Remedy.FATAL,
    },
    Rpc.SYNC_GROUP: {
        **_ALWAYS,
        **_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS: Remedy.REJOIN,  # Java raises; the new coordinator only needs a moment
        E.REBALANCE_IN_PROGRESS: Remedy.REJOIN,
        E.UNKNOWN_MEMBER_ID: Remedy.FORGET_MEMBER,
        E.ILLEGAL_GENERATION: Remedy.NEXT_GENERATION,
        E.FENCED_INSTANCE_ID: Remedy.FENCED,
        E.INCONSISTENT_GROUP_PROTOCOL: Remedy.INCONSISTENT,
    },
    Rpc.HEARTBEAT: {
        **_ALWAYS,
        **_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS: Remedy.RETRY,
        E.REBALANCE_IN_PROGRESS: Remedy.REJOIN,
        E.UNKNOWN_MEMBER_ID: Remedy.FORGET_MEMBER,
        E.ILLEGAL_GENERATION: Remedy.NEXT_GENERATION,
        E.FENCED_INSTANCE_ID: Remedy.FENCED,
    },
    Rpc.LEAVE_GROUP: {
        **_ALWAYS,
        **_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS: Remedy.RETRY,
        E.UNKNOWN_MEMBER_ID: Remedy.DONE,
        E.FENCED_INSTANCE_ID: Remedy.DONE,
    },
    Rpc.OFFSET_COMMIT: {
        **_ALWAYS,
        **_COORDINATOR,
        E.REQUEST_TIMED_OUT: Remedy.REDISCOVER,
        E.COORDINATOR_LOAD_IN_PROGRESS: Remedy.RETRY,
        E.UNKNOWN_TOPIC_OR_PARTITION: Remedy.REFRESH,
        E.UNKNOWN_TOPIC_ID: Remedy.REFRESH,  # Java retries with the same id, which is refused if the topic was deleted
        E.INCONSISTENT_TOPIC_ID: Remedy.REFRESH,  # no broker is known to send it here; it means UNKNOWN_TOPIC_ID
        E.REBALANCE_IN_PROGRESS: Remedy.REJOIN,
        E.UNKNOWN_MEMBER_ID: Remedy.FORGET_MEMBER,
        E.ILLEGAL_GENERATION: Remedy.NEXT_GENERATION,
        E.GROUP_ID_NOT_FOUND: Remedy.NEXT_GENERATION,
        E.STALE_MEMBER_EPOCH: Remedy.NEXT_GENERATION,
        E.FENCED_INSTANCE_ID: Remedy.FENCED,
        E.NO_STATIC_MEMBER_INFO_SET: Remedy.FATAL,  # of KIP-345's draft: the member goes on
        E.OFFSET_METADATA_TOO_LARGE: Remedy.REFUSE_PARTITION,
        E.INVALID_COMMIT_OFFSET_SIZE: Remedy.REFUSE_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED: Remedy.REFUSE_PARTITION,
    },
    Rpc.OFFSET_FETCH: {
        **_ALWAYS,
        **_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS: Remedy.RETRY,
        E.UNSTABLE_OFFSET_COMMIT: Remedy.RETRY,
        E.UNKNOWN_TOPIC_OR_PARTITION: Remedy.REFRESH,
        E.UNKNOWN_TOPIC_ID: Remedy.REFRESH,
        E.INCONSISTENT_TOPIC_ID: Remedy.REFRESH,
        E.REBALANCE_IN_PROGRESS: Remedy.RETRY,
        E.UNKNOWN_MEMBER_ID: Remedy.FORGET_MEMBER,
        E.STALE_MEMBER_EPOCH: Remedy.RETRY,
        E.GROUP_ID_NOT_FOUND: Remedy.FATAL,  # sent to KIP-848 members only; it never means that nothing is committed
        E.TOPIC_AUTHORIZATION_FAILED: Remedy.REFUSE_PARTITION,
    },
}


def rows(rpc: Rpc) -> frozenset[int]:
    """The codes that have a row for this request."""
    return frozenset(int(code) for code in _TABLE[rpc])


def remedy_for(rpc: Rpc, code: int) -> Remedy:
    """The remedy for `code` in the answer to `rpc`; for a code without a row: retry if Kafka calls it retriable."""
    row = {int(known): remedy for known, remedy in _TABLE[rpc].items()}.get(code)
    if row is not None:
        return row
    return Remedy.RETRY if lookup(code).retriable else Remedy.FATAL


def is_expected_at_start(code: int, since_ms: int) -> bool:
    """Whether a new member may well be answered `code`, `since_ms` after it began to join: on a fresh cluster the first
    group has the brokers make the offsets topic, and its coordinator has to load it.
    """
    return code in NOT_READY and since_ms < START_MS


def not_authorized_error(group_id: str, operation: str = "READ") -> GroupAuthorizationError:
    """The error for a principal that may not do this operation on the group.

    Kafka asks for DESCRIBE to find the coordinator, to describe the group and to fetch its offsets, and for READ, which
    includes DESCRIBE, to be a member and to commit (KafkaApis).
    """
    return GroupAuthorizationError(
        f"not authorized for group {group_id!r}: grant {operation} on the group to this principal"
    )


def failure_of(
    remedy: Remedy, code: int, who: Identity, session: tuple[str, int], assignors: Iterable[str]
) -> AiogroupError:
    """The error for `code` in an answer to the member `who`, which announces this session and offers `assignors`."""
    match remedy:
        case Remedy.FENCED:
            return FencedInstanceIdError(
                f"another member of group {who.group_id!r} uses group_instance_id={who.instance_id!r} now; give "
                "each process a name of its own"
            )
        case Remedy.NOT_AUTHORIZED:
            return not_authorized_error(who.group_id)
        case Remedy.INCONSISTENT:
            return InconsistentGroupProtocolError(
                f"no other member of group {who.group_id!r} offers any of {', '.join(assignors)}: add an assignor the "
                "group uses to partition_assignment_strategy"
            )
        case _ if code == E.INVALID_SESSION_TIMEOUT:
            setting, timeout_ms = session
            return InvalidSessionTimeoutError(
                f"the broker refuses {setting}={timeout_ms}: it must lie between the broker's "
                "group.min.session.timeout.ms (6000 by default) and group.max.session.timeout.ms (1800000 by default, "
                "30 minutes)"
            )
        case _:
            row = lookup(code)
            return BrokerError(code, row.name, f"group {who.group_id!r}: {row.message}")


def mismatch_of(
    who: Identity, protocol_type: str | None, assignor: str | None, offered: Sequence[str]
) -> AiogroupError | None:
    """The error for an answer that names another type of group, or an assignor that this member did not offer.

    `protocol_type` is `None` when the version of the answer has no such field.
    """
    if protocol_type not in (None, PROTOCOL_TYPE):
        return InconsistentGroupProtocolError(
            f"group {who.group_id!r} is of type {protocol_type!r}, not {PROTOCOL_TYPE!r}: use another group_id"
        )
    if assignor not in offered:
        return InconsistentGroupProtocolError(
            f"the coordinator of group {who.group_id!r} chose the assignor {assignor!r}; offered: {', '.join(offered)}"
        )
    return None
