"""Authentication of a connection by SASL, and again on the open connection before its session ends (KIP-368).

A broker that limits the lifetime of sessions closes a connection when a request arrives after that. So this side
authenticates again at 85 to 95 % of the lifetime, as Java does. From the start of that exchange to its end the broker
takes no other request, and requests that are written meanwhile are held back. It begins when no request is unanswered
(a JoinGroup may be for minutes): also a session that has ended by then may be renewed, as long as nothing else arrives.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from aiokafka.conn import (  # type: ignore[attr-defined]  # the provider's home is where applications' classes come from
    AbstractTokenProvider,
    OAuthAuthenticator,
    log,
)
from aiokafka.errors import UnsupportedSaslMechanismError, for_code
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest

from aiogroup._runtime.loop.clock import FOREVER_MS, now_ms, sleep_ms, timeout_ms
from aiogroup._runtime.loop.retries import Retries
from aiogroup._runtime.loop.supervisor import start_task
from aiogroup._runtime.loop.threads import call_in_thread
from aiogroup.config import ConsumerConfig

__all__ = ["CredentialsError", "Session", "SessionNotRenewedError", "Tokens"]

EARLIEST: Final = 0.85
LATEST: Final = 0.95
"""The part of its lifetime after which a session is renewed: by lot, so that not all connections do it at once."""
LEAST_MS: Final = 1_100
"""A broker refuses to renew a session twice within a second."""
EXCHANGE_MS: Final = 10_000
"""How long the exchange may take, for which requests are held back."""
FRESH_MS: Final = 1_000
"""For how long the first message is kept until the exchange can begin: the token in it has a lifetime of its own."""


class CredentialsError(Exception):
    """This side has nothing to authenticate with: the application's token provider raised, or Kerberos gives no ticket.

    Of the provider's error only the type is given, since the text may hold the token.
    """


class SessionNotRenewedError(Exception):
    """The broker did not accept, or did not answer, a second authentication. The text holds no secret."""


class Tokens(AbstractTokenProvider):
    """aiokafka takes no provider of another class; the application's may be any object with `async def token()`."""

    def __init__(self, provider: Any) -> None:  # noqa: ANN401 (checked by the config)
        self._provider = provider

    async def token(self) -> str:
        return await self._provider.token()  # type: ignore[no-any-return]

    def extensions(self) -> Mapping[str, str]:
        return getattr(self._provider, "extensions", dict)()


class _Oauth(OAuthAuthenticator):
    """aiokafka's class mistakes a refusal for a success: a refusal comes as a challenge, which must be answered by 0x01
    (RFC 7628, 3.2.3).
    """

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if self._token_sent:
            return (b"\x01", True) if payload else None
        try:
            return await super().step(payload)  # type: ignore[no-any-return,no-untyped-call]
        except Exception as error:  # noqa: BLE001 (the application's code)
            kind = type(error).__name__
        raise CredentialsError(f"sasl_oauth_token_provider raised {kind}")


class _Kerberos:
    """aiokafka's steps, whose errors are those of a library in C."""

    def __init__(self, connection: Authenticated) -> None:
        self._broker = connection.sasl_principal
        self._authenticator = connection.authenticator_gssapi()

    def _step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        from gssapi.raw.misc import GSSError  # noqa: PLC0415 (checked by the config)

        try:
            return self._authenticator._step(payload)  # type: ignore[no-any-return]
        except GSSError as error:
            if payload is not None:  # the ticket was there: it is the broker's message that does not fit
                raise
            raise CredentialsError(
                f"GSSAPI failed for {self._broker}: {error}. Get a ticket with kinit, or name a keytab in "
                "KRB5_CLIENT_KTNAME. The broker's name is sasl_kerberos_service_name@sasl_kerberos_domain_name"
            ) from error


Step = Callable[[bytes | None], Awaitable[tuple[bytes, bool] | None]]
"""One step of a mechanism: the broker's message to ours, and whether that is answered. `None` at the end."""


class Authenticated(Protocol):
    """What a session needs of its connection."""

    def send(self, request: Any) -> Awaitable[Any]: ...  # noqa: ANN401
    def send_token(self, payload: bytes, *, is_answered: bool) -> Awaitable[Any]: ...
    def authenticator_plain(self) -> Any: ...  # noqa: ANN401
    def authenticator_scram(self) -> Any: ...  # noqa: ANN401
    def authenticator_gssapi(self) -> Any: ...  # noqa: ANN401
    @property
    def sasl_principal(self) -> str: ...
    async def hold(self) -> None:
        """Write no more requests, and wait until each that was written is answered."""
        ...

    def release(self) -> None:
        """Write what was held back."""
        ...

    def give_up(self, error: SessionNotRenewedError) -> None:
        """Close the connection. Those who wait for an answer get the error."""
        ...


class Session:
    """The session of one connection: `begin` authenticates, after which the session is renewed until `end`."""

    def __init__(self, connection: Authenticated, config: ConsumerConfig) -> None:
        self._connection = connection
        self._config = config
        self._mechanism: str = config.sasl_mechanism
        self._task: asyncio.Task[None] | None = None
        self._renew_at_ms = self._ends_at_ms = self.late_at_ms = FOREVER_MS
        """From then on no request may be written before the session is renewed: the loop was blocked, or the token is
        late.
        """

    async def begin(self) -> None:
        """Authenticate.

        Raises:
            CredentialsError: there is no token, or no ticket.
            Exception: anything, for hostile bytes.
        """
        if self._mechanism == "PLAIN" and self._config.security_protocol == "SASL_PLAINTEXT":
            log.warning("Sending username and password in the clear")  # aiokafka's words, in its log
        step = self._new_step()
        await self._exchange(step, await step(None))
        if self._ends_at_ms != FOREVER_MS:
            self._task = start_task("session", self._renew)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _count(self, lifetime_ms: int, asked_at_ms: int) -> None:
        """Count from when the session was asked for: for the broker it began before its answer was read. A lifetime of
        0 has no end.
        """
        if lifetime_ms <= 0:
            self._renew_at_ms = self._ends_at_ms = self.late_at_ms = FOREVER_MS
            return
        part = random.uniform(EARLIEST, LATEST)  # noqa: S311 (no secret)
        self._renew_at_ms = max(now_ms() + LEAST_MS, asked_at_ms + round(lifetime_ms * part))
        self.late_at_ms = asked_at_ms + round(lifetime_ms * LATEST)
        self._ends_at_ms = asked_at_ms + lifetime_ms

    async def _renew(self) -> None:
        try:
            while self._ends_at_ms != FOREVER_MS:
                await sleep_ms(max(0, self._renew_at_ms - now_ms()))
                # While the application looks for a token, and a KDC for a ticket, requests are still sent.
                async with timeout_ms(max(EXCHANGE_MS, self._ends_at_ms - now_ms())):
                    step, first = await self._first_step(self._ends_at_ms)
                ready_at_ms = now_ms()
                await self._connection.hold()
                async with timeout_ms(min(EXCHANGE_MS, self._config.request_timeout_ms)):
                    if now_ms() - ready_at_ms > FRESH_MS:
                        step, first = await self._first_step(now_ms())
                    await self._exchange(step, first)
                self._connection.release()
            return
        except TimeoutError:
            why = "no token, no ticket or no answer came in time"
        except CredentialsError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 (anything, for hostile bytes, and it may quote a secret)
            why = _WHY_REFUSED.get(type(error).__name__, type(error).__name__)
        self._task = None
        self._connection.give_up(SessionNotRenewedError(f"its session could not be renewed: {why}"))

    async def _first_step(self, until_ms: int) -> tuple[Step, tuple[bytes, bool] | None]:
        """Our first message. Where no token or ticket can be had it is asked for again until the session ends."""
        retries = Retries(self._config, until_ms)
        while True:
            step = self._new_step()
            try:
                return step, await step(None)
            except CredentialsError:
                if not await retries.back_off():
                    raise

    async def _exchange(self, step: Step, ours: tuple[bytes, bool] | None) -> None:
        handshake = await self._connection.send(SaslHandShakeRequest(self._mechanism))
        _check(handshake.error_code)
        if self._mechanism not in handshake.enabled_mechanisms:
            raise UnsupportedSaslMechanismError
        lifetime_ms, asked_at_ms = 0, now_ms()  # the broker may not say
        while ours is not None:
            payload, is_answered = ours
            if handshake.API_VERSION > 0:
                asked_at_ms = now_ms()
                answer = await self._connection.send(SaslAuthenticateRequest(payload))
                _check(answer.error_code)
                theirs = answer.sasl_auth_bytes
                lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
            else:  # before Kafka 1.0 SASL's messages had no headers
                theirs = await self._connection.send_token(payload, is_answered=is_answered)
            ours = await step(theirs)
        self._count(lifetime_ms, asked_at_ms)

    def _new_step(self) -> Step:
        match self._mechanism:
            case "OAUTHBEARER":
                provider = Tokens(self._config.sasl_oauth_token_provider)
                return _Oauth(sasl_oauth_token_provider=provider).step  # type: ignore[no-untyped-call]
            case "GSSAPI":
                authenticator = _Kerberos(self._connection)
            case "PLAIN":
                authenticator = self._connection.authenticator_plain()
            case _:
                authenticator = self._connection.authenticator_scram()

        def step(theirs: bytes | None) -> Awaitable[tuple[bytes, bool] | None]:
            # Not in the loop's own threads, as aiokafka does: the application may keep all of them busy.
            return asyncio.wrap_future(call_in_thread("aiogroup authenticates", authenticator._step, theirs))

        return step


_WHY_REFUSED: Final = {
    "SaslAuthenticationFailed": "the broker refused the credentials, or they are of another user than before",
    "UnsupportedSaslMechanismError": "the broker does not offer the mechanism any more",
    "IllegalSaslStateError": "the broker does not take a second authentication",
}


def _check(error_code: int) -> None:
    if error_code:
        raise for_code(error_code)
