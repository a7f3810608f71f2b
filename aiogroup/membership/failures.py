"""What the application is told when no retry helps: what happened, and what to change."""

from __future__ import annotations

from collections.abc import Iterable

from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)
from aiogroup.membership.identity import Identity
from aiogroup.membership.remedies import Remedy
from aiogroup.protocol.errors import ErrorCode, lookup

__all__ = ["failure_of"]


def failure_of(
    remedy: Remedy, code: int, who: Identity, session_timeout_ms: int, assignors: Iterable[str]
) -> AiogroupError:
    """The error for `code`, told to the member `who`, which offers `assignors`."""
    match remedy:
        case Remedy.FENCED:
            return FencedInstanceIdError(
                f"another member of group {who.group_id!r} uses group_instance_id={who.instance_id!r} now; give "
                "each process a name of its own"
            )
        case Remedy.NOT_AUTHORIZED:
            return GroupAuthorizationError(
                f"not authorized for group {who.group_id!r}: grant READ on the group to this principal"
            )
        case Remedy.INCONSISTENT:
            return InconsistentGroupProtocolError(
                f"no other member of group {who.group_id!r} offers any of {', '.join(assignors)}: add an assignor the "
                "group uses to partition_assignment_strategy"
            )
        case _ if code == ErrorCode.INVALID_SESSION_TIMEOUT:
            return InvalidSessionTimeoutError(
                f"the broker refuses session_timeout_ms={session_timeout_ms}: it must lie between the broker's "
                "group.min.session.timeout.ms (6000 by default) and group.max.session.timeout.ms (1800000)"
            )
        case _:
            row = lookup(code)
            return BrokerError(code, row.name, f"group {who.group_id!r}: {row.message}")
