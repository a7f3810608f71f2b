"""The member in the heartbeat thread: the newest snapshot of the real member, and the decisions that cannot wait.

The member itself lives in the main loop. After each change the thread gets a new `MemberSnapshot`, an immutable value;
what the thread learns goes back as facts. While the main loop is blocked, a `ThreadMember` decides only two things:
which answers end the heartbeats, and that LeaveGroup is sent when the poll interval passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiogroup._core.cluster import Broker
from aiogroup._core.membership import facts as f
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.remedies import Remedy, Rpc, remedy_for
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest

__all__ = ["MemberSnapshot", "ThreadMember"]

ENDING: Final = frozenset(
    {
        Remedy.FORGET_MEMBER,
        Remedy.NEXT_GENERATION,
        Remedy.FENCED,
        Remedy.NOT_AUTHORIZED,
        Remedy.INCONSISTENT,
        Remedy.FATAL,
    }
)
"""Remedies for answers to a heartbeat after which no more heartbeats are sent under the same identity."""


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """The member's identity, whether heartbeats go out, and the coordinator that the main loop last found.

    `farewell` is the LeaveGroup to send when the poll interval passes, `None` for a member that goes silent. `node_id`
    is -1 while no coordinator is known. `era` counts the changes of identity: a static member that was parked may come
    back with the same identity as before, but in another era.
    """

    identity: Identity
    may_heartbeat: bool
    farewell: LeaveGroupRequest | None = None
    node_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    era: int = 0


class ThreadMember:
    """The member in the heartbeat thread: `snapshot()` gives its newest snapshot, `pass_on` takes facts to it."""

    def __init__(self, snapshot: Callable[[], MemberSnapshot], pass_on: Callable[[f.Fact], None]) -> None:
        self._snapshot = snapshot
        self._pass_on = pass_on
        self._era_over = -1  # the era in which heartbeats have ended
        self.farewells: f.Outbox[LeaveGroupRequest] = f.Outbox()

    @property
    def identity(self) -> Identity:
        return self._snapshot().identity

    @property
    def may_heartbeat(self) -> bool:
        snapshot = self._snapshot()
        return snapshot.may_heartbeat and snapshot.era != self._era_over

    @property
    def heartbeats_as(self) -> Identity | None:
        return self.identity if self.may_heartbeat else None

    def handle(self, fact: f.Fact, now_ms: int) -> None:
        """Pass the fact on to the member. If it ends the heartbeats, they end at once: the main loop may be blocked."""
        snapshot = self._snapshot()
        match fact:
            case f.HeartbeatAnswered() if fact.identity == snapshot.identity:
                if remedy_for(Rpc.HEARTBEAT, fact.error_code) in ENDING:
                    self._era_over = snapshot.era
            case f.PollIntervalPassed():
                self._era_over = snapshot.era
                if snapshot.farewell is not None:
                    self.farewells.append(snapshot.farewell)
                fact = f.PollIntervalPassed(left_as=snapshot.identity.member_id)
            case f.Failed():
                self._era_over = snapshot.era
            case _:
                pass
        self._pass_on(fact)
