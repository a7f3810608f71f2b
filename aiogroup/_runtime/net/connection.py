"""One connection to one broker: aiokafka's sockets, TLS and SASL, with framing of our own.

It adds to aiokafka's connection: a time-out per request, a bound on the size of an answer, answers that the socket
writes directly into their final place (aiokafka copies each four times), and no request in a log (aiokafka logs SASL
requests with the password at DEBUG).
"""

from __future__ import annotations

import asyncio
import io
import struct
import weakref
from collections.abc import Awaitable, Callable, Mapping
from operator import itemgetter
from typing import Any, Final, TypeAlias

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError

from aiogroup._core.protocol.codec import NOTHING_APART
from aiogroup._core.protocol.constants import FETCH_BY_ID
from aiogroup._core.protocol.framing import decode_response, encode_request
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.receiver import Receiver
from aiogroup._core.protocol.schema import R_co, Request, Response, negotiate
from aiogroup._runtime.loop.clock import FOREVER_MS, Alarm, now_ms
from aiogroup._runtime.net.authentication import Session, SessionNotRenewedError, Tokens
from aiogroup._runtime.net.names import Turn, open_socket
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConnectionLostError, KafkaTimeoutError, ProtocolError

__all__ = ["Connection", "OnAnswer", "SocketReceiver"]


_SIZE: Final = struct.Struct(">i")

OnAnswer: TypeAlias = Callable[[R_co, "asyncio.Future[R_co]"], bool]
"""Gets an answer, and the future that will hold it; returns True if the future shall not hold it."""


class _Pending:
    """Our request, kept where aiokafka keeps its request struct."""

    __slots__ = ("on_answer", "request_type", "version")

    def __init__(self, request_type: type[Request[Any]], version: int, on_answer: OnAnswer[Any] | None = None) -> None:
        self.request_type = request_type
        self.version = version
        self.on_answer = on_answer

    def decoded(self, frame: bytes | bytearray, apart: Mapping[int, memoryview]) -> Response:
        response: Response
        _, response = decode_response(self.request_type, self.version, frame, apart)
        return response


_Entry: TypeAlias = "tuple[int, _Pending, asyncio.Future[Any]]"


class _Held:
    """The requests that wait while the session is renewed, as bytes and as what is kept of each until its answer."""

    __slots__ = ("drained", "requests")

    def __init__(self, drained: asyncio.Future[None]) -> None:
        self.requests: list[tuple[bytes, _Entry]] = []
        self.drained = drained

    def on_drained(self) -> None:
        if not self.drained.done():
            self.drained.set_result(None)


class _Untold:
    """A request of aiokafka's own, wrapped so that its log gets only the name: SASL requests hold the password."""

    on_answer: Final = None

    def __init__(self, request: Any) -> None:  # noqa: ANN401 (aiokafka's, which has no types)
        self._request = request

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> _Untold:
        return _Untold(self._request.prepare(versions))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._request, name)

    def __repr__(self) -> str:
        return type(self._request).__name__

    def decoded(self, frame: bytes | bytearray, apart: Mapping[int, memoryview]) -> Any:  # noqa: ANN401
        body = io.BytesIO(frame)
        self._request.parse_response_header(body)
        return self._request.RESPONSE_TYPE.decode(body)


class SocketReceiver(Receiver, asyncio.BufferedProtocol):
    """The receiver of a socket; `closed` is done when the socket is closed."""

    def __init__(self, closed: asyncio.Future[None], *more: Any) -> None:  # noqa: ANN401 (those of Receiver)
        super().__init__(*more)
        self._closed = closed

    def eof_received(self) -> None:
        self.end(EOFError("the broker closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        self.end(exc or EOFError("the connection was closed"))


class Connection(AIOKafkaConnection):
    """An open connection. Requests are answered in the order in which they were written (Kafka's rule)."""

    def __init__(self, host: str, port: int, config: ConsumerConfig, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(
            host,
            port,
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            ssl_context=config.ssl_context,
            security_protocol=config.security_protocol,
            max_idle_ms=config.connections_max_idle_ms,
            sasl_mechanism=config.sasl_mechanism,
            sasl_plain_username=config.sasl_plain_username,
            sasl_plain_password=config.sasl_plain_password,
            sasl_kerberos_service_name=config.sasl_kerberos_service_name,
            sasl_kerberos_domain_name=config.sasl_kerberos_domain_name,
            sasl_oauth_token_provider=Tokens(config.sasl_oauth_token_provider),
            **kwargs,
        )
        self._session = Session(self, config)
        self._held: _Held | None = None
        self._negotiated: dict[tuple[type[Request[Any]], int | None], int] = {}
        self._limits: dict[asyncio.Future[Any], tuple[int, int]] = {}  # until when each answer is waited for, how long
        self._alarm = Alarm(
            self._give_up
        )  # mostly no answer is late: a timer for each would cost more than its request

    why_silent = ""
    """The text added to "the connection broke" until the first answer has arrived."""

    @property
    def closing(self) -> asyncio.Future[None] | None:
        """A future that is done when the socket has closed; `None` if it is closed already, or there was none."""
        if self._protocol is None or self._closed_fut is None or self._closed_fut.done():
            return None
        return self._closed_fut  # type: ignore[no-any-return]

    def close(self, reason: CloseReason | None = None, exc: BaseException | None = None) -> asyncio.Future[None] | None:
        if self._writer is not None:
            self._transport = self._writer.transport
        self._alarm.cancel()
        self._session.end()
        if self._held is not None:
            self._requests.extend(entry for _, entry in self._held.requests)
            self._held = None
        for _, _, answer in self._requests:
            if not answer.done():
                answer.add_done_callback(_seen)
        return super().close(reason=reason, exc=exc)  # type: ignore[no-any-return]

    def abort(self) -> None:
        """Abort a socket that `close` did not end."""
        if self._transport is not None and self.closing is not None:
            self._transport.abort()

    _transport: asyncio.WriteTransport | None = None

    async def connect(self, turn: Turn) -> None:  # type: ignore[override]
        """Open a socket to one of these addresses, ask for the broker's versions, and authenticate.

        Raises:
            Exception: anything, for hostile bytes.
        """
        loop = self._loop
        self._closed_fut = loop.create_future()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        is_secure = self._security_protocol in ("SSL", "SASL_SSL")
        transport = await open_socket(lambda: protocol, turn, self._host, self._ssl_context if is_secure else None)
        self._writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        self._reader, self._protocol = reader, protocol
        self._read_task = self._create_reader_task()
        if self._max_idle_ms is not None:
            self._idle_handle = loop.call_soon(self._idle_check, weakref.ref(self))
        await self._do_version_lookup()
        if self._security_protocol.startswith("SASL"):
            await self._session.begin()

    @property
    def peer(self) -> tuple[str, int] | None:
        """The address to which the socket leads, where it has one."""
        return None if self._writer is None else self._writer.get_extra_info("peername")

    def _create_reader_task(self) -> asyncio.Future[None]:
        """Install our receiver instead of a reader task, which would copy each answer three times through a
        StreamReader.
        """
        assert self._reader is not None
        assert self._writer is not None
        assert self._closed_fut is not None
        self._writer.transport.set_protocol(
            SocketReceiver(self._closed_fut, self._handle_frame, self._end, self._next_has_ids)
        )
        self._reader.feed_eof()  # it gets no more bytes
        none: asyncio.Future[None] = self._loop.create_future()
        none.set_result(None)
        return none

    def connected(self) -> bool:
        return self._reader is not None

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:  # noqa: ANN401
        """Send a request of aiokafka's own: the version look-up and authentication."""
        return super().send(_Untold(request), expect_response)  # type: ignore[no-any-return]

    async def _do_version_lookup(self) -> None:
        """Check the answer. aiokafka accepts random bytes as those of a broker without APIs, and the connection stays
        open for ever.
        """
        if self._reader is not None and await self._reader.read():
            raise ProtocolError("an answer came to no request")
        await super()._do_version_lookup()
        if ApiVersionsRequest.API_KEY not in self._versions:
            raise ProtocolError("an answer to ApiVersions that does not name ApiVersions")

    @property
    def is_open(self) -> bool:
        return self._reader is not None

    @property
    def is_idle(self) -> bool:
        """No answer is waited for."""
        return not self._requests and self._held is None

    def version_of(self, request_type: type[Request[Any]], at_most: int | None = None) -> int:
        """The version in which this broker and we speak `request_type`.

        Raises:
            UnsupportedVersionError: there is none.
        """
        version = self._negotiated.get((request_type, at_most))
        if version is None:
            version = self._negotiated[request_type, at_most] = negotiate(request_type, self._versions, at_most=at_most)
        return version

    def write(
        self,
        request: Request[R_co],
        *,
        at_most: int | None = None,
        on_answer: OnAnswer[R_co] | None = None,
        answer: asyncio.Future[R_co] | None = None,
    ) -> asyncio.Future[R_co]:
        """Write a request now, without waiting. The future returned will hold the answer: `answer`, if one is given.

        `on_answer` gets the answer and the future before that, in the step of the loop that reads it from the socket;
        not if the future was cancelled. What it raises becomes the error of the future. If it returns True the future
        stays open, and it must give it to another request or end it.

        Raises:
            ConnectionLostError: the connection is closed.
            UnsupportedVersionError: the broker does not speak this request.
        """
        if self._writer is None:
            raise ConnectionLostError(f"the connection to {self.host}:{self.port} is closed")
        version = self._negotiated.get((type(request), at_most))
        if version is None:
            version = self.version_of(type(request), at_most)
        correlation_id = self._next_correlation_id()
        frame = encode_request(request, version, correlation_id, self._client_id)
        framed = _SIZE.pack(len(frame)) + frame
        if self._session.late_at_ms != FOREVER_MS and self._held is None and now_ms() >= self._session.late_at_ms:
            self._held = _Held(self._loop.create_future())
        if self._held is None:
            try:
                self._writer.transport.write(framed)
            except OSError as error:
                self.close(reason=CloseReason.CONNECTION_BROKEN)
                raise ConnectionLostError(f"the connection to {self.host}:{self.port} broke: {error}") from error
        if answer is None:
            answer = self._loop.create_future()
        entry = (correlation_id, _Pending(type(request), version, on_answer), answer)
        if self._held is None:
            self._requests.append(entry)
        else:
            self._held.requests.append((framed, entry))
        return answer

    # The renewal of the session: see `Session`.

    def send_token(self, payload: bytes, *, is_answered: bool) -> Awaitable[Any]:
        return self._send_sasl_token(payload, is_answered)  # type: ignore[no-any-return]

    async def hold(self) -> None:
        if self._held is None:
            self._held = _Held(self._loop.create_future())
        if self._requests:
            await self._held.drained

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None and self._writer is not None:
            for framed, entry in held.requests:
                self._writer.transport.write(framed)
                self._requests.append(entry)

    def give_up(self, error: SessionNotRenewedError) -> None:
        self.close(reason=CloseReason.AUTH_FAILURE, exc=error)

    async def answer(self, answer: asyncio.Future[R_co], timeout: int) -> R_co:
        """Wait for the future that `write` returned, at most `timeout` milliseconds.

        Raises:
            KafkaTimeoutError: no answer in time; the connection is closed, since later answers queue behind it.
            ConnectionLostError: the connection broke.
            ProtocolError: the answer could not be read.
        """
        self._limit(answer, timeout)
        try:
            return await answer
        except KafkaConnectionError as error:
            if isinstance(error.__cause__, ProtocolError):
                raise ProtocolError(f"{self.host}:{self.port}: {error.__cause__}") from error
            if isinstance(error.__cause__, SessionNotRenewedError):
                raise ConnectionLostError(
                    f"the connection to {self.host}:{self.port} is closed: {error.__cause__}"
                ) from error
            raise ConnectionLostError(f"the connection to {self.host}:{self.port} broke{self.why_silent}") from error
        finally:
            del self._limits[answer]

    def take(self, answer: asyncio.Future[Any], timeout: int) -> None:
        """As `answer`, for an answer that nobody awaits since `on_answer` takes it; the future has the error."""
        self._limit(answer, timeout)
        answer.add_done_callback(self._forget_limit)

    def _forget_limit(self, answer: asyncio.Future[Any]) -> None:
        """Whoever awaits the answer nevertheless may have forgotten it, before this is called."""
        self._limits.pop(answer, None)

    def _limit(self, answer: asyncio.Future[Any], timeout: int) -> None:
        until_ms = now_ms() + timeout
        self._limits[answer] = until_ms, timeout
        self._alarm.ring_by(until_ms)

    def wait_on(self, answer: asyncio.Future[Any], now: int, timeout: int) -> None:
        """Whoever waits for this answer goes on waiting, from now on at most `timeout` milliseconds."""
        self._limits[answer] = now + timeout, timeout  # the alarm, which is earlier, then rings by this limit

    def _give_up(self) -> None:
        """Close the connection if an answer is overdue; otherwise look again when the next one would be."""
        limits = [(*limit, answer) for answer, limit in self._limits.items() if not answer.done()]
        if not limits:
            return
        until_ms, timeout, answer = min(limits, key=itemgetter(0))
        if until_ms > now_ms():
            self._alarm.ring_by(until_ms)
            return
        answer.set_exception(KafkaTimeoutError(f"{self.host}:{self.port} did not answer within {timeout} ms"))
        _seen(answer)  # whoever waits for it may be cancelled before it looks
        self.close(reason=CloseReason.CONNECTION_TIMEOUT)

    def _next_has_ids(self) -> bool | None:
        """The `has_ids` of `Receiver` for the answer that comes next."""
        pending = self._requests[0][1] if self._requests else None
        if not isinstance(pending, _Pending) or pending.request_type is not FetchRequest:
            return None
        return pending.version >= FETCH_BY_ID if FetchRequest.is_flexible(pending.version) else None

    def _handle_frame(self, frame: bytes | bytearray, apart: Mapping[int, memoryview] = NOTHING_APART) -> None:
        if not self._requests:
            raise ProtocolError("an answer came to no request")
        correlation_id, pending, answer = self._requests[0]
        if pending is None:  # a SASL token without a header
            super()._handle_frame(bytes(frame))
            return
        if self.why_silent and isinstance(pending, _Pending):
            self.why_silent = ""
        answered_id = int.from_bytes(frame[:4], "big", signed=True)
        if answered_id != correlation_id:
            raise ProtocolError(f"answer {answered_id} came where {correlation_id} was expected")
        if not answer.done():
            response, stays_open = pending.decoded(frame, apart), False
            if pending.on_answer is not None:
                try:
                    stays_open = pending.on_answer(response, answer)
                except Exception as error:  # noqa: BLE001 (handed to whoever waits; the connection is as it was)
                    answer.set_exception(error)
            if not stays_open and not answer.done():
                answer.set_result(response)
        self._requests.popleft()
        if self._held is None:
            self._last_action = self._loop.time()
        elif not self._requests:  # an idle connection stays one whose session is renewed
            self._held.on_drained()

    def _end(self, error: Exception) -> None:
        self.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)


def _seen(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
