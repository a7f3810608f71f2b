"""The errors for which no retry helps: each tells the application what happened and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

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
from aiogroup.membership.settings import GroupSettings
from aiogroup.protocol.errors import ErrorCode, lookup

__all__ = ["PROTOCOL_TYPE", "failure_of", "mismatch_of"]

PROTOCOL_TYPE: Final = "consumer"


def failure_of(
    remedy: Remedy, code: int, who: Identity, settings: GroupSettings, assignors: Iterable[str]
) -> AiogroupError:
    """The error for `code` in an answer to the member `who`, which offers `assignors`."""
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
            setting, timeout_ms = settings.session_of(who)
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
