"""A topic's settings as answers tell them: effective values in Kafka's spelling, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from aiogroup.embedded.machine.settings import TOPIC

if TYPE_CHECKING:
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["ConfigSource", "EffectiveSetting", "effective_settings", "spelled"]


class ConfigSource(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class EffectiveSetting(NamedTuple):
    """One setting of a topic."""

    name: str
    value: str
    source: ConfigSource


ALWAYS_DYNAMIC = "min.insync.replicas"
"""Since eligible leader replicas (KIP-966) the controller keeps this one as a default of the whole cluster."""


def spelled(value: Any) -> str:  # noqa: ANN401 (a value of any setting)
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def effective_settings(settings: Settings, config: Mapping[str, str]) -> list[EffectiveSetting]:
    """All settings of a topic for which `config` was set, by name."""
    found = []
    for name in sorted(TOPIC):
        kind, broker_name = TOPIC[name]
        if name in config:
            found.append(EffectiveSetting(name, config[name], ConfigSource.TOPIC))
            continue
        value = kind.default if broker_name is None else settings[broker_name]
        source = ConfigSource.DEFAULT if value == kind.default else ConfigSource.STATIC_BROKER
        if name == ALWAYS_DYNAMIC:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        found.append(EffectiveSetting(name, spelled(value), source))
    return found
