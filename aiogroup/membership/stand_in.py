"""The membership as the heartbeat thread sees it: what it was told last, and what follows from that alone.

The member itself lives in the main loop. Each change of it reaches the thread as a new `Standing`, an immutable value;
what the thread learns goes back as facts. While the main loop is blocked a `StandIn` decides the little that cannot
wait: which answers end the heartbeats, and to say good-bye when the poll interval passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from aiogroup.cluster import Broker
from aiogroup.membership import facts as f
from aiogroup.membership.identity import Identity
from aiogroup.membership.remedies import Remedy, Rpc, remedy_for
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest

__all__ = ["Member", "StandIn", "Standing"]

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
"""Answers to a heartbeat after which the identity it was sent for sends no more."""


class Member(Protocol):
    """What heartbeats need of a membership: facts in, whom to speak for, and what to leave with."""

    @property
    def identity(self) -> Identity: ...
    @property
    def heartbeats_as(self) -> Identity | None: ...
    def handle(self, fact: f.Fact, now_ms: int) -> None: ...
    @property
    def farewells(self) -> f.Outbox[LeaveGroupRequest]: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """Who the member is to its coordinator, whether heartbeats go out, and where the main loop last found it.

    `farewell` is what to send when the poll interval passes, `None` for a member that goes silent. `node_id` is -1
    while no coordinator is known. `era` counts the identities: a static member that was parked may come back as exactly
    who it was, and that is another era.
    """

    identity: Identity
    may_heartbeat: bool
    farewell: LeaveGroupRequest | None = None
    node_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    era: int = 0


class StandIn:
    """Stands in for the membership: `standing()` gives what is known now, `pass_on` takes each fact to the member."""

    def __init__(self, standing: Callable[[], Standing], pass_on: Callable[[f.Fact], None]) -> None:
        self._standing = standing
        self._pass_on = pass_on
        self._era_over = -1  # in this one heartbeats have ended
        self.farewells: f.Outbox[LeaveGroupRequest] = f.Outbox()

    @property
    def identity(self) -> Identity:
        return self._standing().identity

    @property
    def may_heartbeat(self) -> bool:
        standing = self._standing()
        return standing.may_heartbeat and standing.era != self._era_over

    @property
    def heartbeats_as(self) -> Identity | None:
        return self.identity if self.may_heartbeat else None

    def handle(self, fact: f.Fact, now_ms: int) -> None:
        """Pass the fact on; heartbeats end where it ends them, whenever the main loop comes to look at it."""
        standing = self._standing()
        match fact:
            case f.HeartbeatAnswered() if fact.identity == standing.identity:
                if remedy_for(Rpc.HEARTBEAT, fact.error_code) in ENDING:
                    self._era_over = standing.era
            case f.PollIntervalPassed():
                self._era_over = standing.era
                if standing.farewell is not None:
                    self.farewells.append(standing.farewell)
                fact = f.PollIntervalPassed(left_as=standing.identity.member_id)
            case f.Failed():
                self._era_over = standing.era
            case _:
                pass
        self._pass_on(fact)
