"""The rules of a proxy: what it does to a request or its answer, for which APIs, at which node, how often."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import enum
import struct
from collections.abc import Awaitable, Callable
from random import Random
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, get_args

from aiogroup._core.protocol import Request, RequestHeader, Response, decode_request, decode_response, encode_response
from aiogroup._core.protocol.messages import REQUESTS
from aiogroup.testing.frames import framed

__all__ = ["CUT", "DROPPED", "Api", "Damage", "Exchange", "Raw", "Rule", "RuleBook", "api_key", "corrupted"]

Api: TypeAlias = "str | int | type[Request[Any]]"
"""`"Fetch"`, `FetchRequest`, or the API's number, which may also be that of an API that aiogroup does not use."""

Damage = Literal["bytes", "truncated", "unfinished", "length", "correlation_id"]


class Fate(enum.Enum):
    """What happens to an exchange that is not answered."""

    CUT = enum.auto()
    DROPPED = enum.auto()


CUT: Final = Fate.CUT
"""Returned by a rule: close the connection instead of answering."""
DROPPED: Final = Fate.DROPPED
"""Returned by a rule: leave the connection open and send no answer."""

NAMES: Final = {kind.__name__.removesuffix("Request"): key for key, kind in REQUESTS.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Raw:
    """Returned by a rule: send these bytes as they are, without a size in front."""

    data: bytes


Outcome: TypeAlias = "Response | bytes | Raw | Fate | None"
"""An answer, a frame without its size, bytes as they are, no answer; `None` leaves the answer alone."""


@dataclasses.dataclass(slots=True)
class Exchange:
    """A request and its answer on the way back; `request` and `response` are decoded when they are read."""

    node_id: int
    header: RequestHeader
    asked: bytes
    answered: bytes

    @property
    def kind(self) -> type[Request[Any]] | None:
        """The request's class; `None` for an API that aiogroup does not use, whose bytes cannot be decoded."""
        return REQUESTS.get(self.header.api_key)

    @property
    def request(self) -> Any:  # noqa: ANN401 (of this kind)
        return decode_request(self.asked)[1]

    @property
    def response(self) -> Any:  # noqa: ANN401 (of this kind)
        return decode_response(REQUESTS[self.header.api_key], self.header.api_version, self.answered)[1]

    def encode(self, response: Response) -> bytes:
        """The answer as a frame, with the request's version and correlation id."""
        kind = REQUESTS[self.header.api_key]
        return encode_response(kind, response, self.header.api_version, self.header.correlation_id)

    def to_bytes(self, outcome: Response | bytes | Raw | None) -> bytes:
        """The bytes to send to the client."""
        match outcome:
            case None:
                return framed(self.answered)
            case Raw(data):
                return data
            case bytes():
                return framed(outcome)
            case response:
                return framed(self.encode(response))


Act: TypeAlias = "Callable[[Exchange], Outcome | Awaitable[Outcome]]"


class Rule:
    """One rule of a proxy. It applies until it is removed, its `with` block ends, or it was used `times` times."""

    def __init__(
        self, book: RuleBook, keys: frozenset[int], node_id: int | None, times: int | None, act: Act | Fate
    ) -> None:
        self.act: Final = act
        self.used_count = 0
        self._book = book
        self._keys = keys
        self._node_id = node_id
        self._times = times
        self._removed = asyncio.Event()

    @property
    def is_about_requests(self) -> bool:
        """Whether the rule applies to requests, so that the broker never sees them."""
        return isinstance(self.act, Fate)

    def matches(self, api_key: int, node_id: int) -> bool:
        return (not self._keys or api_key in self._keys) and self._node_id in (None, node_id)

    def use(self) -> None:
        self.used_count += 1
        if self._times is not None and self.used_count >= self._times:
            self._book.discard(self)

    def remove(self) -> None:
        """End the rule, and release the answers that it holds. A second call does nothing."""
        self._book.discard(self)
        self._removed.set()

    async def removed(self) -> None:
        await self._removed.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class RuleBook:
    """The rules of one proxy. Of those that match, the newest applies."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._spent: list[Rule] = []  # rules that are used up, and may still hold answers

    def add(self, apis: tuple[Api, ...], node_id: int | None, times: int | None, act: Act | Fate) -> Rule:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: a rule is used at least once")
        rule = Rule(self, frozenset(api_key(api) for api in apis), node_id, times, act)
        self._rules.append(rule)
        return rule

    def find(self, key: int, node_id: int, *, about_requests: bool) -> Rule | None:
        """The rule for a request on its way to the broker, or for an answer on its way back. Counts the use."""
        matching = [rule for rule in reversed(self._rules) if rule.matches(key, node_id)]
        if not about_requests:  # rules about requests do not apply to answers
            matching = [rule for rule in matching if not rule.is_about_requests]
        if not matching or matching[0].is_about_requests is not about_requests:
            return None
        matching[0].use()
        return matching[0]

    def discard(self, rule: Rule) -> None:
        if rule in self._rules:
            self._rules.remove(rule)
            self._spent.append(rule)

    def clear(self) -> None:
        for rule in [*self._rules, *self._spent]:
            rule.remove()
        self._spent.clear()


def api_key(api: Api) -> int:
    """The number of an API.

    Raises:
        ValueError: no API of this name is known here.
    """
    if isinstance(api, int):
        return api
    if isinstance(api, type):
        return api.API_KEY
    if api not in NAMES:
        near = difflib.get_close_matches(api, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(NAMES)}, or an API's number"
        raise ValueError(f"no API {api!r} is known: {hint}")
    return NAMES[api]


def corrupted(frame: bytes, how: Damage | None, random: Random) -> Raw:
    """An answer as it might come from a broken broker or line."""
    match how or random.choice(get_args(Damage)):
        case "bytes":
            return Raw(framed(frame[:4] + random.randbytes(max(8, len(frame) - 4))))
        case "truncated":
            return Raw(framed(frame[: max(4, len(frame) // 2)]))
        case "unfinished":
            return Raw(framed(frame)[: 4 + len(frame) // 2])
        case "length":
            return Raw(struct.pack(">i", random.choice((2**31 - 1, -1, 0))) + frame)
        case "correlation_id":
            return Raw(framed(bytes(byte ^ 0x55 for byte in frame[:4]) + frame[4:]))
        case _:
            raise ValueError(f"how={how!r}: one of {', '.join(get_args(Damage))}")
