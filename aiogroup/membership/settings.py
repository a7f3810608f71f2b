"""The settings of the membership, and which session time-out holds for which member."""

from __future__ import annotations

from typing import Self

from aiogroup.config import ConsumerConfig
from aiogroup.membership.expansion import hold_back_ms
from aiogroup.membership.identity import Identity
from aiogroup.values import dataclass

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """`hold_back_ms` is how long a static member puts its rejoin off (`expansion.py`)."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    registration_timeout_ms: int | None = None
    hold_back_ms: int = 0
    leave_on_poll_interval: bool = False
    is_cooperative: bool = False

    @classmethod
    def of(cls, config: ConsumerConfig, *, is_cooperative: bool) -> Self:
        rebalance_timeout_ms = config.effective_rebalance_timeout_ms
        return cls(
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=max(config.retry_backoff_ms, config.retry_backoff_max_ms),
            registration_timeout_ms=config.registration_timeout_ms,
            hold_back_ms=hold_back_ms(config.expansion_timeout_ms, rebalance_timeout_ms, config.heartbeat_interval_ms),
            leave_on_poll_interval=config.leave_on_poll_interval,
            is_cooperative=is_cooperative,
        )

    def session_of(self, who: Identity) -> tuple[str, int]:
        """The name and the value of the setting that says after which silence the coordinator drops `who`."""
        if who.is_static and self.registration_timeout_ms is not None:
            return "registration_timeout_ms", self.registration_timeout_ms
        return "session_timeout_ms", self.session_timeout_ms
