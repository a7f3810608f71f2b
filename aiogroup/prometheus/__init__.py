"""The figures of consumers for Prometheus, with prometheus-client (the extra `prometheus`).

`from aiogroup.prometheus import Collector`. Nothing else of aiogroup imports this.
"""

from __future__ import annotations

try:
    import prometheus_client  # noqa: F401 (the extra is there)
except ModuleNotFoundError as error:
    message = "aiogroup.prometheus needs prometheus-client: pip install 'aiogroup[prometheus]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from aiogroup.prometheus.collector import Collector, exposition

__all__ = ["Collector", "exposition"]
