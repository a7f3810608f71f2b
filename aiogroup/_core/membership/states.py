"""The states of a member and its legal moves: `ClassicMembership` makes no other move, and nothing else makes any.

The names of the states serve every group protocol. `MOVES`, `HEARTBEATING` and the description below are those of the
classic protocol.

Theory of operation
-------------------
A member begins LEFT. With topics to read it is UNJOINED, and then PREPARING: the application hands over the records
that it holds, the partitions are revoked (or found lost), and processed offsets are committed. Only then is JoinGroup
sent: from then on another member may get the same partitions. JOINING ends with a generation. While all members are
SYNCING, the leader computes the assignment, and the coordinator then gives each member its part. While ADOPTING, the
member looks up positions and runs the assigned callback; then it is STABLE, and records flow.

An eager member gives everything up before it joins. So an answer that sends it back while JOINING or SYNCING needs no
second preparation: there is nothing left to hand over. A cooperative member (KIP-429) keeps its partitions and claims
them in JoinGroup, and records flow all the time. Partitions that the round did not assign to it again are revoked while
ADOPTING; then it joins once more, so that the group can assign them to others. A claim that the coordinator does not
know, or that another round may have overtaken, sends the member back to PREPARING.

A stalled application makes the member PARKED (KIP-62): it has left the group, and comes back when records are asked
for. LEFT is a member without a subscription, or one that was stopped. A member is FAILED when no retry can help: it was
fenced, or is not authorized.
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
"""States in which a member is in no group and asks for nothing."""

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
"""The legal next states of each state. Every state but FAILED has a way back to STABLE."""

HEARTBEATING: Final = frozenset({MemberState.PREPARING, MemberState.SYNCING, MemberState.ADOPTING, MemberState.STABLE})
"""States in which a member that sent no heartbeats would lose its membership.

JOINING is not one of them: to the coordinator a JoinGroup that it has not answered yet is itself a sign of life. A
member that keeps partitions while it joins sends heartbeats nevertheless: see `ClassicMembership.heartbeats_as`.
"""
