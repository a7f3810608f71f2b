"""How long a static member delays its rejoin, so that several newcomers cause one rebalance (KIP-345 draft 41)."""

from __future__ import annotations

from typing import Final

from aiogroup.config import LONGEST_EXPANSION_MS

__all__ = ["hold_back_ms"]

HAND_OVER_MS: Final = 1_000


def hold_back_ms(expansion_timeout_ms: int, rebalance_timeout_ms: int, heartbeat_interval_ms: int) -> int:
    """The time from the first REBALANCE_IN_PROGRESS to the rejoin.

    The broker's rebalance time-out began when the newcomer joined, up to one heartbeat before this member hears of it.
    """
    in_time_ms = rebalance_timeout_ms - 2 * heartbeat_interval_ms - HAND_OVER_MS
    return max(0, min(expansion_timeout_ms, LONGEST_EXPANSION_MS, in_time_ms))
