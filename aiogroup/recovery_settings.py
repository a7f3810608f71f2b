"""The rules for the settings of KIP-333's mode, `enable_parallel_rebalance` and what begins with `parallel_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiogroup.errors import ConfigError

if TYPE_CHECKING:
    from aiogroup.config import ConsumerConfig

__all__ = ["check_recovery"]

ORDERS: Final = ("unordered", "ordered")


def check_recovery(config: ConsumerConfig) -> None:
    """Raise unless the settings fit each other.

    Raises:
        ConfigError: the message names the settings and the rule.
    """
    _check_values(config)
    if not config.enable_parallel_rebalance:
        if config.parallel_handoff:
            raise ConfigError("parallel_handoff=True needs enable_parallel_rebalance=True")
        return
    if config.group_id is None:
        raise ConfigError("enable_parallel_rebalance=True needs a group_id: without a group nothing is committed")
    if config.parallel_order == "ordered" and config.parallel_buffer_bytes > config.lane_buffer_bytes("live"):
        raise ConfigError(
            f"parallel_buffer_bytes={config.parallel_buffer_bytes} must not be above the live lane's part of "
            f"max_buffered_bytes={config.max_buffered_bytes}, which is {config.lane_buffer_bytes('live')}"
        )
    if min(map(config.lane_buffer_bytes, ("live", "catch-up"))) < config.max_partition_fetch_bytes:
        raise ConfigError(
            f"max_buffered_bytes={config.max_buffered_bytes} is divided by parallel_share={config.parallel_share}, and "
            f"one fetch of max_partition_fetch_bytes={config.max_partition_fetch_bytes} must fit into each part"
        )


def _check_values(config: ConsumerConfig) -> None:
    share = config.parallel_share
    is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not is_number or not 0 < share < 1:
        raise ConfigError(f"parallel_share={share!r}: a number between 0 and 1, so that no lane stands still")
    if config.parallel_order not in ORDERS:
        raise ConfigError(f"parallel_order={config.parallel_order!r}: 'unordered' or 'ordered'")
    if config.parallel_order == "ordered" and config.parallel_handoff:
        raise ConfigError(
            "parallel_order='ordered' and parallel_handoff=True: a job knows no order across lanes; choose one"
        )
    if config.parallel_group_id is not None and config.parallel_group_id in ("", config.group_id):
        raise ConfigError(
            f"parallel_group_id={config.parallel_group_id!r}: the second commit log needs a group of its own beside "
            f"group_id={config.group_id!r}"
        )
