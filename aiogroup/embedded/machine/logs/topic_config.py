"""A topic's settings as answers tell them: effective values in Kafka's spelling, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from aiogroup.embedded.machine.settings import TOPIC, ConfigSource, spelled

if TYPE_CHECKING:
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["EffectiveSetting", "Synonym", "effective_settings"]

BROKERS_NAMES = {
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "segment.index.bytes": "log.index.size.max.bytes",
}
"""Kafka's name for the broker setting that is a topic setting's default, if the embedded broker has no such setting.
Administrators see this name (ServerTopicConfigSynonyms).
"""


class Synonym(NamedTuple):
    """One place from which a value could come."""

    name: str
    value: str
    source: ConfigSource


class EffectiveSetting(NamedTuple):
    """One setting of a topic."""

    name: str
    value: str
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    """All places from which the value could come, the strongest first."""


def effective_settings(settings: Settings, config: Mapping[str, str]) -> list[EffectiveSetting]:
    """All settings of a topic for which `config` was set, by name."""
    found = []
    for name in sorted(TOPIC):
        kind, broker_name = TOPIC[name]
        synonyms = []
        if broker_name is not None:
            synonyms = [Synonym(broker_name, text, source) for source, text in settings.sources(broker_name)]
        elif name in BROKERS_NAMES:
            synonyms = [Synonym(BROKERS_NAMES[name], spelled(kind.default), ConfigSource.DEFAULT)]
        if name in config:
            synonyms.insert(0, Synonym(name, config[name], ConfigSource.TOPIC))
        value = kind.default if broker_name is None else settings[broker_name]
        _, text, source = synonyms[0] if synonyms else (name, spelled(value), ConfigSource.DEFAULT)
        found.append(EffectiveSetting(name, text, source, tuple(synonyms)))
    return found
