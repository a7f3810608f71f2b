"""Why TLS failed: the alert that the broker sent or what this side found, which certificate it is about, what to do.

With TLS 1.3 this side has ended its handshake before the broker looks at the client's certificate: then the alert is
the first thing that is read from the open connection.
"""

from __future__ import annotations

import ssl
from typing import Final

__all__ = ["LOAD_CLIENTS", "why_tls_failed"]

LOAD_CLIENTS: Final = "load one with ssl_context.load_cert_chain(certfile, keyfile)"
TRUSTED_THERE: Final = "it must be valid now, and issued by an authority in the broker's ssl.truststore"
NO_COMMON_VERSION: Final = (
    "ssl_context and the broker have no version of TLS in common: compare ssl_context.minimum_version and "
    "maximum_version with the broker's ssl.enabled.protocols"
)

OF_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": f"it requires a client certificate and got none: {LOAD_CLIENTS}",
    "BAD_CERTIFICATE": f"it refused the client certificate, or requires one and got none: {LOAD_CLIENTS}; "
    f"{TRUSTED_THERE}",
    "CERTIFICATE_UNKNOWN": f"it refused the client certificate: {TRUSTED_THERE}",
    "CERTIFICATE_EXPIRED": "the client certificate has expired: renew it",
    "CERTIFICATE_REVOKED": "the client certificate was revoked: renew it",
    "UNSUPPORTED_CERTIFICATE": "it does not support the client certificate's kind: its key usage must allow clientAuth",
    "UNKNOWN_CA": "it does not know the authority of the client certificate: add that to the broker's ssl.truststore, "
    "or use a certificate of an authority that it trusts",
    "ACCESS_DENIED": "it took the client certificate for valid, and refused its owner",
    "DECRYPT_ERROR": "the client certificate does not fit its key, or the handshake was damaged on its way",
    "PROTOCOL_VERSION": NO_COMMON_VERSION,
    "INSUFFICIENT_SECURITY": "it wants stronger ciphers than ssl_context offers",
    "HANDSHAKE_FAILURE": "ssl_context and the broker have no cipher in common (the broker's ssl.cipher.suites), or it "
    f"requires a client certificate and got none: {LOAD_CLIENTS}",
}
"""By the name of the alert (RFC 8446, 6.2), which is a broker's answer to what this side sent. Java's brokers send
CERTIFICATE_UNKNOWN for most of what is wrong with a client's certificate."""

EXPIRED, NOT_YET, HOSTNAME, ADDRESS = 10, 9, 62, 64
"""X509_V_ERR_CERT_HAS_EXPIRED, _CERT_NOT_YET_VALID, _HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH of OpenSSL."""

OF_BROKERS: Final = {
    EXPIRED: "the broker's certificate, or one of its authority, has expired: renew it there, or set this machine's "
    "clock",
    NOT_YET: "the broker's certificate, or one of its authority, is not valid yet: set this machine's clock, or the "
    "broker's certificate",
    HOSTNAME: "the broker's certificate is for other names: connect by one of its names (advertised.listeners, "
    "bootstrap_servers), or add this name to its subjectAltName",
    ADDRESS: "the broker's certificate is for other names: connect by one of its names (advertised.listeners, "
    "bootstrap_servers), or add this address to its subjectAltName",
}


def why_tls_failed(error: BaseException) -> str | None:
    """Which certificate or setting is wrong, and what to do; `None` if the failure is none of TLS's own.

    What the broker sends is not quoted: only names of alerts and texts of OpenSSL's.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = OF_BROKERS.get(
            error.verify_code,
            "its certificate is not trusted: trust its authority with "
            "ssl_context=ssl.create_default_context(cafile=...)",
        )
        return f"{advice} ({error.verify_message})"
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    if reason is None:
        return None
    _, is_alert, name = reason.partition("_ALERT_")
    if is_alert:
        advice = OF_ALERTS.get(name, "the broker's log says more")
        return f"the broker ended the TLS handshake with the alert {name}: {advice}"
    if reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"):
        return f"{NO_COMMON_VERSION} ({reason})"
    return None
