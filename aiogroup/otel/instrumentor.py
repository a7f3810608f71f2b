"""The entry point of `opentelemetry-instrument`: every consumer that is made afterwards has `Tracing` and `Metering`.

Where the application gives a consumer one of them itself, that one alone is used: two would count each record twice.

Needs opentelemetry-instrumentation, which that command brings.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import wraps
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from aiogroup._core.telemetry.event import Observer
from aiogroup._runtime.telemetry.observers import checked_observers
from aiogroup.consumer import Consumer
from aiogroup.otel import Metering, Tracing

__all__ = ["AiogroupInstrumentor"]


class AiogroupInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """`AiogroupInstrumentor().instrument(tracer_provider=..., meter_provider=..., parent=..., keys=...)`."""

    _init: Any = None

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("aiogroup",)

    def _instrument(self, **options: Any) -> None:  # noqa: ANN401 (what the caller gives)
        tracing = {name: options[name] for name in ("parent", "keys") if name in options}
        tracer_provider, meter_provider = options.get("tracer_provider"), options.get("meter_provider")
        self._init = init = Consumer.__init__

        @wraps(init)
        def observed(self: Consumer, *topics: Any, observers: Any = (), **more: Any) -> None:  # noqa: ANN401
            own = checked_observers(observers)
            added: list[Observer] = []
            if not any(isinstance(each, Tracing) for each in own):
                added.append(Tracing(tracer_provider, **tracing))
            if not any(isinstance(each, Metering) for each in own):
                added.append(Metering(meter_provider))
            init(self, *topics, observers=(*own, *added), **more)

        Consumer.__init__ = observed  # type: ignore[assignment, method-assign]

    def _uninstrument(self, **options: Any) -> None:  # noqa: ANN401 (as above)
        Consumer.__init__ = self._init  # type: ignore[method-assign]
