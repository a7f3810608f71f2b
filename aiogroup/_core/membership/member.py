"""What the runtime asks of a membership, whichever group protocol it speaks.

A group protocol is a class with these methods in a folder of its own (`classic/`). No file outside of that folder and
of `_runtime/membership/classic/` imports from them, except `_runtime/build.py`.
"""

from __future__ import annotations

from typing import Protocol

from aiogroup._core.cluster import Cluster
from aiogroup._core.membership import facts as f
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.states import MemberState
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup.errors import AiogroupError

__all__ = ["Member", "MemberObserver", "Membership", "Outsider"]


class Member(Protocol):
    """The part of a membership that heartbeats need: it takes facts in, and has an identity and requests to leave."""

    @property
    def identity(self) -> Identity: ...

    @property
    def heartbeats_as(self) -> Identity | None:
        """The identity under which heartbeats go out now, `None` when none do."""
        ...

    @property
    def farewells(self) -> f.Outbox[LeaveGroupRequest]:
        """Requests to leave that nobody has taken to be sent yet."""
        ...

    def handle(self, fact: f.Fact, now_ms: int) -> None:
        """Take a fact in."""
        ...


class Membership(Member, Protocol):
    """A member of a group as a pure machine: facts in, steps out.

    It never waits, sends, or reads a clock. It asks for each effect and each request once, and goes on when the fact
    that answers it comes in. An answer to a request that was sent under an older identity changes nothing, except that
    a static member is fenced by its name and id whatever the generation.
    """

    @property
    def state(self) -> MemberState: ...

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        ...

    @property
    def failure(self) -> AiogroupError | None:
        """The error with which the membership failed for good."""
        ...

    @property
    def session(self) -> tuple[str, int]:
        """How long a silence makes the coordinator drop this member: the name of that setting, and its value."""
        ...

    @property
    def called_at_ms(self) -> int | None:
        """When the coordinator last said that it waits for this member to join: it ends that wait by itself."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Between the first sign of a rebalance and its end."""
        ...

    @property
    def awaits_round(self) -> bool:
        """The group decides a round with this member in it."""
        ...

    @property
    def commits_as(self) -> Identity | None:
        """Whom a commit is sent as now, under which generation; `None`: it waits until a round is decided."""
        ...

    @property
    def may_deliver(self) -> bool:
        """Records of the assigned partitions may be delivered."""
        ...

    @property
    def topics_led(self) -> frozenset[str]:
        """Topics whose metadata this member watches for the group, also those that only other members read."""
        ...

    def why_stale(self, cluster: Cluster) -> str | None:
        """The reason why by this metadata the group must assign its partitions again; `None` if there is none."""
        ...

    @property
    def farewell(self) -> LeaveGroupRequest | None:
        """The request to send when the poll interval passes; `None` for a member that only goes silent."""
        ...

    def leave_request(self, why: str, *, even_static: bool = False) -> LeaveGroupRequest | None:
        """The request with which the member leaves as it is now; `None` if it is in no group, or keeps its name."""
        ...

    def poll(self, now_ms: int) -> f.Step:
        """The effects and requests to carry out now. Each is asked for once."""
        ...


class MemberObserver:
    """Hears of each change of a member at the moment at which it happens. This class ignores them."""

    def on_move(self, old: MemberState, new: MemberState, why: str) -> None:
        """The state changed."""

    def on_removed(self, member_id: str, why: str) -> None:
        """The coordinator does not know this member id any more."""


class Outsider:
    """A `Member` that never joins its group, and only asks for the group's committed offsets."""

    heartbeats_as: Identity | None = None

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.farewells: f.Outbox[LeaveGroupRequest] = f.Outbox()

    def handle(self, fact: f.Fact, now_ms: int) -> None:
        if isinstance(fact, f.NameNotCarried):
            self.identity = self.identity.without_name()
