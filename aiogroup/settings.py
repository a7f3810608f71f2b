"""The names and types of the settings, for type checkers and editors. They are the same as those of `ConsumerConfig`.

A test compares the two. `ConsumerConfig` checks the values. There is no `from __future__ import annotations` here:
`TypedDict` compiles each annotation that is a string, which would make importing aiogroup 1 % slower.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

__all__ = ["ConsumerSettings", "SettingsBesideDeserializers"]


class SettingsBesideDeserializers(TypedDict, total=False):
    """The settings that say nothing about the type of keys and values."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    client_rack: str | None
    group_id: str | None
    group_instance_id: str | None
    member_name: str | None
    registration_timeout_ms: int | None
    expansion_timeout_ms: int

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    rebalance_timeout_ms: int | None
    raise_on_poll_interval: bool
    leave_on_poll_interval: bool
    heartbeat_thread: bool
    deliver_while_unreachable: bool
    partition_assignment_strategy: Any  # names, objects and classes in a list, or one of them alone

    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_ack: bool
    auto_offset_reset: str
    new_partition_reset: str
    out_of_range_reset: str
    isolation_level: str

    enable_parallel_rebalance: bool
    parallel_order: str
    parallel_min_backlog: int
    parallel_share: float
    parallel_buffer_bytes: int
    parallel_handoff: bool
    parallel_handoff_timeout_ms: int
    parallel_group_id: str | None

    max_poll_records: int | None
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_batch_bytes: int
    max_buffered_bytes: int
    check_crcs: bool

    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    connections_max_idle_ms: int | None
    allow_auto_create_topics: bool
    exclude_internal_topics: bool

    security_protocol: str
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: Any

    # Settings of AIOKafkaConsumer that have no meaning here: they are ignored, with a DeprecationWarning.
    loop: object
    api_version: object
    consumer_timeout_ms: object


class ConsumerSettings(SettingsBesideDeserializers, total=False):
    """The settings that `Consumer` takes as keyword arguments. `docs/settings.md` says what each one means."""

    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None
