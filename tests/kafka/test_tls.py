"""What an error says of a TLS handshake that failed, whichever side found the fault."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from aiogroup import ConnectionLostError
from aiogroup._runtime.net.link import METADATA, Link
from aiogroup.config import ConsumerConfig

OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
NOW, DAY = datetime.now(UTC), timedelta(days=1)
AUTHORITY, OTHER = trustme.CA(), trustme.CA()


@pytest.fixture
def servers():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def clients():
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


@contextmanager
def serving(context):
    """The port of a server that takes one connection, reads, and answers nothing.

    It has blocking sockets: asyncio's server closes without having sent its alert.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            accepted, _ = listening.accept()
            with accepted.dup() as raw:
                with suppress(OSError), context.wrap_socket(accepted, server_side=True) as secured:
                    secured.recv(100)
                while raw.recv(1_000):  # to close before everything is read would be a reset, which overtakes the alert
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


async def why(servers, clients):
    with serving(servers) as port:
        config = ConsumerConfig(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SSL",
            ssl_context=clients,
            request_timeout_ms=5_000,
        )
        async with Link(config) as link:
            with pytest.raises(ConnectionLostError) as raised:
                await link.connect(-1, METADATA)
    return str(raised.value)


@pytest.mark.parametrize(
    ("version", "certificate", "alert", "advice"),
    [
        (NEW, None, "CERTIFICATE_REQUIRED", "ssl_context.load_cert_chain"),
        (OLD, None, "HANDSHAKE_FAILURE", "ssl_context.load_cert_chain"),
        (NEW, OTHER.issue_cert("me"), "UNKNOWN_CA", "ssl.truststore"),
        (OLD, OTHER.issue_cert("me"), "UNKNOWN_CA", "ssl.truststore"),
        (NEW, AUTHORITY.issue_cert("me", not_after=NOW - DAY), "CERTIFICATE_EXPIRED", "client certificate has expired"),
        (OLD, AUTHORITY.issue_cert("me", not_after=NOW - DAY), "CERTIFICATE_EXPIRED", "client certificate has expired"),
        (NEW, AUTHORITY.issue_cert("me", not_before=NOW + DAY), "BAD_CERTIFICATE", "must be valid now"),
    ],
)
async def test_the_alert_for_the_client_certificate(servers, clients, version, certificate, alert, advice):
    servers.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(servers)
    clients.maximum_version = version
    if certificate is not None:
        certificate.configure_cert(clients)
    said = await why(servers, clients)
    assert f"with the alert {alert}: " in said
    assert advice in said
    assert "another protocol" not in said


async def test_no_version_in_common(servers, clients):
    servers.maximum_version, clients.minimum_version = OLD, NEW
    said = await why(servers, clients)
    assert "the alert PROTOCOL_VERSION" in said
    assert "ssl_context.minimum_version" in said
    assert "ssl.enabled.protocols" in said


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        (
            AUTHORITY.issue_cert("127.0.0.1", not_after=NOW - DAY),
            "the broker's certificate, or one of its authority",
        ),
        (AUTHORITY.issue_cert("127.0.0.1", not_before=NOW + DAY), "not valid yet: set this machine's clock"),
        (AUTHORITY.issue_cert("kafka.test"), "is for other names: connect by one of its names"),
        (OTHER.issue_cert("127.0.0.1"), "not trusted: trust its authority with ssl_context"),
    ],
)
async def test_what_is_wrong_with_the_brokers_certificate(clients, certificate, said):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    assert said in await why(context, clients)


async def test_a_broker_that_closes_after_the_handshake(servers, clients):
    """Its alert may be lost: a reset overtakes it."""

    async def close(_, writer):
        writer.transport.abort()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=servers)
    port = server.sockets[0].getsockname()[1]
    config = ConsumerConfig(bootstrap_servers=f"127.0.0.1:{port}", security_protocol="SSL", ssl_context=clients)
    async with server, Link(config) as link:
        with pytest.raises(ConnectionLostError, match=r"If it requires a client certificate .*load_cert_chain"):
            await link.connect(-1, METADATA)
