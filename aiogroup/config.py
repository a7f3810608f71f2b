"""All settings of a consumer as one frozen value, which is checked when it is made.

Names are aiokafka's, which are Kafka's in snake case. If a default differs from the Java client's, the reason stands
beside it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import ssl
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, Unpack

from aiogroup._core.values import dataclass
from aiogroup.errors import ConfigError, InvalidTopicError
from aiogroup.settings import ConsumerSettings

__all__ = [
    "FROM_EARLIEST",
    "TO_NEAREST",
    "ConsumerConfig",
    "ResetPolicy",
    "check_topic_name",
    "parse_reset_policy",
    "why_not_sent",
]

TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
JOIN_TIMEOUT_LAPSE_MS: Final = 5_000
"""How much longer than the rebalance time-out JoinGroup may stay unanswered (AbstractCoordinator.java)."""
RECORDS_PER_TURN: Final = 256
"""The greatest number of records that are handed out before the event loop runs."""
TURN_MS: Final = 2
"""The greatest number of milliseconds for which records are handed out before the event loop runs."""
LONGEST_EXPANSION_MS: Final = 240_000
"""A broker drops a newcomer that waits for 300 s (CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS); this is a minute less."""
FRAME_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""An answer whose announced size is greater than this is not read."""
LEAST_FETCH_BYTES: Final = 64 * 1024
MAX_COMMIT_METADATA: Final = 4096
"""The broker's default `offset.metadata.max.bytes`. The broker counts characters; aiogroup counts bytes, of which there
are never fewer."""

MAX_TEXT_BYTES: Final = 2**15 - 1
"""The longest text that a request can carry: older versions of requests have 16 bits for its length."""

LANE_ORDERS: Final = ("unordered", "ordered")
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MAY_BE_ZERO: Final = frozenset(
    {"expansion_timeout_ms", "fetch_max_wait_ms", "fetch_min_bytes", "retry_backoff_max_ms", "retry_backoff_ms"}
)
"""All other whole numbers are at least 1."""
OBSOLETE: Final = frozenset({"loop", "api_version", "consumer_timeout_ms"})
"""Settings of AIOKafkaConsumer that have no meaning here. They are accepted with a warning, to make moving easy."""

WRITTEN_OTHERWISE: Final = {
    "auto_commit": "enable_auto_commit=True or False is meant",
    "auto_commit_enable": "enable_auto_commit=True or False is meant",
    "broker": "the brokers are bootstrap_servers='host:port,host:port'",
    "brokers": "the brokers are bootstrap_servers='host:port,host:port'",
    "deserializer": "there are value_deserializer and key_deserializer",
    "group": "the group is group_id='name'",
    "group_protocol": "this consumer speaks Kafka's classic protocol of groups, as every broker does; leave it out",
    "group_remote_assignor": "the group's members assign the partitions; there is partition_assignment_strategy",
    "rebalance_listener": "the listener is listener=, or that of subscribe()",
    "statistics_interval_ms": "there are events for observers=, health(), lags(), and metrics by aiogroup.prometheus",
    "topic": "topics are given as arguments: Consumer('orders', 'returns', ...)",
    "topics": "topics are given as arguments: Consumer('orders', 'returns', ...)",
}
"""Names that other clients have, or that are guessed often, whose nearest neighbour among ours means something else."""


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """Where to start without a committed offset: `earliest`, `latest`, `none`, or `duration_ms` before the present.

    `nearest` is for a position that the log does not hold any more: the end of the log that is next to it.
    """

    kind: Literal["earliest", "latest", "none", "by_duration", "nearest"]
    duration_ms: int = 0

    @property
    def decides(self) -> bool:
        """Whether it says where to start. With `none` the application does."""
        return self.kind != "none"


FROM_EARLIEST: Final = ResetPolicy("earliest")
TO_NEAREST: Final = ResetPolicy("nearest")


def parse_reset_policy(text: str, setting: str = "auto_offset_reset") -> ResetPolicy:
    """Read `earliest`, `latest`, `none` or `by_duration:<ISO 8601>` (KIP-1106).

    Raises:
        ConfigError: the text is not one of these.
    """
    if text in ("earliest", "latest", "none"):
        return ResetPolicy(text)  # type: ignore[arg-type]
    kind, _, duration = text.partition(":")
    match = DURATION.fullmatch(duration) if kind == "by_duration" else None
    if match is None or not any(match.groupdict().values()):
        raise ConfigError(
            f"{setting}={text!r}: use 'earliest', 'latest', 'none' or 'by_duration:<ISO 8601>', for example "
            "'by_duration:PT6H'"
        )
    days, hours, minutes, seconds = (float(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    return ResetPolicy("by_duration", round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000))


def backoff_ms(failures_count: int, first_ms: int, most_ms: int) -> int:
    """The wait after `failures_count` failures in a row: doubled with each, up to `most_ms`, never below `first_ms`."""
    return min(first_ms << min(failures_count - 1, 16), max(first_ms, most_ms))


def why_not_sent(text: str) -> str | None:
    """Why no request can carry the text, or `None` if one can. It may be a password, so it is not repeated."""
    try:
        bytes_count = len(text.encode())
    except UnicodeEncodeError as error:
        return (
            f"its character {error.start} is no Unicode that could be sent (in a variable of the environment or an "
            "argument it stands for a byte that is not UTF-8)"
        )
    if bytes_count > MAX_TEXT_BYTES:
        return f"{bytes_count} bytes as UTF-8 are more than a request can carry, which is {MAX_TEXT_BYTES}"
    return None


def check_topic_name(topic: object) -> str:
    """Return the topic if Kafka allows its name (Topic.java).

    Raises:
        InvalidTopicError: Kafka does not allow it.
    """
    if isinstance(topic, Mapping | ConsumerConfig):  # it may hold a password, which no message repeats
        raise InvalidTopicError(
            f"{type(topic).__name__} is no topic name: settings are keyword arguments, "
            "Consumer('orders', bootstrap_servers='kafka:9092', group_id='billing')"
        )
    if not isinstance(topic, str) or not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        is_several = isinstance(topic, list | tuple | set | frozenset)
        raise InvalidTopicError(
            f"{topic!r} is no topic name: 1 to 249 of letters, digits, '.', '_' and '-', and neither '.' nor '..'"
            + ("; topics are arguments of their own: Consumer('orders', 'payments', ...)" if is_several else "")
        )
    return topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings, with Kafka's meaning. Durations are whole milliseconds, sizes bytes."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    client_id: str = "aiogroup"
    client_rack: str | None = None
    group_id: str | None = None
    group_instance_id: str | None = None
    member_name: str | None = None  # KIP-345 draft 41's name for group_instance_id
    registration_timeout_ms: int | None = None
    expansion_timeout_ms: int = 0

    session_timeout_ms: int = 10_000  # KIP-62's own; KIP-735 raised it to 45 s for bad networks
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rebalance_timeout_ms: int | None = None
    raise_on_poll_interval: bool = False
    leave_on_poll_interval: bool = False
    heartbeat_thread: bool = False
    deliver_while_unreachable: bool = False  # True is Java's way
    partition_assignment_strategy: Any = ("range", "cooperative-sticky", "roundrobin")

    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_ack: bool = True
    auto_offset_reset: str = "latest"
    new_partition_reset: str = "earliest"
    out_of_range_reset: str = "nearest"  # "policy" is Java's way
    isolation_level: str = "read_uncommitted"

    enable_parallel_rebalance: bool = False  # KIP-333: recover without falling behind
    parallel_order: str = "unordered"
    parallel_min_backlog: int = 1_000
    parallel_share: float = 0.5
    parallel_buffer_bytes: int = 16 * 1024 * 1024
    parallel_handoff: bool = False
    parallel_handoff_timeout_ms: int = 900_000
    parallel_group_id: str | None = None

    max_poll_records: int | None = 500
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024  # one answer never holds the loop: Java's 50 MiB take 60 ms to copy
    max_partition_fetch_bytes: int = 1024 * 1024
    max_batch_bytes: int = 128 * 1024 * 1024
    max_buffered_bytes: int = 64 * 1024 * 1024
    check_crcs: bool = True
    key_deserializer: Callable[[bytes], Any] | None = None
    value_deserializer: Callable[[bytes], Any] | None = None

    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int | None = 540_000
    allow_auto_create_topics: bool = False
    exclude_internal_topics: bool = True

    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    sasl_mechanism: str = "PLAIN"
    sasl_plain_username: str | None = field(default=None, repr=False)
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    sasl_oauth_token_provider: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, **settings: Unpack[ConsumerSettings]) -> ConsumerConfig:
        """Make the settings, refusing unknown names.

        Raises:
            ConfigError: a name is unknown (with the nearest known one), a value is out of range, or two values
                contradict each other (with both names and the rule).
        """
        known = {each.name for each in dataclasses.fields(cls)}
        for name in settings.keys() - known - OBSOLETE:
            raise ConfigError(f"unknown setting {name!r}{_hint(name, known)}")
        for name in settings.keys() & OBSOLETE:
            warnings.warn(
                f"{name} has no meaning in aiogroup and is ignored", DeprecationWarning, stacklevel=_stacklevel()
            )
        given: dict[str, Any] = {name: value for name, value in settings.items() if name in known}
        return cls(**given)

    def __post_init__(self) -> None:
        self._check_types()
        self._check_liveness()
        self._check_group()
        self._check_fetch()
        self._check_security()
        self._check_recovery()
        parse_reset_policy(self.auto_offset_reset)
        parse_reset_policy(self.new_partition_reset, "new_partition_reset")
        if self.out_of_range_reset not in ("nearest", "policy"):
            raise ConfigError(f"out_of_range_reset={self.out_of_range_reset!r}: use 'nearest' or 'policy'")

    @property
    def instance_id(self) -> str | None:
        """The static name of the member, or `None` for a dynamic one (KIP-345)."""
        return self.member_name or self.group_instance_id

    @property
    def effective_poll_interval_ms(self) -> int:
        """KIP-62: the poll interval is never shorter than the session time-out."""
        return max(self.session_timeout_ms, self.max_poll_interval_ms)

    @property
    def effective_rebalance_timeout_ms(self) -> int:
        """What JoinGroup announces: how long the group waits for this member to rejoin."""
        return self.rebalance_timeout_ms or self.effective_poll_interval_ms

    @property
    def join_timeout_ms(self) -> int:
        """How long an answer to JoinGroup may take (AbstractCoordinator.java)."""
        return max(self.request_timeout_ms, self.effective_rebalance_timeout_ms + JOIN_TIMEOUT_LAPSE_MS)

    def backoff_ms(self, failures_count: int) -> int:
        """The wait after `failures_count` failures in a row: doubled with each, up to `retry_backoff_max_ms`."""
        return backoff_ms(failures_count, self.retry_backoff_ms, self.retry_backoff_max_ms)

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def second_group_id(self) -> str:
        """The group whose offsets are the second commit log: the progress of batch jobs (KIP-333)."""
        return self.parallel_group_id or f"{self.group_id}.catchup"

    @property
    def least_fetch_bytes(self) -> int:
        """No fetch asks for less: memory would fill up with small answers."""
        return min(LEAST_FETCH_BYTES, self.fetch_max_bytes)

    def lane_buffer_bytes(self, lane: str) -> int:
        """A lane's part of `max_buffered_bytes`: all of it if there is only one lane."""
        if not self.enable_parallel_rebalance:
            return self.max_buffered_bytes
        return int(self.max_buffered_bytes * (1 - self.parallel_share if lane == "live" else self.parallel_share))

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """(host, port) of every bootstrap server; the port is 9092 where none is given. Empty names are left out."""
        servers = self.bootstrap_servers
        names = servers.split(",") if isinstance(servers, str) else servers
        _require(
            isinstance(names, Sequence) and all(isinstance(name, str) for name in names),
            f"bootstrap_servers: host:port, or a list of such, not {type(servers).__name__}",
        )
        _require(
            not any("@" in name for name in names),
            "bootstrap_servers: host:port has no place for a user and a password; pass them as sasl_plain_username and "
            "sasl_plain_password, with sasl_mechanism and security_protocol",
        )
        return tuple(_address(name.strip()) for name in names if name.strip())

    def _check_types(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            kind = str(each.type)
            if kind.startswith("int") and not (value is None and "None" in kind):
                _require(
                    isinstance(value, int) and not isinstance(value, bool),
                    f"{each.name}={value!r}: a whole number is needed",
                )
                low = 0 if each.name in MAY_BE_ZERO else 1
                _require(low <= value < 2**31, f"{each.name}={value}: must lie between {low} and 2147483647")
            elif kind == "bool":
                _require(isinstance(value, bool), f"{each.name}={value!r}: True or False is needed")
            elif kind.startswith("str") and "Sequence" not in kind and not (value is None and "None" in kind):
                _require(isinstance(value, str), f"{each.name}: a text is needed, not {type(value).__name__}")
                if (why := why_not_sent(value)) is not None:
                    raise ConfigError(f"{each.name}: {why}")
        addresses = self.bootstrap_addresses
        _require(bool(addresses), "bootstrap_servers is empty: name at least one host:port")

    def _check_liveness(self) -> None:
        _require(
            self.heartbeat_interval_ms < self.session_timeout_ms,
            f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below session_timeout_ms="
            f"{self.session_timeout_ms} (at most a third of it, so that two lost heartbeats do not cost the "
            "membership)",
        )
        _require(
            self.request_timeout_ms > self.fetch_max_wait_ms,
            f"request_timeout_ms={self.request_timeout_ms} must be above fetch_max_wait_ms={self.fetch_max_wait_ms}: "
            "the broker may hold a fetch that long",
        )

    def _check_group(self) -> None:
        _require(self.group_id != "", "group_id is empty: name a group, or pass None to read without one")
        _require(
            self.member_name is None or self.group_instance_id in (None, self.member_name),
            f"member_name={self.member_name!r} and group_instance_id={self.group_instance_id!r} are two names of one "
            "setting: give one",
        )
        name = self.instance_id
        if name is not None:
            _require(self.group_id is not None, f"group_instance_id={name!r} needs a group_id")
            _require(
                TOPIC_NAME.fullmatch(name) is not None and name not in (".", ".."),
                f"group_instance_id={name!r}: 1 to 249 of letters, digits, '.', '_' and '-'",
            )
        self._check_static(name)
        _require(
            bool(self.partition_assignment_strategy),
            "partition_assignment_strategy is empty: name an assignor",
        )

    def _check_static(self, name: str | None) -> None:
        for setting in ("registration_timeout_ms", "expansion_timeout_ms"):
            value = getattr(self, setting)
            _require(
                name is not None or not value,
                f"{setting}={value} needs a member_name (group_instance_id): it is about static members",
            )
        _require(
            self.registration_timeout_ms is None or self.heartbeat_interval_ms < self.registration_timeout_ms,
            f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below registration_timeout_ms="
            f"{self.registration_timeout_ms}: the broker drops a member that it has not heard from for so long",
        )
        if self.expansion_timeout_ms > LONGEST_EXPANSION_MS:
            warnings.warn(
                f"expansion_timeout_ms={self.expansion_timeout_ms} acts as {LONGEST_EXPANSION_MS} on Kafka, where a "
                "broker drops a newcomer that waits for 300000 ms",
                stacklevel=_stacklevel(),
            )

    def _check_recovery(self) -> None:
        """The settings of KIP-333's mode fit each other."""
        self._check_lanes()
        if not self.enable_parallel_rebalance:
            if self.parallel_handoff:
                raise ConfigError("parallel_handoff=True needs enable_parallel_rebalance=True")
            return
        if self.group_id is None:
            raise ConfigError("enable_parallel_rebalance=True needs a group_id: without a group nothing is committed")
        if self.parallel_order == "ordered" and self.parallel_buffer_bytes > self.lane_buffer_bytes("live"):
            raise ConfigError(
                f"parallel_buffer_bytes={self.parallel_buffer_bytes} must not be above the live lane's part of "
                f"max_buffered_bytes={self.max_buffered_bytes}, which is {self.lane_buffer_bytes('live')}"
            )
        least_bytes = max(self.max_partition_fetch_bytes, self.least_fetch_bytes)
        if min(map(self.lane_buffer_bytes, ("live", "catch-up"))) < least_bytes:
            raise ConfigError(
                f"max_buffered_bytes={self.max_buffered_bytes} is divided by parallel_share={self.parallel_share}, and "
                f"one fetch of max_partition_fetch_bytes={self.max_partition_fetch_bytes} must fit into each part"
            )

    def _check_lanes(self) -> None:
        share = self.parallel_share
        is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if not is_number or not 0 < share < 1:
            raise ConfigError(f"parallel_share={share!r}: a number between 0 and 1, so that no lane stands still")
        if self.parallel_order not in LANE_ORDERS:
            raise ConfigError(f"parallel_order={self.parallel_order!r}: 'unordered' or 'ordered'")
        if self.parallel_order == "ordered" and self.parallel_handoff:
            raise ConfigError(
                "parallel_order='ordered' and parallel_handoff=True: a job knows no order across lanes; choose one"
            )
        if self.parallel_group_id is not None and self.parallel_group_id in ("", self.group_id):
            raise ConfigError(
                f"parallel_group_id={self.parallel_group_id!r}: the second commit log needs a group of its own beside "
                f"group_id={self.group_id!r}"
            )

    def _check_fetch(self) -> None:
        _require(
            self.isolation_level in ("read_uncommitted", "read_committed"),
            f"isolation_level={self.isolation_level!r}: 'read_uncommitted' or 'read_committed'",
        )
        for name in ("fetch_max_bytes", "max_partition_fetch_bytes"):
            given = getattr(self, name)
            _require(
                given <= FRAME_LIMIT_BYTES // 2,
                f"{name}={given} must not be above {FRAME_LIMIT_BYTES // 2}, half of the longest answer that is read: "
                "an answer may hold one batch more",
            )
        _require(
            self.max_buffered_bytes >= self.max_partition_fetch_bytes,
            f"max_buffered_bytes={self.max_buffered_bytes} must not be below max_partition_fetch_bytes="
            f"{self.max_partition_fetch_bytes}: one fetch of one partition must fit",
        )
        _require(
            self.max_buffered_bytes >= self.least_fetch_bytes,
            f"max_buffered_bytes={self.max_buffered_bytes} must not be below {self.least_fetch_bytes}, the least that "
            f"a fetch asks for with fetch_max_bytes={self.fetch_max_bytes}: nothing would be read",
        )

        for name in ("key_deserializer", "value_deserializer"):
            given = getattr(self, name)
            _require(
                given is None or (callable(given) and not inspect.iscoroutinefunction(given)),
                f"{name}={given!r}: a function that takes bytes is needed, and not an async one",
            )

    def _check_security(self) -> None:
        _require(
            self.ssl_context is None or isinstance(self.ssl_context, ssl.SSLContext),
            f"ssl_context: an ssl.SSLContext is needed, not {type(self.ssl_context).__name__}; "
            "ssl.create_default_context() makes one",
        )
        _require(
            self.security_protocol in SECURITY_PROTOCOLS,
            f"security_protocol={self.security_protocol!r}: one of {', '.join(SECURITY_PROTOCOLS)}",
        )
        if self.security_protocol.endswith("SSL") and self.ssl_context is None:
            raise ConfigError(
                f"security_protocol={self.security_protocol!r} needs ssl_context (aiokafka.helpers.create_ssl_context "
                "or ssl.create_default_context)"
            )
        self._check_security_is_used()
        if not self.security_protocol.startswith("SASL"):
            return
        _require(
            self.sasl_mechanism in SASL_MECHANISMS,
            f"sasl_mechanism={self.sasl_mechanism!r}: one of {', '.join(SASL_MECHANISMS)}",
        )
        if self.sasl_mechanism == "OAUTHBEARER":
            _require(
                callable(getattr(self.sasl_oauth_token_provider, "token", None)),
                "sasl_mechanism='OAUTHBEARER' needs sasl_oauth_token_provider: an object with async def token() -> str",
            )
            _require(
                not self.heartbeat_thread,
                "heartbeat_thread=True and sasl_mechanism='OAUTHBEARER': the token provider belongs to the main loop, "
                "which may be blocked when the thread needs a token; use another mechanism, or no heartbeat_thread",
            )
        elif self.sasl_mechanism == "GSSAPI":
            try:
                import gssapi  # noqa: F401, PLC0415 (few need it)
            except ImportError as error:
                raise ConfigError(
                    f"sasl_mechanism='GSSAPI' needs the package gssapi ({error}): pip install gssapi, which needs the "
                    "libraries of Kerberos (Debian: libgssapi-krb5-2, and gcc and libkrb5-dev while pip builds it)"
                ) from error
        else:
            _require(
                self.sasl_plain_username is not None and self.sasl_plain_password is not None,
                f"sasl_mechanism={self.sasl_mechanism!r} needs sasl_plain_username and sasl_plain_password",
            )

    def _check_security_is_used(self) -> None:
        """Credentials and certificates that the protocol would not use: the records would go unprotected."""
        given = {
            "sasl_plain_username": self.sasl_plain_username is not None,
            "sasl_plain_password": self.sasl_plain_password is not None,
            "sasl_oauth_token_provider": self.sasl_oauth_token_provider is not None,
            "sasl_mechanism": self.sasl_mechanism != "PLAIN",
        }
        unused = [] if self.security_protocol.startswith("SASL") else [name for name in given if given[name]]
        if self.ssl_context is not None and not self.security_protocol.endswith("SSL"):
            unused.append("ssl_context")
        has, it = ("has", "it") if len(unused) == 1 else ("have", "them")
        _require(
            not unused,
            f"{', '.join(unused)} {has} no effect with security_protocol={self.security_protocol!r}: leave {it} out, "
            "or choose SASL_SSL (TLS and SASL), SSL (TLS alone) or SASL_PLAINTEXT (SASL without encryption)",
        )


def _hint(name: str, known: Iterable[str]) -> str:
    if name.startswith("ssl_"):
        return ": files, passwords and checks of TLS belong into ssl_context=ssl.create_default_context(cafile=...)"
    if name in WRITTEN_OTHERWISE:
        return f": {WRITTEN_OTHERWISE[name]}"
    import difflib  # noqa: PLC0415 (for the message alone)

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


def _stacklevel() -> int:
    """The stack level of the application's line, in whichever way it made the settings."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == "aiogroup":
        level, frame = level + 1, frame.f_back
    return level


def _address(name: str) -> tuple[str, int]:
    scheme, has_scheme, _ = name.partition("://")
    if has_scheme:
        raise ConfigError(
            f"bootstrap_servers: {name!r} is not host:port: write it without {scheme + '://'!r}, and choose TLS or "
            "SASL by security_protocol"
        )
    host, colon, port = name.rpartition(":")
    if not colon or name.endswith("]"):
        host, port = name, "9092"
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"bootstrap_servers: {name!r} is not host:port")
    return host.strip("[]"), int(port)
