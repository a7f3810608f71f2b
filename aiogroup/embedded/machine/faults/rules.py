"""Rules about whole requests and answers, in the words of the proxy in `aiogroup.testing`: what is delayed, held,
dropped, cut, corrupted, rewritten or throttled, of which APIs, at which node, how often.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, get_args

from aiogroup._core.protocol.schema import Request, Response
from aiogroup.embedded.machine.exchange import Exchange
from aiogroup.embedded.machine.ids import RandomBits
from aiogroup.embedded.machine.refusals import BrokerRefusal, whole_number
from aiogroup.embedded.machine.timers import Timers
from aiogroup.embedded.messages.ranges import RANGES

__all__ = ["CUT", "DROPPED", "Api", "Damage", "Outcome", "Raw", "Rule", "Rules", "Settable", "api_name", "corrupted"]

Api: TypeAlias = "str | int | type[Request[Any]]"
"""`"Fetch"`, `FetchRequest`, or the API's number."""

LOOK_MS = 5

Damage = Literal["bytes", "truncated", "unfinished", "length", "correlation_id"]


class Settable(Protocol):
    """An `asyncio.Event`, a `threading.Event`."""

    def is_set(self) -> bool: ...


class Fate(enum.Enum):
    """What happens to an exchange that is not answered."""

    CUT = enum.auto()
    DROPPED = enum.auto()


CUT: Final = Fate.CUT
"""Returned by a change: close the connection instead of answering."""
DROPPED: Final = Fate.DROPPED
"""Returned by a change: leave the connection open and send no answer."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Returned by a change: send these bytes as they are, without a size in front."""

    data: bytes


Outcome: TypeAlias = "Response | bytes | Raw | Fate | None"
"""An answer, a frame without its size, bytes as they are, no answer; `None` leaves the answer alone."""
Change: TypeAlias = "Callable[[Exchange, bytes], Outcome]"
"""`change(exchange, frame)`: the frame of the answer, without its size."""


class Rule:
    """One rule. It applies until it is removed, its `with` block ends, or it was used `times` times."""

    def __init__(
        self, book: Rules, apis: tuple[Api, ...], node_id: int | None, times: int | None, *, delay_ms: int = 0
    ) -> None:
        if times is not None and whole_number("times", times) < 1:
            raise BrokerRefusal(f"times={times}: a rule is used at least once")
        _look_at_ms(delay_ms)
        self.used_count = 0
        self.delay_ms = delay_ms
        self.throttle_ms: int | None = None
        self.fate: Fate | None = None
        """Set for a rule about requests: the handler never sees the request."""
        self.change: Change | None = None
        self.holds = False
        self.waiting: list[Callable[[], None]] = []
        """The answers that it holds: each function releases one."""
        self._book = book
        self._apis = frozenset(api_name(api) for api in apis)
        self._node_id = node_id
        self._times = times

    @property
    def is_about_requests(self) -> bool:
        return self.fate is not None

    def matches(self, exchange: Exchange) -> bool:
        return (not self._apis or exchange.api in self._apis) and self._node_id in (None, exchange.node_id)

    def use(self) -> None:
        self.used_count += 1
        if self._times is not None and self.used_count >= self._times:
            self._book.discard(self)

    def remove(self) -> None:
        """End the rule, and release the answers that it holds. A second call does nothing."""
        self.holds = False
        self._book.discard(self)
        waiting, self.waiting = self.waiting, []
        for release in waiting:
            release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Rules:
    """The rules of a cluster. Of those that match, the newest applies."""

    def __init__(self, rng: RandomBits, timers: Timers) -> None:
        self._rng = rng
        self._timers = timers
        self._rules: list[Rule] = []
        self._spent: list[Rule] = []  # used up, and may still hold answers

    @property
    def is_set(self) -> bool:
        return bool(self._rules)

    def delay(self, *apis: Api, ms: int, node_id: int | None = None, times: int | None = None) -> Rule:
        """Delay answers by `ms` milliseconds."""
        return self._add(Rule(self, apis, node_id, times, delay_ms=ms))

    def hold(
        self, *apis: Api, until: Settable | None = None, node_id: int | None = None, times: int | None = None
    ) -> Rule:
        """Hold answers until the rule is removed, or the event is set."""
        rule = Rule(self, apis, node_id, times)
        rule.holds = True
        if until is not None:
            if not hasattr(until, "is_set"):
                raise BrokerRefusal("until= is an event of asyncio or threading: is_set() is asked every 5 ms")
            self._look_again(rule, until)
        return self._add(rule)

    def _look_again(self, rule: Rule, until: Settable) -> None:
        """Nobody tells the machine when the test's event is set, so it looks at intervals while the rule exists."""

        def look(at_ms: int) -> None:
            if until.is_set():
                rule.remove()
            elif rule.holds:
                self._timers.at(at_ms + LOOK_MS, look)

        look(self._timers.now_ms)

    def cut(self, *apis: Api, before: bool = False, node_id: int | None = None, times: int | None = None) -> Rule:
        """Close the connection instead of answering; with `before` the request is not handled."""
        return self._end(CUT, Rule(self, apis, node_id, times), before=before)

    def drop(self, *apis: Api, before: bool = False, node_id: int | None = None, times: int | None = None) -> Rule:
        """Send no answer, and keep the connection; with `before` the request is not handled."""
        return self._end(DROPPED, Rule(self, apis, node_id, times), before=before)

    def corrupt(
        self, *apis: Api, how: Damage | None = None, node_id: int | None = None, times: int | None = None
    ) -> Rule:
        """Corrupt answers.

        "bytes": random bytes after the correlation id. "truncated": a frame with half of the answer. "unfinished": half
        of a frame, then silence. "length": an absurd length. "correlation_id": a wrong one. `None`: any of these.
        """
        if how is not None and how not in get_args(Damage):
            raise BrokerRefusal(f"how={how!r}: one of {', '.join(get_args(Damage))}")
        rule = Rule(self, apis, node_id, times)
        rule.change = lambda _exchange, frame: corrupted(frame, how, self._rng)
        return self._add(rule)

    def rewrite(
        self, api: Api, change: Callable[[Exchange], Outcome], *, node_id: int | None = None, times: int | None = None
    ) -> Rule:
        """Answer with the result of `change(exchange)`.

        It returns a response (say `dataclasses.replace(exchange.response, error_code=25)`), a frame's bytes without its
        size, `Raw(bytes)`, `CUT`, `DROPPED`, or `None` to leave the answer alone. An error that it raises closes the
        connection, and is kept among the troubles.
        """
        if not callable(change):
            raise BrokerRefusal(f"rewrite() takes a function of the exchange, not {change!r}")
        rule = Rule(self, (api,), node_id, times)
        rule.change = lambda exchange, _frame: change(exchange)
        return self._add(rule)

    def throttle(self, *apis: Api, ms: int, node_id: int | None = None, times: int | None = None) -> Rule:
        """Answer at once that the client is over its quota, and handle none of its requests for `ms` ms (KIP-219)."""
        _look_at_ms(ms)
        rule = Rule(self, apis, node_id, times)
        rule.throttle_ms = ms
        return self._add(rule)

    def _end(self, fate: Fate, rule: Rule, *, before: bool) -> Rule:
        if before:
            rule.fate = fate
        else:
            rule.change = lambda _exchange, _frame: fate
        return self._add(rule)

    def _add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def find(self, exchange: Exchange, *, about_requests: bool) -> Rule | None:
        """The rule for a request before it is handled, or for its answer. Counts the use."""
        matching: Iterable[Rule] = (rule for rule in reversed(self._rules) if rule.matches(exchange))
        if not about_requests:  # rules about requests do not apply to answers
            matching = (rule for rule in matching if not rule.is_about_requests)
        newest = next(iter(matching), None)
        if newest is None or newest.is_about_requests is not about_requests:
            return None
        newest.use()
        return newest

    def discard(self, rule: Rule) -> None:
        if rule in self._rules:
            self._rules.remove(rule)
        if rule.holds and rule not in self._spent:
            self._spent.append(rule)
        elif not rule.holds and rule in self._spent:
            self._spent.remove(rule)

    def clear(self) -> None:
        """Remove every rule; answers that are held are sent."""
        for rule in [*self._rules, *self._spent]:
            rule.remove()


def _look_at_ms(ms: int) -> None:
    if whole_number("ms", ms) < 0:
        raise BrokerRefusal(f"ms={ms}: an answer cannot be sent before it is there")


_NAMES = {request.API_KEY: request.api_name() for request in RANGES}


def api_name(api: Api) -> str:
    """Kafka's name of an API.

    Raises:
        BrokerRefusal: no API of this name or number is offered.
    """
    name: object = _NAMES.get(api, api) if isinstance(api, int) else api
    if isinstance(name, type) and issubclass(name, Request):
        name = name.api_name()
    if not isinstance(name, str) or name not in _NAMES.values():
        near = difflib.get_close_matches(str(name), _NAMES.values(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(_NAMES.values()))}"
        raise BrokerRefusal(f"the embedded broker has no API {name!r}: {hint}")
    return name


def corrupted(frame: bytes, how: Damage | None, rng: RandomBits) -> Raw:
    """An answer as it might come from a broken broker or line."""
    ways = get_args(Damage)
    size = len(frame).to_bytes(4, "big")
    match how or ways[rng.getrandbits(16) % len(ways)]:
        case "bytes":
            count = max(8, len(frame) - 4)
            noise = rng.getrandbits(8 * count).to_bytes(count, "big")
            return Raw((4 + count).to_bytes(4, "big") + frame[:4] + noise)
        case "truncated":
            half = frame[: max(4, len(frame) // 2)]
            return Raw(len(half).to_bytes(4, "big") + half)
        case "unfinished":
            return Raw((size + frame)[: 4 + len(frame) // 2])
        case "length":
            lengths = (2**31 - 1, -1, 0)
            return Raw(lengths[rng.getrandbits(16) % 3].to_bytes(4, "big", signed=True) + frame)
        case _:
            return Raw(size + bytes(byte ^ 0x55 for byte in frame[:4]) + frame[4:])
