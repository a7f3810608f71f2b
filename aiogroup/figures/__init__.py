"""The figures of consumers as exporters show them: their names, their series, and the snapshots behind them.

`aiogroup.prometheus` and `aiogroup.otel` stand on it. Nothing else of aiogroup imports this.
"""
