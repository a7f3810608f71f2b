"""The settings of the broker and of topics, by Kafka's names and, with a few exceptions, with Kafka's defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from aiogroup.embedded.machine.groups.group import GroupSettings
from aiogroup.embedded.machine.refusals import BrokerRefusal

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Topic

__all__ = [
    "ALWAYS_DYNAMIC",
    "BROKER",
    "DYNAMIC",
    "TOPIC",
    "WITHOUT_EFFECT",
    "ConfigSource",
    "InvalidValueError",
    "Kind",
    "Settings",
    "spelled",
]

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
POLICIES = ("compact", "delete")
COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
COMPACTION_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
REPLICA = re.compile(r"[0-9]+:[0-9]+")


class ConfigSource(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource). The smallest number is the strongest source."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class InvalidValueError(ValueError):
    """A text is no value of a setting."""

    def __init__(self, shown: object, why: str) -> None:
        super().__init__(why)
        self.shown = shown
        """The value as Kafka's message shows it: a number as it was read, or the wrong word of a list."""
        self.why = why


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number within bounds."""

    default: int
    least: int = 0
    most: int = LONG_MAX
    also: int | None = None
    """One number outside of the bounds that is valid too."""

    def read(self, text: str) -> int:
        is_int = self.most <= INT_MAX
        greatest = INT_MAX if is_int else LONG_MAX
        number = WHOLE_NUMBER.fullmatch(text.strip())
        if number is None or not -greatest - 1 <= int(number[0]) <= greatest:
            raise InvalidValueError(text, f"Not a number of type {'INT' if is_int else 'LONG'}")
        value = int(number[0])
        if self.least <= value <= self.most or value == self.also:
            return value
        if self.also is not None:
            raise InvalidValueError(
                value, f"Value must be between {self.least} and {self.most} or equal to {self.also}"
            )
        if value < self.least:
            raise InvalidValueError(value, f"Value must be at least {self.least}")
        raise InvalidValueError(value, f"Value must be no more than {self.most}")


@dataclass(frozen=True, slots=True)
class Share:
    """A number between 0 and 1."""

    default: float

    def read(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise InvalidValueError(text, "Not a number of type DOUBLE") from None
        if value < 0:
            raise InvalidValueError(value, "Value must be at least 0")
        if not value <= 1:
            raise InvalidValueError(value, "Value must be no more than 1")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    default: str
    words: tuple[str, ...]

    def read(self, text: str) -> str:
        if text not in self.words:
            raise InvalidValueError(text, f"String must be one of: {', '.join(self.words)}")
        return text


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    default: bool

    def read(self, text: str) -> bool:
        if text.strip().lower() not in ("true", "false"):
            raise InvalidValueError(text, "Expected value to be either true or false")
        return text.strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, separated by commas; the value is a tuple."""

    default: tuple[str, ...]
    words: tuple[str, ...] | None = None
    """The words that are allowed; `None`: any."""

    def read(self, text: str) -> tuple[str, ...]:
        value = tuple(word.strip() for word in text.split(",") if word.strip())
        for word in value:
            if self.words is not None and word not in self.words:
                raise InvalidValueError(word, f"String must be one of: {', '.join(self.words)}")
        return value


@dataclass(frozen=True, slots=True)
class Replicas:
    """A list of replicas, by partition and node, whose traffic Kafka would throttle."""

    default: tuple[str, ...] = ()

    def read(self, text: str) -> tuple[str, ...]:
        value = tuple(word.strip() for word in text.split(",") if word.strip())
        if value != ("*",) and not all(REPLICA.fullmatch(word) for word in value):
            raise InvalidValueError(f"[{', '.join(value)}]", "it must be '*' or a list of [partition]:[node]")
        return value


Kind = Number | Share | Choice | Flag | Words | Replicas

TIMESTAMP_TYPE = Choice("CreateTime", ("CreateTime", "LogAppendTime"))

TOPIC: Mapping[str, tuple[Kind, str | None]] = {
    "cleanup.policy": (Words(("delete",), POLICIES), "log.cleanup.policy"),
    "compression.gzip.level": (Number(-1, 1, 9, also=-1), None),
    "compression.lz4.level": (Number(9, 1, 17), None),
    "compression.type": (Choice("producer", COMPRESSIONS), "compression.type"),
    "compression.zstd.level": (Number(3, -131_072, 22), None),
    "delete.retention.ms": (Number(86_400_000), "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": (Number(60_000), None),
    "flush.messages": (Number(LONG_MAX, 1), None),
    "flush.ms": (Number(LONG_MAX), None),
    "follower.replication.throttled.replicas": (Replicas(), None),
    "index.interval.bytes": (Number(4_096, 0, INT_MAX), None),
    "leader.replication.throttled.replicas": (Replicas(), None),
    "local.retention.bytes": (Number(-2, -2), None),
    "local.retention.ms": (Number(-2, -2), None),
    "max.compaction.lag.ms": (Number(LONG_MAX, 1), None),
    "max.message.bytes": (Number(1_048_588, 0, INT_MAX), "message.max.bytes"),
    "message.timestamp.after.max.ms": (Number(3_600_000), "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (Number(LONG_MAX), "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": (TIMESTAMP_TYPE, "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": (Share(0.5), None),
    "min.compaction.lag.ms": (Number(0), None),
    "min.insync.replicas": (Number(1, 1, INT_MAX), "min.insync.replicas"),
    "preallocate": (Flag(False), None),
    "remote.log.copy.disable": (Flag(False), None),
    "remote.log.delete.on.disable": (Flag(False), None),
    "remote.storage.enable": (Flag(False), None),
    "retention.bytes": (Number(-1, -LONG_MAX - 1), "log.retention.bytes"),
    "retention.ms": (Number(604_800_000, -1), "log.retention.ms"),
    "segment.bytes": (Number(1_073_741_824, 1_048_576, INT_MAX), "log.segment.bytes"),
    "segment.index.bytes": (Number(10_485_760, 4, INT_MAX), None),
    "segment.jitter.ms": (Number(0), None),
    "segment.ms": (Number(604_800_000, 1), None),
    "unclean.leader.election.enable": (Flag(False), "unclean.leader.election.enable"),
}
"""A topic's settings, and the name of the broker's setting that is their default."""

_NO_FILES = "there are no files"
_CALL = "compaction is a call of Python: compact(topic, with_tombstones=True)"
_ONE_LEVEL = "the broker compresses at one level"
_NO_FOLLOWERS = "replicas need not fetch"
_NO_TIERS = "there is no tiered storage"

WITHOUT_EFFECT: Mapping[str, str] = {
    "compression.gzip.level": _ONE_LEVEL,
    "compression.lz4.level": _ONE_LEVEL,
    "compression.zstd.level": _ONE_LEVEL,
    "delete.retention.ms": _CALL,
    "file.delete.delay.ms": _NO_FILES,
    "flush.messages": _NO_FILES,
    "flush.ms": _NO_FILES,
    "follower.replication.throttled.replicas": _NO_FOLLOWERS,
    "index.interval.bytes": _NO_FILES,
    "leader.replication.throttled.replicas": _NO_FOLLOWERS,
    "local.retention.bytes": _NO_TIERS,
    "local.retention.ms": _NO_TIERS,
    "max.compaction.lag.ms": _CALL,
    "min.cleanable.dirty.ratio": _CALL,
    "preallocate": _NO_FILES,
    "remote.log.copy.disable": _NO_TIERS,
    "remote.log.delete.on.disable": _NO_TIERS,
    "segment.index.bytes": _NO_FILES,
    "segment.jitter.ms": _NO_FILES,
    "segment.ms": _NO_FILES,
    "unclean.leader.election.enable": "no replica lags behind; an unclean election is a call of Python: truncate(...)",
}
"""Topic settings that are kept and described, because administrators set them on any broker, but that change nothing;
each with the reason. The defaults of these settings are refused as properties of `Broker`.
"""

_OF_TOPICS: Mapping[str, Kind] = {default: kind for kind, default in TOPIC.values() if default is not None}
_DEFAULTS_WITHOUT_EFFECT = {
    default: WITHOUT_EFFECT[name]
    for name, (_, default) in TOPIC.items()
    if default is not None and name in WITHOUT_EFFECT
}

BROKER: Mapping[str, Kind] = {
    **_OF_TOPICS,
    "auto.create.topics.enable": Flag(False),
    # devkafka's value. After this time a silent node is replaced.
    "broker.session.timeout.ms": Number(3_000, 0, INT_MAX),
    "default.replication.factor": Number(1, 1, 32_767),
    "fetch.max.bytes": Number(57_671_680, 1_024, INT_MAX),
    # devkafka's value: a new group does not wait for more members.
    "group.initial.rebalance.delay.ms": Number(0, 0, INT_MAX),
    "group.max.session.timeout.ms": Number(1_800_000, 0, INT_MAX),
    "group.max.size": Number(INT_MAX, 1, INT_MAX),
    "group.min.session.timeout.ms": Number(100, 0, INT_MAX),
    # Only for KIP-345's draft: the default for clients that send no expansion time-out.
    "group.static.expansion.timeout.ms": Number(0, 0, INT_MAX),
    "max.connections": Number(1_000, 0, INT_MAX),
    "max.incremental.fetch.session.cache.slots": Number(1_000, 0, INT_MAX),
    "max.request.partition.size.limit": Number(2_000, 1, INT_MAX),
    "min.incremental.fetch.session.eviction.ms": Number(120_000, 0),
    "num.partitions": Number(1, 1, INT_MAX),
    "offset.metadata.max.bytes": Number(4_096, 0, INT_MAX),
    "offsets.topic.num.partitions": Number(1, 1, INT_MAX),
    "producer.id.expiration.ms": Number(86_400_000, 1, INT_MAX),
    "replica.selector.class": Choice("", ("", "org.apache.kafka.common.replica.RackAwareReplicaSelector")),
    "socket.request.max.bytes": Number(104_857_600, 1, INT_MAX),
    "transaction.max.timeout.ms": Number(900_000, 1, INT_MAX),
    "transaction.state.log.num.partitions": Number(1, 1, INT_MAX),
    "transactional.id.expiration.ms": Number(604_800_000, 1, INT_MAX),
}
"""The settings that `Broker(properties=...)` knows."""

DYNAMIC = (*_OF_TOPICS, "max.connections", "producer.id.expiration.ms")
"""The settings that an administrator may change while the broker runs (DynamicBrokerConfig)."""
ALWAYS_DYNAMIC = "min.insync.replicas"
"""Since eligible leader replicas (KIP-966) the controller keeps this one as a default of the whole cluster."""
NOT_SET = "log.retention.ms"
"""This setting has no default in Kafka, because the same setting exists in hours. That one is never described."""


def spelled(value: Any) -> str:  # noqa: ANN401 (a value of any setting)
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


class Settings:
    """The settings of one cluster. `settings["num.partitions"]` is a value of the type that it has in Kafka.

    Changes by an administrator apply to the whole cluster. So settings of a node can be changed only in a one-node
    cluster.
    """

    def __init__(self, values: Mapping[str, Any], given: Iterable[str] = ()) -> None:
        self._static = values
        self._given = frozenset(given)
        self._values = dict(values)
        self.changed: dict[ConfigSource, dict[str, str]] = {
            ConfigSource.DYNAMIC_BROKER: {},
            ConfigSource.DYNAMIC_DEFAULT_BROKER: {ALWAYS_DYNAMIC: spelled(values[ALWAYS_DYNAMIC])},
        }
        """The settings that administrators have changed, for the node and for the cluster."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Settings:
        """The settings from Kafka's properties. Settings that are not given have their defaults.

        Raises:
            BrokerRefusal: the embedded broker has no such setting, it has no effect, or Kafka refuses its value.
        """
        values: dict[str, Any] = {name: kind.default for name, kind in BROKER.items()}
        for name, text in properties.items():
            kind = BROKER.get(name)
            if kind is None:
                raise BrokerRefusal(f"the embedded broker has no setting {name}: it has {', '.join(sorted(BROKER))}")
            if name in _DEFAULTS_WITHOUT_EFFECT:
                raise BrokerRefusal(
                    f"{name} has no effect on the embedded broker: {_DEFAULTS_WITHOUT_EFFECT[name]}. Leave it out"
                )
            try:
                values[name] = kind.read(str(text))
            except InvalidValueError as error:
                raise BrokerRefusal(f"invalid value {error.shown} for {name}: {error.why}") from None
        return cls(values, properties)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 (each setting has a type of its own)
        return self._values[name]

    def sources(self, name: str) -> list[tuple[ConfigSource, str]]:
        """The possible sources of a broker setting's value, the strongest first."""
        found = [(source, texts[name]) for source, texts in self.changed.items() if name in texts]
        if name in self._given:
            found.append((ConfigSource.STATIC_BROKER, spelled(self._static[name])))
        if name != NOT_SET:
            found.append((ConfigSource.DEFAULT, spelled(BROKER[name].default)))
        return found

    def change(self, source: ConfigSource, texts: Mapping[str, str]) -> None:
        """Replace the changed settings of this source, with effect at once. The caller has checked them."""
        self.changed[source] = dict(texts)
        self._values = dict(self._static)
        for layer in reversed(self.changed.values()):
            self._values.update((name, BROKER[name].read(text)) for name, text in layer.items())

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
        unset = [name for name, text in config.items() if text is None]
        if unset:
            return f"Null value not supported for topic configs: {','.join(unset)}"
        values: dict[str, Any] = {}
        for name in config:
            if name not in TOPIC:
                return f"Unknown topic config name: {name}"
        for name, text in config.items():
            try:
                values[name] = TOPIC[name][0].read(text or "")
            except InvalidValueError as error:
                return f"Invalid value {error.shown} for configuration {name}: {error.why}"
        least_ms, most_ms = (values.get(name, TOPIC[name][0].default) for name in COMPACTION_LAGS)
        if least_ms > most_ms:
            least, most = COMPACTION_LAGS
            return f"conflict topic config setting {least} ({least_ms}) > {most} ({most_ms})"
        if values.get("remote.storage.enable"):
            return "The embedded broker has no tiered storage: leave remote.storage.enable out"
        return None

    # What rooms ask for often.

    @property
    def coordinator_partitions(self) -> int:
        return self._values["offsets.topic.num.partitions"]  # type: ignore[no-any-return]

    @property
    def max_frame_bytes(self) -> int:
        return self._values["socket.request.max.bytes"]  # type: ignore[no-any-return]

    def groups(self) -> GroupSettings:
        """The settings of classic groups."""
        return GroupSettings(
            min_session_timeout_ms=self._values["group.min.session.timeout.ms"],
            max_session_timeout_ms=self._values["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=self._values["group.initial.rebalance.delay.ms"],
            max_size=self._values["group.max.size"],
            max_metadata_chars=self._values["offset.metadata.max.bytes"],
        )
