"""Throw-away certificates and accounts for the listeners SSL, SASL_SSL and SASL_PLAINTEXT."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.devkafka.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECURE_LISTENERS: Final = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SAFE = re.compile(r"[A-Za-z0-9._@-]+")
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files; `keystore` has the broker's private key and its certificate chain."""

    ca: Path
    keystore: Path


def make_certificates(directory: Path) -> Certificates:
    """Make a new certificate authority, and a certificate from it for localhost and 127.0.0.1."""
    try:
        import trustme  # noqa: PLC0415 (the extra devkafka)
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    except ImportError as error:
        raise DevKafkaError("the secure listeners need trustme; run: pip install 'aiogroup[devkafka]'") from error
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", HOST)
    found = Certificates(ca=directory / "ca.pem", keystore=directory / "keystore.pem")
    authority.cert_pem.write_to_path(str(found.ca))
    # Kafka reads PKCS#8 keys only; trustme writes OpenSSL's traditional form.
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    found.keystore.touch(mode=0o600)
    found.keystore.write_bytes(key + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return found


def check_users(users: Mapping[str, str]) -> None:
    """Check names and passwords, which go into JAAS and SCRAM syntax without quotes."""
    for name, password in users.items():
        if not _SAFE.fullmatch(name) or not _SAFE.fullmatch(password):
            raise DevKafkaError(f"user {name!r}: name and password may hold letters, digits and . _ @ - only")


def security_properties(certificates: Certificates, users: Mapping[str, str]) -> dict[str, str]:
    """The settings that every node needs for the secure listeners."""
    accounts = "".join(f' user_{name}="{password}"' for name, password in users.items())
    jaas = {
        "plain": f"{_MODULES}.plain.PlainLoginModule required{accounts};",
        "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
        # Kafka's default handlers, used when none is named, accept unsecured JWS.
        "oauthbearer": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka";',
    }
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
    }
    for listener in ("sasl_ssl", "sasl_plaintext"):
        prefix = f"listener.name.{listener}."
        properties[f"{prefix}sasl.enabled.mechanisms"] = ",".join(_MECHANISMS)
        properties |= {f"{prefix}{mechanism}.sasl.jaas.config": line for mechanism, line in jaas.items()}
    return properties


def scram_arguments(users: Mapping[str, str]) -> list[str]:
    """The storage tool's arguments that create the accounts with the first metadata record."""
    return [
        argument
        for name, password in users.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def unsecured_jws(principal: str, lifetime_ms: int = 3_600_000) -> str:
    """A token that the OAUTHBEARER listener accepts as `principal` (RFC 7515, algorithm none)."""
    now = datetime.now(tz=UTC).timestamp()
    # Kafka refuses a token that was issued in its future, and compares whole milliseconds: on a fast machine one that
    # was issued now would be refused.
    claims = {"sub": principal, "iat": now - 1, "exp": now + lifetime_ms / 1000}

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(claims)}."
