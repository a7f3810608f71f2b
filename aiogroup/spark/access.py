"""How to reach the cluster and the group, for aiogroup's consumer and for Spark's connector alike."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from aiogroup._command.properties import PREFIX, consumer_settings, load_properties, of_environment
from aiogroup.config import ConsumerConfig, check_topic_name
from aiogroup.errors import ConfigError

__all__ = ["Access", "cluster_of"]

CATCHUP_SUFFIX: Final = ".catchup"
CONNECTOR_KEYS: Final = ("security.", "sasl.", "ssl.", "client.rack", "fetch.", "request.timeout.ms")
"""Keys that are passed to Spark's readers too. No other key of a file is passed: it must not change the readers' start
offsets or group.
"""

OF_A_BOUNDED_READ: Final = {"fetch.max.wait.ms": "10", "max.poll.records": "5000"}
"""A bounded read never waits for new records. After each poll the connector asks for the bounds of the log, and that
request queues behind the waiting fetch: with Kafka's defaults 1,000 partitions of 400 records take ten times as long.
"""
ACCOUNT: Final = ("sasl.plain.username", "sasl.plain.password")
"""Keys that no Java client has. As environment variables they are the simplest way to name an account."""


@dataclass(frozen=True, slots=True)
class Access:
    """`properties` are those of a Java consumer: security, isolation.level, time-outs.

    They reach Spark's executors as `kafka.*`, so the files that they name must exist there. `consumer` are settings of
    `Consumer` that have no Java name, such as `ssl_context`; Spark does not see them.
    """

    bootstrap_servers: str
    group_id: str
    topics: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    consumer: Mapping[str, Any] = field(default_factory=dict, repr=False)
    catchup_group_id: str = ""

    @classmethod
    def of(
        cls,
        bootstrap_servers: str,
        group_id: str,
        topics: str | Iterable[str],
        properties: Mapping[str, str] | None = None,
        consumer: Mapping[str, Any] | None = None,
        catchup_group_id: str | None = None,
    ) -> Access:
        """Check the caller's arguments.

        Raises:
            ConfigError, InvalidTopicError: a setting, a group or a topic is not valid.
        """
        named = (topics,) if isinstance(topics, str) else tuple(topics)
        if not named:
            raise ConfigError("topics is empty: name the topic whose ranges are pending")
        if not group_id:
            raise ConfigError("group_id is empty: name the group whose ranges are pending")
        access = cls(
            bootstrap_servers,
            group_id,
            tuple(sorted({check_topic_name(each) for each in named})),
            dict(properties or {}),
            dict(consumer or {}),
            catchup_group_id or group_id + CATCHUP_SUFFIX,
        )
        access.config()
        return access

    @property
    def isolation_level(self) -> str | None:
        """The isolation level that the caller named, if any."""
        is_named = "isolation.level" in self.properties or "isolation_level" in self.consumer
        return self.config().isolation_level if is_named else None

    def at(self, isolation_level: str) -> Access:
        """The same with this isolation level."""
        consumer = {name: value for name, value in self.consumer.items() if name != "isolation_level"}
        return replace(self, properties={**self.properties, "isolation.level": isolation_level}, consumer=consumer)

    def for_executors(self) -> Access:
        """What an executor needs to read: Java's properties that a consumer knows. A file may have others, and settings
        without a Java name, such as `ssl_context`, cannot be sent.
        """
        _, ignored = consumer_settings(self.properties)
        known = {key: text for key, text in self.properties.items() if key not in ignored}
        return replace(self, properties=known, consumer={}).at(self.config().isolation_level)

    def settings(self) -> dict[str, Any]:
        """The settings of a `Consumer` without a group."""
        known, _ = consumer_settings(self.properties)
        for name in ("group_id", "group_instance_id", "enable_auto_commit", "auto_offset_reset"):
            known.pop(name, None)
        return {**known, **self.consumer, "bootstrap_servers": self.bootstrap_servers}

    def config(self) -> ConsumerConfig:
        return ConsumerConfig.of(**self.settings(), group_id=self.group_id)

    def spark_options(self) -> dict[str, str]:
        """The options of Spark's connector."""
        properties = {**OF_A_BOUNDED_READ, **_login(self.properties), **self.properties}
        told = {
            f"kafka.{key}": text
            for key, text in properties.items()
            if key.startswith((*CONNECTOR_KEYS, "max.poll.records")) and key not in ACCOUNT
        }
        isolation_level = self.config().isolation_level  # ranges end where the log ended under the service's level
        return {**told, "kafka.bootstrap.servers": self.bootstrap_servers, "kafka.isolation.level": isolation_level}


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    """Turn a command's variables for user name and password into the property that Java's client takes."""
    if not all(key in properties for key in ACCOUNT):
        return {}
    is_plain = properties.get("sasl.mechanism", "").strip() == "PLAIN"
    module = "plain.PlainLoginModule" if is_plain else "scram.ScramLoginModule"
    user, password = (re.sub(r'(["\\])', r"\\\1", properties[key].strip()) for key in ACCOUNT)
    login = f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
    return {"sasl.jaas.config": login}


def cluster_of(bootstrap_server: str | None, command_config: Path | None) -> tuple[str, dict[str, str]]:
    """The brokers and the properties that a command was given. An option overrides the file, and the file overrides
    environment variables, as in `aiogroup`'s other commands.

    Raises:
        ConfigError: no broker is named. OSError: the file cannot be read.
    """
    properties = of_environment(os.environ)
    if command_config is not None:
        properties |= load_properties(command_config)
    named = properties.pop("bootstrap.servers", None)
    servers = bootstrap_server or named
    if not servers:
        raise ConfigError(f"no broker is named: pass --bootstrap-server HOST:PORT, or set {PREFIX}BOOTSTRAP_SERVERS")
    return servers, properties
