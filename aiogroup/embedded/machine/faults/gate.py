"""The way out for one connection's answers, where rules delay, hold, change or drop them. Their order is kept."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.api_versions import ApiVersionsResponse
from aiogroup._core.protocol.schema import Response, specs
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.faults.rules import CUT, DROPPED, Fate, Outcome, Raw, Rule, Rules
from aiogroup.embedded.machine.refusals import Troubles
from aiogroup.embedded.machine.timers import Timers
from aiogroup.embedded.messages.framing import encode_answer
from aiogroup.embedded.messages.overlong import instead_of_overlong

__all__ = ["Gate", "Outlet", "encoded"]

Buffer = bytes | bytearray | memoryview

MOST_BEHIND = 100
"""How many answers may queue up behind a held one. At this limit no further request of the connection is handled."""


class Outlet(Protocol):
    """The connection, as the gate sees it."""

    @property
    def is_closed(self) -> bool: ...

    def send(self, buffers: list[Buffer], /) -> None:
        """Send, in order."""

    def close(self) -> None:
        """Break the connection."""

    def set_muted(self, is_muted: bool, /) -> None:
        """Stop handling requests, or go on."""


class Gate:
    """One connection's gate. Rules are applied to an answer when all earlier answers have gone, as in the proxy."""

    __slots__ = ("_is_busy", "_outlet", "_queue", "_rules", "_timers", "_troubles")

    def __init__(self, outlet: Outlet, rules: Rules, timers: Timers, troubles: Troubles) -> None:
        self._outlet = outlet
        self._rules = rules
        self._timers = timers
        self._troubles = troubles
        self._queue: deque[Exchange] = deque()
        self._is_busy = False

    @property
    def is_open(self) -> bool:
        """Whether answers may bypass the gate: nothing waits here, and no rule is set."""
        return not self._queue and not self._is_busy and not self._rules.is_set

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= MOST_BEHIND

    def put(self, exchange: Exchange) -> None:
        """Take one answer; it goes out now or later."""
        self._queue.append(exchange)
        if not self._is_busy:
            self._go_on()

    def _go_on(self) -> None:
        while self._queue and not self._is_busy:
            exchange = self._queue.popleft()
            rule = self._rules.find(exchange, about_requests=False)
            if rule is None:
                self._send(exchange, exchange.response)
            elif rule.holds or rule.delay_ms > 0:
                self._is_busy = True
                self._delay(rule, lambda exchange=exchange: self._release(exchange))  # type: ignore[misc]
            else:
                self._act(rule, exchange)

    def _delay(self, rule: Rule, release: Callable[[], None]) -> None:
        if rule.holds:
            rule.waiting.append(release)
        else:
            self._timers.at(self._timers.now_ms + rule.delay_ms, lambda _at_ms: release())

    def _release(self, exchange: Exchange) -> None:
        self._is_busy = False
        self._send(exchange, exchange.response)
        self._go_on()

    def _act(self, rule: Rule, exchange: Exchange) -> None:
        if rule.throttle_ms is not None:
            self._throttle(exchange, rule.throttle_ms)
            return
        outcome: Outcome = None
        if rule.change is not None:
            frame = b"".join(encoded(exchange, exchange.response))[4:]
            try:
                outcome = _sendable(exchange, rule.change(exchange, frame))
            except Exception as error:  # noqa: BLE001 (the test's own code)
                what = f"a rule for {exchange.api} raised {type(error).__name__}: {error}"
                self._troubles.note("rule", what, self._timers.now_ms)
                outcome = CUT
        self._send(exchange, exchange.response if outcome is None else outcome)

    def _throttle(self, exchange: Exchange, throttle_ms: int) -> None:
        response: Any = exchange.response
        if any(spec.name == "throttle_time_ms" for spec in specs(type(response))):
            response = dataclasses.replace(response, throttle_time_ms=throttle_ms)
        self._outlet.set_muted(True)
        self._timers.at(self._timers.now_ms + throttle_ms, lambda _at_ms: self._outlet.set_muted(False))
        self._send(exchange, response)

    def _send(self, exchange: Exchange, outcome: Outcome) -> None:
        if self._outlet.is_closed or outcome is DROPPED or outcome is None:
            return
        if isinstance(outcome, Fate):
            self._queue.clear()
            self._outlet.close()
        elif isinstance(outcome, Response):
            self._outlet.send(encoded(exchange, outcome))
        elif isinstance(outcome, Raw):
            self._outlet.send([outcome.data])
        else:
            self._outlet.send([len(outcome).to_bytes(4, "big"), outcome])


def _sendable(exchange: Exchange, outcome: Outcome) -> Outcome:
    """Check that the result of a change can be sent. Answers are encoded here, so that a failure is blamed on the test.

    Raises:
        TypeError: a change may not return this.
        ValueError: a value does not fit its field.
    """
    if outcome is None or isinstance(outcome, Fate):
        return outcome
    if isinstance(outcome, Response):
        wanted = type(exchange.request).RESPONSE
        if not isinstance(outcome, wanted):
            raise TypeError(f"{exchange.api} is answered by a {wanted.__name__}, not by a {type(outcome).__name__}")
        return Raw(b"".join(encoded(exchange, outcome)))
    data = outcome.data if isinstance(outcome, Raw) else outcome
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"an answer is a response, bytes, Raw, CUT, DROPPED or None, not {data!r}")
    return outcome


def encoded(exchange: Exchange, response: Response | None) -> list[Buffer]:
    """An answer as it is sent. A too new version of ApiVersions is answered in version 0 (KIP-511).

    Raises:
        ValueError: a value does not fit its field, and it is no error message of the handler's own answer.
    """
    assert response is not None
    header, version = exchange.header, exchange.version
    if isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    try:
        return list(encode_answer(type(exchange.request), response, version, header.correlation_id))
    except ValueError:
        instead = instead_of_overlong(response) if response is exchange.response else None
        if instead is None:
            raise
    exchange.response = instead
    return list(encode_answer(type(exchange.request), instead, version, header.correlation_id))
