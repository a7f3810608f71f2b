"""What a service runs: a function that makes a consumer, and the body that reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiogroup.consumer import Consumer
from aiogroup.errors import ConfigError
from aiogroup.telemetry.health import HealthStatus

__all__ = ["Loop"]


class Loop:
    """A consumer and its body, for `Service(audit=Loop(lambda: Consumer("orders", group_id="audit"), audit))`.

    Args:
        make: makes a consumer that is not started. It is called when the service starts, in the server's event loop,
            and again for each restart; a consumer lives once, so each call makes a new one.
        body: gets the consumer, started, and reads it until it is stopped. An exception that it raises ends this
            consumer, and the record in hand comes again.
        may_end: whether the body may return before the service stops. If not, that counts as a failure, since a loop
            that has ended unnoticed reads nothing.

    Raises:
        ConfigError: an argument is of another kind. A consumer cannot be given, as it belongs to one event loop.
    """

    def __init__(
        self, make: Callable[[], Consumer], body: Callable[[Consumer], Awaitable[None]], *, may_end: bool = False
    ) -> None:
        if not callable(make):
            raise ConfigError(f"Loop: {make!r} is no function that makes a consumer: write lambda: Consumer(...)")
        if not callable(body):
            raise ConfigError(f"Loop: the body {body!r} is no async function that takes the consumer")
        if not isinstance(may_end, bool):
            raise ConfigError(f"Loop: may_end={may_end!r}: True or False is needed")
        self._make = make
        self.body = body
        self.may_end = may_end

    def make(self) -> Consumer:
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
