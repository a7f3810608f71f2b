"""The figures of consumers for Prometheus, with prometheus-client (the extra `prometheus`).

`from aiogroup.prometheus import Collector`. Nothing else of aiogroup imports this.
"""

from __future__ import annotations

from aiogroup.prometheus.collector import Collector, exposition

__all__ = ["Collector", "exposition"]
