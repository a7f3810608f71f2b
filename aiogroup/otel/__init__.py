"""OpenTelemetry: spans that are current while a record is handled, the conventions' metrics, and a consumer's figures.

    Consumer("orders", group_id="billing", observers=[Tracing(), Metering()])

Needs the extra `otel` (opentelemetry-api alone); the application brings the SDK. Names and attributes are those of the
semantic conventions for messaging 1.44 (status Development), which `SCHEMA_URL` names.
"""

from __future__ import annotations

try:
    import opentelemetry.metrics  # noqa: F401 (the extra is there)
except ModuleNotFoundError as error:
    message = "aiogroup.otel needs opentelemetry-api: pip install 'aiogroup[otel]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from aiogroup.otel.attributes import SCHEMA_URL
from aiogroup.otel.figures import FiguresMetering
from aiogroup.otel.metering import Metering
from aiogroup.otel.tracing import LINKS_LIMIT, Tracing

__all__ = ["LINKS_LIMIT", "SCHEMA_URL", "FiguresMetering", "Metering", "Tracing"]
