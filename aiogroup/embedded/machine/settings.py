"""The broker's settings and those of topics, by Kafka's names and with Kafka's defaults but for a few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiogroup.embedded.machine.groups.group import GroupSettings
from aiogroup.embedded.machine.refusals import BrokerRefusal

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Topic

__all__ = ["BROKER", "TOPIC", "Settings"]

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
POLICIES = ("delete", "compact")


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number within bounds."""

    default: int
    least: int = 0
    most: int = LONG_MAX

    def read(self, text: str) -> int:
        value = int(text)
        if not self.least <= value <= self.most:
            raise ValueError(f"Value must be at least {self.least} and at most {self.most}")
        return value


@dataclass(frozen=True, slots=True)
class Share:
    """A number between 0 and 1."""

    default: float

    def read(self, text: str) -> float:
        value = float(text)
        if not 0 <= value <= 1:
            raise ValueError("Value must be between 0 and 1")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    default: str
    words: tuple[str, ...]

    def read(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(f"String must be one of: {', '.join(self.words)}")
        return text


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    default: bool

    def read(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return text.lower() == "true"


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, divided by commas; the value is a tuple."""

    default: tuple[str, ...]
    words: tuple[str, ...] | None = None
    """The words that are allowed; `None`: any."""

    def read(self, text: str) -> tuple[str, ...]:
        value = tuple(word.strip() for word in text.split(",") if word.strip())
        if self.words is not None and (not value or not set(value) <= set(self.words)):
            raise ValueError(f"each of the list must be one of: {', '.join(self.words)}")
        return value


Kind = Number | Share | Choice | Flag | Words

COMPRESSION = Choice("producer", ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
TIMESTAMP_TYPE = Choice("CreateTime", ("CreateTime", "LogAppendTime"))

TOPIC: Mapping[str, tuple[Kind, str | None]] = {
    "cleanup.policy": (Words(("delete",), POLICIES), "log.cleanup.policy"),
    "compression.type": (COMPRESSION, "compression.type"),
    "delete.retention.ms": (Number(86_400_000), "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": (Number(60_000), None),
    "flush.messages": (Number(LONG_MAX, 1), None),
    "flush.ms": (Number(LONG_MAX), None),
    "index.interval.bytes": (Number(4_096, 0, INT_MAX), None),
    "max.compaction.lag.ms": (Number(LONG_MAX, 1), None),
    "max.message.bytes": (Number(1_048_588, 0, INT_MAX), "message.max.bytes"),
    "message.timestamp.after.max.ms": (Number(3_600_000), "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (Number(LONG_MAX), "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": (TIMESTAMP_TYPE, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": (Share(0.5), None),
    "min.compaction.lag.ms": (Number(0), None),
    "min.insync.replicas": (Number(1, 1, INT_MAX), "min.insync.replicas"),
    "preallocate": (Flag(False), None),
    "retention.bytes": (Number(-1, -1), "log.retention.bytes"),
    "retention.ms": (Number(604_800_000, -1), "log.retention.ms"),
    "segment.bytes": (Number(1_073_741_824, 1_048_576, INT_MAX), "log.segment.bytes"),
    "segment.index.bytes": (Number(10_485_760, 4, INT_MAX), None),
    "segment.jitter.ms": (Number(0), None),
    "segment.ms": (Number(604_800_000, 1), None),
    "unclean.leader.election.enable": (Flag(False), "unclean.leader.election.enable"),
}
"""A topic's settings, and the name of the broker's setting that is their default. A few of them are kept, told and
without effect, since an administrator may set them on any broker: those of files, and those of times at which a cleaner
would run, as compaction and retention happen by call alone.
"""

_OF_TOPICS: Mapping[str, Kind] = {default: kind for kind, default in TOPIC.values() if default is not None}

BROKER: Mapping[str, Kind] = {
    **_OF_TOPICS,
    "auto.create.topics.enable": Flag(False),
    "default.replication.factor": Number(1, 1, 32_767),
    "fetch.max.bytes": Number(57_671_680, 1_024, INT_MAX),
    # As devkafka sets it: nobody waits for members that do not come.
    "group.initial.rebalance.delay.ms": Number(0, 0, INT_MAX),
    "group.max.session.timeout.ms": Number(1_800_000, 0, INT_MAX),
    "group.max.size": Number(INT_MAX, 1, INT_MAX),
    "group.min.session.timeout.ms": Number(100, 0, INT_MAX),
    "max.connections": Number(1_000, 0, INT_MAX),
    "max.incremental.fetch.session.cache.slots": Number(1_000, 0, INT_MAX),
    "max.request.partition.size.limit": Number(2_000, 1, INT_MAX),
    "min.incremental.fetch.session.eviction.ms": Number(120_000, 0),
    "num.partitions": Number(1, 1, INT_MAX),
    "offset.metadata.max.bytes": Number(4_096, 0, INT_MAX),
    # The word here is coordinator partitions: there is no topic of offsets.
    "offsets.topic.num.partitions": Number(1, 1, INT_MAX),
    "producer.id.expiration.ms": Number(86_400_000, 1, INT_MAX),
    "replica.selector.class": Choice("", ("", "org.apache.kafka.common.replica.RackAwareReplicaSelector")),
    "socket.request.max.bytes": Number(104_857_600, 1, INT_MAX),
    "transaction.max.timeout.ms": Number(900_000, 1, INT_MAX),
    "transactional.id.expiration.ms": Number(604_800_000, 1, INT_MAX),
}
"""The settings that `Broker(properties=...)` knows."""


class Settings:
    """The settings of one cluster. `settings["num.partitions"]` is a value of the type that it has in Kafka."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Settings:
        """Kafka's properties; those that are not given have their defaults.

        Raises:
            BrokerRefusal: the embedded broker has no such setting, or Kafka refuses its value.
        """
        values: dict[str, Any] = {name: kind.default for name, kind in BROKER.items()}
        for name, text in properties.items():
            kind = BROKER.get(name)
            if kind is None:
                raise BrokerRefusal(f"the embedded broker has no setting {name}: it has {', '.join(sorted(BROKER))}")
            try:
                values[name] = kind.read(str(text))
            except ValueError as error:
                raise BrokerRefusal(f"invalid value {text} for {name}: {error}") from None
        return cls(values)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 (each setting has a type of its own)
        return self._values[name]

    def of_topic(self, topic: Topic, name: str) -> Any:  # noqa: ANN401
        """The effective value of a topic's setting: its own, or the broker's."""
        kind, default = TOPIC[name]
        own = topic.config.get(name)
        if own is not None:
            return kind.read(own)
        return kind.default if default is None else self._values[default]

    @staticmethod
    def topic_refusal(config: Mapping[str, str | None]) -> str | None:
        """Why a topic's settings are refused (INVALID_CONFIG), as LogConfig.validate does; `None`: they are valid."""
        for name, text in config.items():
            known = TOPIC.get(name)
            if known is None:
                return f"Unknown topic config name: {name} (the embedded broker has {', '.join(sorted(TOPIC))})"
            if text is None:
                return f"Null value not supported for topic configs: {name}"
            try:
                known[0].read(text)
            except ValueError as error:
                return f"Invalid value {text} for configuration {name}: {error}"
        return None

    # What rooms ask for often.

    @property
    def coordinator_partitions(self) -> int:
        return self._values["offsets.topic.num.partitions"]  # type: ignore[no-any-return]

    @property
    def max_frame_bytes(self) -> int:
        return self._values["socket.request.max.bytes"]  # type: ignore[no-any-return]

    @property
    def max_metadata_chars(self) -> int:
        """Kafka's name says bytes, and counts characters."""
        return self._values["offset.metadata.max.bytes"]  # type: ignore[no-any-return]

    def groups(self) -> GroupSettings:
        """The settings of classic groups."""
        return GroupSettings(
            min_session_timeout_ms=self._values["group.min.session.timeout.ms"],
            max_session_timeout_ms=self._values["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=self._values["group.initial.rebalance.delay.ms"],
            max_size=self._values["group.max.size"],
        )
