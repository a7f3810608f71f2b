"""What a service runs: a function that makes a consumer, and the body that reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiogroup.consumer import Consumer
from aiogroup.errors import ConfigError

__all__ = ["Loop"]


class Loop:
    """A consumer and its body, for `Service(audit=Loop(lambda: Consumer("orders", group_id="audit"), audit))`.

    Args:
        make: makes a consumer that is not started. It is called when the service starts, in the server's event loop,
            and again for each restart.
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
            ConfigError: a setting is wrong, or the function made something else.
        """
        made = self._make()
        if not isinstance(made, Consumer):
            raise ConfigError(f"Loop: the function made {made!r}, which is no aiogroup.Consumer")
        return made
