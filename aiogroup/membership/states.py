"""Where a member stands, and every move it may make: `ClassicMembership` makes no other, and nobody else makes any.

Theory of operation
-------------------
A member begins LEFT. With topics to read it is UNJOINED and PREPARES: the application hands over what it holds, the
partitions are revoked (or found lost) and what was processed is committed. Only then JoinGroup is sent: from then on
another member may be given what we held. JOINING ends with a generation; the leader computes the assignment and all are
SYNCING until the coordinator says what is whose. ADOPTING looks up positions and runs the assigned callback; then the
member is STABLE and records flow.

The eager protocol gives everything up before it joins, so an answer that sends us back while JOINING or SYNCING needs
no second preparation: there is nothing left to hand over. The cooperative one (KIP-429) keeps what it has: the member
claims it in JoinGroup, records flow all the time, and only what the round gave to nobody or to others is revoked, while
ADOPTING; then the member joins once more, so that it can be given to somebody. A claim that the coordinator does not
know, or that another round may have overtaken, sends the member back to PREPARING.

A stalled application PARKS the member (KIP-62): it has left, and comes back when records are asked for. LEFT is a
member without a subscription or one that was stopped. FAILED is for what no retry can mend (fenced, not authorized).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["ENDS", "HEARTBEATING", "MOVES", "MemberState"]


class MemberState(StrEnum):
    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    SYNCING = "syncing"
    ADOPTING = "adopting"
    STABLE = "stable"
    PARKED = "parked"
    LEFT = "left"
    FAILED = "failed"


ENDS: Final = frozenset({MemberState.PARKED, MemberState.LEFT, MemberState.FAILED})
"""Where a member is in no group and asks for nothing."""

MOVES: Final[dict[MemberState, frozenset[MemberState]]] = {
    MemberState.UNJOINED: frozenset({MemberState.PREPARING}) | ENDS,
    MemberState.PREPARING: frozenset({MemberState.JOINING}) | ENDS,
    MemberState.JOINING: frozenset({MemberState.SYNCING, MemberState.PREPARING}) | ENDS,
    MemberState.SYNCING: frozenset({MemberState.JOINING, MemberState.ADOPTING, MemberState.PREPARING}) | ENDS,
    MemberState.ADOPTING: frozenset({MemberState.STABLE}) | ENDS,
    MemberState.STABLE: frozenset({MemberState.PREPARING}) | ENDS,
    MemberState.PARKED: frozenset({MemberState.PREPARING, MemberState.LEFT, MemberState.FAILED}),
    MemberState.LEFT: frozenset({MemberState.UNJOINED, MemberState.FAILED}),
    MemberState.FAILED: frozenset({MemberState.LEFT}),
}
"""From each state, where to. Every state but FAILED has a way back to STABLE."""

HEARTBEATING: Final = frozenset({MemberState.PREPARING, MemberState.SYNCING, MemberState.ADOPTING, MemberState.STABLE})
"""Where silence would cost the membership.

A parked JoinGroup is itself a sign of life to the coordinator. A member that keeps partitions while it joins sends
heartbeats all the same, for an answer: see `ClassicMembership.heartbeats_as`.
"""
