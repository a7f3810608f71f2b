"""`/metrics` of a service: the figures of its consumers for Prometheus, where prometheus-client is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from aiogroup.asgi.supervised import SupervisedLoop

if TYPE_CHECKING:
    from aiogroup.prometheus import Collector

__all__ = ["Metrics"]


class Metrics:
    """Shows the loops of a service in prometheus-client's default registry for as long as the service runs."""

    def __init__(self, loops: Callable[[], Mapping[str, SupervisedLoop]]) -> None:
        self._loops = loops
        self._collector: Collector | None = None

    @staticmethod
    def can_be_served() -> bool:
        """Whether prometheus-client is installed. It is imported when a service begins, and not before."""
        return find_spec("prometheus_client") is not None

    def begin(self) -> None:
        """Show the loops, in the event loop that runs them."""
        from aiogroup.prometheus import Collector  # noqa: PLC0415 (not everybody has prometheus-client)

        collector = self._collector = Collector()
        for name in self._loops():
            collector.add(name, self._loop_of(name), restarts_count=self._restarts_of(name))

    async def end(self) -> None:
        """Show them no more."""
        collector, self._collector = self._collector, None
        if collector is not None:
            await collector.close()

    async def text(self, accept: str) -> tuple[bytes, str] | None:
        """The body and its content type: all that is in the registry. `None` while the service does not run."""
        return None if self._collector is None else await self._collector.text(accept)

    def _loop_of(self, name: str) -> Callable[[], SupervisedLoop]:
        return lambda: self._loops()[name]

    def _restarts_of(self, name: str) -> Callable[[], int]:
        return lambda: self._loops()[name].restarts_count
