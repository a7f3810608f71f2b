"""The entry point of `opentelemetry-instrument`: every consumer that is made afterwards has `Tracing` and `Metering`.

Needs opentelemetry-instrumentation, which that command brings.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import wraps
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

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
            added = (Tracing(tracer_provider, **tracing), Metering(meter_provider))
            init(self, *topics, observers=(*observers, *added), **more)

        Consumer.__init__ = observed  # type: ignore[method-assign]

    def _uninstrument(self, **options: Any) -> None:  # noqa: ANN401 (as above)
        Consumer.__init__ = self._init  # type: ignore[method-assign]
