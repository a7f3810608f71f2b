"""The settings of the membership, and which session time-out holds for which member."""

from __future__ import annotations

from typing import Final, Protocol, Self

from aiogroup._core.membership.identity import Identity
from aiogroup._core.values import dataclass
from aiogroup.config import LONGEST_EXPANSION_MS, ConsumerConfig

__all__ = ["GroupSettings", "rejoin_delay_ms", "session_of"]

HAND_OVER_MS: Final = 1_000
"""The time that a hand-over may take, kept free before the rebalance time-out."""


class SessionSettings(Protocol):
    """The settings of a consumer, and those of a member, which are made from them."""

    @property
    def session_timeout_ms(self) -> int: ...
    @property
    def registration_timeout_ms(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`rejoin_delay_ms` is how long a static member delays its rejoin; 0 for no delay."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    registration_timeout_ms: int | None = None
    expansion_timeout_ms: int = 0
    rejoin_delay_ms: int = 0
    leave_on_poll_interval: bool = False
    is_cooperative: bool = False

    @classmethod
    def of(cls, config: ConsumerConfig, *, is_cooperative: bool) -> Self:
        rebalance_timeout_ms = config.effective_rebalance_timeout_ms
        return cls(
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            registration_timeout_ms=config.registration_timeout_ms,
            expansion_timeout_ms=config.expansion_timeout_ms,
            rejoin_delay_ms=rejoin_delay_ms(
                config.expansion_timeout_ms, rebalance_timeout_ms, config.heartbeat_interval_ms
            ),
            leave_on_poll_interval=config.leave_on_poll_interval,
            is_cooperative=is_cooperative,
        )


def session_of(settings: SessionSettings, who: Identity) -> tuple[str, int]:
    """The name and the value of the setting that says after which silence the coordinator drops `who`."""
    if who.is_static and settings.registration_timeout_ms is not None:
        return "registration_timeout_ms", settings.registration_timeout_ms
    return "session_timeout_ms", settings.session_timeout_ms


def rejoin_delay_ms(expansion_timeout_ms: int, rebalance_timeout_ms: int, heartbeat_interval_ms: int) -> int:
    """How long a static member delays its rejoin after the first REBALANCE_IN_PROGRESS.

    So several newcomers cause one rebalance (KIP-345 draft 41).

    The broker's rebalance time-out began when the newcomer joined, up to one heartbeat before this member hears of it.
    """
    in_time_ms = rebalance_timeout_ms - 2 * heartbeat_interval_ms - HAND_OVER_MS
    return max(0, min(expansion_timeout_ms, LONGEST_EXPANSION_MS, in_time_ms))
