"""What a service runs: a function that makes a consumer, and the body that reads it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any, TypeVar

from aiogroup._core.telemetry.health import HealthStatus
from aiogroup.consumer import Consumer
from aiogroup.errors import ConfigError

__all__ = ["Loop", "NotAsyncError"]

C = TypeVar("C", bound=Consumer[Any, Any])


class NotAsyncError(ConfigError):
    """The body of a loop was called and returned something that cannot be awaited."""


class Loop:
    """A consumer and its body, for `Service(audit=Loop(lambda: Consumer("orders", group_id="audit"), audit))`.

    Args:
        make: makes a consumer that is not started. It is called when the service starts, in the server's event loop,
            and again for each restart; a consumer lives once, so each call makes a new one.
        body: an async function, or a lambda or an object that returns an awaitable. It gets the consumer, started, and
            reads it until it is stopped. An exception that it raises ends this consumer, and the record in hand comes
            again.
        may_end: whether the body may return before the service stops. If not, that counts as a failure, since a loop
            that has ended unnoticed reads nothing.

    Raises:
        ConfigError: an argument is of another kind. A consumer cannot be given, as it belongs to one event loop. A
            body that is not async would hold the event loop up.
    """

    def __init__(self, make: Callable[[], C], body: Callable[[C], Awaitable[None]], *, may_end: bool = False) -> None:
        if not callable(make):
            raise ConfigError(f"Loop: {make!r} is no function that makes a consumer: write lambda: Consumer(...)")
        if inspect.iscoroutinefunction(make):
            name = name_of(make)
            raise ConfigError(
                "Loop: the function that makes the consumer must not be async: first comes that function and then the "
                f"body, as Loop(lambda: Consumer(...), {name})"
            )
        _check_body(body)
        if not isinstance(may_end, bool):
            raise ConfigError(f"Loop: may_end={may_end!r}: True or False is needed")
        self._make: Callable[[], Consumer[Any, Any]] = make
        self._body: Callable[[Any], Awaitable[None]] = body
        self.may_end = may_end

    async def run_body(self, consumer: Consumer[Any, Any]) -> None:
        """Run the body to its end; it may raise anything.

        Raises:
            NotAsyncError: it returned what cannot be awaited.
        """
        running = self._body(consumer)
        if not inspect.isawaitable(running):
            raise NotAsyncError(
                f"Loop: the body {name_of(self._body)} returned {running!r}, which cannot be awaited: "
                "write async def body(consumer)"
            )
        await running

    def make(self) -> Consumer[Any, Any]:
        """A new consumer, which is not started.

        Raises:
            ConfigError: a setting is wrong, or the function made something else, or gave a consumer again.
        """
        made = self._make()
        if not isinstance(made, Consumer):
            raise ConfigError(f"Loop: the function made {made!r}, which is no aiogroup.Consumer")
        status = made.health().status
        if status is not HealthStatus.STARTING:
            raise ConfigError(
                f"Loop: the function made a consumer that is {status} already; a consumer lives once, so the function "
                "must make a new one each time it is called, as lambda: Consumer(...) does"
            )
        return made


def name_of(function: object) -> str:
    """What an error calls it."""
    function = _plain(function)
    return getattr(function, "__name__", None) or type(function).__name__


def _plain(function: Any) -> Any:  # noqa: ANN401 (of any kind)
    """The function behind `partial` and a method."""
    while isinstance(function, (partial, MethodType)):
        function = function.func if isinstance(function, partial) else function.__func__
    return function


def _check_not_async(name: str, plain: Any) -> None:  # noqa: ANN401 (of any kind)
    inner = inspect.unwrap(plain)
    if any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in (inner, type(plain).__call__)
    ):
        raise ConfigError(
            f"Loop: the body {name} is a generator, which nothing would iterate: write async def without yield"
        )
    is_known = isinstance(inner, FunctionType) and inner.__name__ != "<lambda>"
    if is_known and not inspect.iscoroutinefunction(inner):
        raise ConfigError(
            f"Loop: the body {name} is not async, and would hold the event loop up: write async def {name}(consumer). "
            f"If it returns an awaitable, write lambda consumer: {name}(consumer)"
        )


def _check_body(body: object) -> None:
    """Refuse a body of which it is known before it is called that it cannot be awaited.

    A lambda, or an object of a class of its own, may return an awaitable without being an async function.
    """
    if inspect.iscoroutine(body):
        name = body.__qualname__
        raise ConfigError(f"Loop: the body was called already: write {name}, without parentheses")
    if not callable(body):
        raise ConfigError(f"Loop: the body {body!r} is no async function that takes the consumer")
    name, plain = name_of(body), _plain(body)
    if not inspect.iscoroutinefunction(plain):
        _check_not_async(name, plain)
    try:
        signature = inspect.signature(body, follow_wrapped=False)  # a decorator may give the other arguments
    except (TypeError, ValueError):
        return  # some functions in C have no signature, and mocks before Python 3.11.3
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(f"Loop: the body {name} cannot be called with the consumer alone: {error}") from None
