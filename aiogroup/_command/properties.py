"""Reads Java `.properties` files, and translates their keys and class names into ours."""

from __future__ import annotations

import dataclasses
import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from aiogroup.assignors import BY_NAME
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConfigError

__all__ = [
    "PREFIX",
    "assignors_of",
    "consumer_settings",
    "is_connection",
    "load_properties",
    "of_environment",
    "parse_properties",
    "producer_settings",
]

PREFIX: Final = "AIOGROUP_"
"""Of the variables of the environment that tell a command how to reach a cluster."""
_CONNECTION: Final = ("bootstrap.servers", "security.protocol", "sasl.", "ssl.")

_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""The name of each class in JoinGroup (ConsumerPartitionAssignor.name)."""
_WITHOUT_KEY: Final = frozenset(
    {
        "member_name", "registration_timeout_ms", "expansion_timeout_ms", "rebalance_timeout_ms",
        "raise_on_poll_interval", "leave_on_poll_interval", "auto_ack", "new_partition_reset",
        "out_of_range_reset", "max_batch_bytes", "deliver_while_unreachable",
    }
)  # fmt: skip
"""Settings of ours that no Java client has: in a file such a key has another meaning."""
_PRODUCER: Final[Mapping[str, tuple[str, type]]] = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "client.id": ("client_id", str),
    "metadata.max.age.ms": ("metadata_max_age_ms", int),
    "request.timeout.ms": ("request_timeout_ms", int),
    "batch.size": ("max_batch_size", int),
    "max.request.size": ("max_request_size", int),
    "linger.ms": ("linger_ms", int),
    "retry.backoff.ms": ("retry_backoff_ms", int),
    "connections.max.idle.ms": ("connections_max_idle_ms", int),
    "enable.idempotence": ("enable_idempotence", bool),
}
"""AIOKafkaProducer's names for Java's keys."""
_SECURITY: Final = frozenset({"security.protocol", "sasl.mechanism", "sasl.kerberos.service.name"})
_NEED_PROTOCOL: Final = (
    "sasl.mechanism", "sasl.jaas.config", "sasl.plain.username", "sasl.plain.password",
    "ssl.truststore.location", "ssl.truststore.certificates", "ssl.keystore.location",
)  # fmt: skip
"""With them a secure connection is meant, which there is none of by the default."""
_CREDENTIAL: Final = r'\b{}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))'
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties that variables give, and that say how to reach a cluster: `AIOGROUP_SASL_MECHANISM`, for one."""
    named = {name.removeprefix(PREFIX): text for name, text in environment.items() if name.startswith(PREFIX)}
    keys = {name.lower().replace("_", "."): text for name, text in named.items()}
    return {key: text for key, text in keys.items() if is_connection(key)}


def is_connection(key: str) -> bool:
    """Whether this property says how to reach a cluster."""
    return key.startswith(_CONNECTION)


def load_properties(path: Path) -> dict[str, str]:
    """Read a file as `Properties.load(InputStream)` does: its bytes are Latin-1.

    Raises:
        ConfigError: the file has a malformed `\\u` escape. OSError: the file cannot be read.
    """
    return parse_properties(path.read_bytes().decode("latin-1"))


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values by the rules of java.util.Properties; of two equal keys the last one counts.

    Raises:
        ConfigError: there is a malformed `\\u` escape. It names the line and the key, and never the value, which may be
            a password.
    """
    found = {}
    for number, line in _logical_lines(re.split(r"\r\n|\r|\n", text)):
        match = _KEY.fullmatch(line)
        if match is not None:
            key = _unescaped(match[1], f"the key in line {number} of the properties")
            found[key] = _unescaped(match[2], f"the value of {key!r} in line {number} of the properties")
    return found


def _logical_lines(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    """Lines joined where they end with an odd number of backslashes, each with the number of its first one; comments
    cannot be continued.
    """
    begun, first = None, 0
    for number, each in enumerate(lines, 1):
        line = each.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        begun, first = (line, number) if begun is None else (begun + line, first)
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield first, begun
        begun = None
    if begun is not None:
        yield first, begun


def _unescaped(text: str, where: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if code == "u":
            raise ConfigError(
                f"{where} has a malformed \\uXXXX escape: write \\\\ for a backslash, and \\\\\\\\ for one within the "
                "quotes of sasl.jaas.config"
            )
        return chr(int(code[1:], 16)) if code[0] == "u" else _ESCAPES.get(code, code)

    # Two \u escapes may together be one character beyond U+FFFF.
    plain = _ESCAPE.sub(character, text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def assignors_of(text: str, known: Iterable[str] = BY_NAME) -> tuple[str, ...]:
    """Our names for comma-separated Java class names (or for the names in JoinGroup), in their order.

    Raises:
        ConfigError: a name is not that of one of Kafka's assignors, or aiogroup does not have that one yet.
    """
    names, here = [], sorted(known)
    for entry in filter(None, (each.strip() for each in text.split(","))):
        name = _ASSIGNORS.get(entry.removeprefix(_PACKAGE), entry)
        if name not in here:
            classes = [_PACKAGE + each for each, its_name in _ASSIGNORS.items() if its_name in here]
            why = "aiogroup does not have it yet" if name in _ASSIGNORS.values() else "it is no assignor of Kafka's"
            raise ConfigError(f"partition.assignment.strategy={entry!r}: {why}; it has {', '.join(classes)}")
        names.append(name)
    if not names:
        raise ConfigError("partition.assignment.strategy is empty: name an assignor's class")
    return tuple(names)


def consumer_settings(properties: Mapping[str, str]) -> tuple[dict[str, object], tuple[str, ...]]:
    """`ConsumerConfig`'s settings, and the keys that have no meaning for it.

    Raises:
        ConfigError: a value has the wrong type, or asks for something that is not supported.
    """
    fields = {each.name: str(each.type) for each in dataclasses.fields(ConsumerConfig) if each.name not in _WITHOUT_KEY}
    settings, ignored = _security(properties), []
    for key, value in properties.items():
        name = key.replace(".", "_")
        kind = _kind(fields.get(name, ""))
        if key == "group.protocol":
            check_group_protocol(value)
        elif key == "partition.assignment.strategy":
            settings[name] = assignors_of(value)
        elif kind is not None:
            settings[name] = _value(key, value, kind)
        elif not _is_security(key):
            ignored.append(key)
    if not str(settings.get("security_protocol", "")).startswith("SASL"):
        settings.pop("sasl_mechanism", None)  # Java's files often have it for every protocol
    return settings, tuple(ignored)


def producer_settings(properties: Mapping[str, str]) -> tuple[dict[str, object], tuple[str, ...]]:
    """AIOKafkaProducer's settings, and the keys that have no meaning for it.

    Raises:
        ConfigError: a value has the wrong type, or asks for something that is not supported.
    """
    settings, ignored = _security(properties), []
    for key, value in properties.items():
        if key in _PRODUCER:
            name, kind = _PRODUCER[key]
            settings[name] = _value(key, value, kind)
        elif key == "acks":
            settings["acks"] = "all" if value.strip() in ("all", "-1") else _value(key, value, int)
        elif key == "compression.type":
            settings["compression_type"] = None if value.strip() == "none" else value.strip()
        elif key in _SECURITY:
            settings[key.replace(".", "_")] = value.strip()
        elif not _is_security(key):
            ignored.append(key)
    return settings, tuple(ignored)


def check_group_protocol(value: str) -> None:
    """Check that the group protocol is the classic one.

    Raises:
        ConfigError: it is another protocol.
    """
    if value.strip().lower() != "classic":
        raise ConfigError(
            f"group.protocol={value!r}: aiogroup speaks 'classic' only; KIP-848's 'consumer' is not there yet"
        )


def _kind(annotation: str) -> type | None:
    for kind in (int, bool, str):
        if annotation.startswith(kind.__name__):
            return kind
    return None


def _value(key: str, text: str, kind: type) -> object:
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text!r}: true or false is needed")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{key}={text!r}: a whole number is needed") from None
    return text


def _is_security(key: str) -> bool:
    return key in _SECURITY or key == "sasl.jaas.config" or key in _SSL_KEYS


_SSL_KEYS: Final = frozenset(
    {
        "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates", "ssl.truststore.password",
        "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.key.password",
        "ssl.endpoint.identification.algorithm", "ssl.protocol", "ssl.enabled.protocols",
    }
)  # fmt: skip


def _security(properties: Mapping[str, str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    if "security.protocol" not in properties and (unused := [key for key in _NEED_PROTOCOL if key in properties]):
        raise ConfigError(
            f"{', '.join(unused)}: without effect, as security.protocol is not set: set it to SASL_SSL (TLS and SASL), "
            "SSL (TLS alone) or SASL_PLAINTEXT (SASL without encryption)"
        )
    protocol = properties.get("security.protocol", "PLAINTEXT").strip()
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _ssl_context(properties)
    if protocol.startswith("SASL"):
        settings["sasl_mechanism"] = properties.get("sasl.mechanism", "GSSAPI").strip()  # Java's default
        jaas = properties.get("sasl.jaas.config", "")
        for name in ("username", "password"):
            match = re.search(_CREDENTIAL.format(name), jaas)
            if match is not None:
                settings[f"sasl_plain_{name}"] = match[2] or re.sub(r"\\(.)", r"\1", match[1])
    return settings


def _ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    trusted = properties.get("ssl.truststore.certificates")
    if trusted is None and "ssl.truststore.location" in properties:
        trusted = _pem("ssl.truststore.location", properties)
    try:
        context = ssl.create_default_context(cadata=trusted)
        # Java's default is https; only an empty value turns the comparison of names off.
        context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https").strip() != ""
        if "ssl.keystore.location" in properties:
            _pem("ssl.keystore.location", properties)
            context.load_cert_chain(
                properties["ssl.keystore.location"].strip(), password=properties.get("ssl.key.password")
            )
    except ssl.SSLError as error:
        raise ConfigError(f"the certificates cannot be used: {error}") from error
    return context


def _pem(key: str, properties: Mapping[str, str]) -> str:
    path = Path(properties[key].strip())
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{key}={str(path)!r} cannot be read: {error}") from error
    if b"-----BEGIN" not in content:
        raise ConfigError(f"{key}={str(path)!r}: only PEM can be read here; convert the store with keytool and openssl")
    return content.decode("latin-1")
