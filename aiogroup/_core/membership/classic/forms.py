"""The two forms of static membership: KIP-345 as Kafka has it, and draft 41 of it, which the embedded broker can serve.

In Kafka's form a coordinator knows one session time-out of a member, and asks the group to rebalance as soon as a
newcomer joins. It answers a member that comes back with the assignment of its former self. In the draft's form
JoinGroup carries a static member's two time-outs beside its session time-out, and the coordinator keeps both: after
which silence the member is dropped, and for how long it waits for more newcomers before the group rebalances. It lets
a member with other topics wait for the next round.
"""

from __future__ import annotations

from typing import Final

from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.settings import GroupSettings, session_of
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.values import dataclass

__all__ = ["Forms", "StaticForm"]

DRAFT_FEATURE: Final = "static.membership.draft"
DRAFT_VERSION: Final = 41
FIRST_WITH_TAGS: Final = 6
"""The first version of JoinGroup that can carry the draft's time-outs."""


@dataclass(frozen=True, slots=True)
class StaticForm:
    """What a member does as the form of its coordinator wants it; for a dynamic member both forms are the same."""

    announced_session: tuple[str, int]
    """The setting that JoinGroup has as its session time-out: its name and its value."""
    registration_timeout_ms: int | None = None
    expansion_timeout_ms: int | None = None
    """What JoinGroup carries beside it."""
    rejoin_delay_ms: int = 0
    """How long this member delays its rejoin, so that several newcomers cause one rebalance."""
    join_wait_ms: int = 0
    """How much longer JoinGroup may stay unanswered, since the coordinator waits for several newcomers."""
    keeps_former_assignment: bool = True
    """A member that comes back with other topics may be answered with the assignment of its former self."""


class Forms:
    """Which form the coordinator serves. A member for which that makes a difference asks each coordinator once."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._is_draft = False
        self._is_known = False

    def question(self, who: Identity) -> ApiVersionsRequest | None:
        """What must be asked before this member joins."""
        settings = self._settings
        makes_a_difference = who.is_static and (settings.registration_timeout_ms or settings.expansion_timeout_ms)
        if self._is_known or not makes_a_difference:
            return None
        return ApiVersionsRequest(client_software_name="aiogroup", client_software_version="unknown")

    def on_answer(self, answer: ApiVersionsResponse) -> None:
        features = {each.name: each.max_version_level for each in answer.finalized_features}
        newest = max(
            (each.max_version for each in answer.api_keys if each.api_key == JoinGroupRequest.API_KEY), default=0
        )
        self._is_draft = features.get(DRAFT_FEATURE) == DRAFT_VERSION and newest >= FIRST_WITH_TAGS
        self._is_known = True

    def on_coordinator_gone(self) -> None:
        self._is_known = False

    def of(self, who: Identity) -> StaticForm:
        settings = self._settings
        if not who.is_static:
            return StaticForm(session_of(settings, who))
        if not self._is_draft:
            return StaticForm(session_of(settings, who), rejoin_delay_ms=settings.rejoin_delay_ms)
        return StaticForm(
            ("session_timeout_ms", settings.session_timeout_ms),
            settings.registration_timeout_ms,
            settings.expansion_timeout_ms or None,
            join_wait_ms=settings.expansion_timeout_ms,
            keeps_former_assignment=False,
        )
