"""`python -m benchmarks.timeline [benchmarks/results/recovering.json]`: the picture of `docs/recovery.md`.

With a file, the runs to draw are taken from it into `docs/recovery-timeline.json`; then `docs/recovery-timeline.svg` is
drawn from that. Both are committed, so that the picture can be made again without a broker.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.catching_up import AIOKAFKA, IN_ORDER, PLAIN, TWO_LANES
from benchmarks.recovering import PER_S, WORK, WORK_US

DOCS = Path(__file__).parents[1] / "docs"
DATA, PICTURE = DOCS / "recovery-timeline.json", DOCS / "recovery-timeline.svg"
COLOURS = {AIOKAFKA: "#8a8a8a", PLAIN: "#c2571a", IN_ORDER: "#7a4fb5", TWO_LANES: "#0f6fc6"}
SHOWN_AFTER_S = 4.0
WIDTH, LEFT, RIGHT = 860, 78, 24
TOP, HEIGHT, GAP = 104, 200, 74
LEAST_MS, MOST_MS = 1.0, 100_000.0
STYLE = """<style>text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.small{font-size:11px;fill:#666}
.grid{stroke:#e4e4e4}polyline{fill:none;stroke-linejoin:round}</style>"""
FOOT = "Seconds since the partitions were assigned. Dotted: the end of the log. Dashed: the live lane, upon it."
Point = tuple[float, float]


def taken(results: dict[str, Any]) -> dict[str, Any]:
    """For each client the run whose catch-up took the median time, cut to the part that the picture shows."""
    runs = {}
    for row in results["rows"]:
        if row["kind"] == "recover" and row["scenario"] == WORK and row["client"] in COLOURS:
            by_time = sorted((run for run in row["runs"] if "failed" not in run), key=lambda run: run["catch_up_s"])
            runs[row["client"]] = by_time[(len(by_time) - 1) // 2]
    until_s = max(run["catch_up_s"] for run in runs.values()) + SHOWN_AFTER_S
    return {
        "records": results["records"],
        "until_s": round(until_s, 1),
        "runs": {
            client: {
                "first_live_ms": run["first_live_ms"],
                "catch_up_s": run["catch_up_s"],
                "positions": thinned(run["positions"]),
                "ages": [each for each in run["ages"] if each[0] < until_s * 1_000],
            }
            for client, run in runs.items()
        },
    }


def thinned(positions: Sequence[Sequence[int]], step: int = 5) -> list[Sequence[int]]:
    return [*positions[:-1:step], positions[-1]]


class Panel:
    """One diagram: its scales and its lines."""

    def __init__(self, top: float, until_s: float, high: float, place: Callable[[float], float] = lambda v: v) -> None:
        self._top, self._until_s, self._high, self._place = top, until_s, high, place
        self.parts: list[str] = []

    def at(self, point: Point) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * min(point[0], self._until_s) / self._until_s
        y = self._top + HEIGHT * (1 - min(1.0, max(0.0, self._place(point[1]) / self._high)))
        return f"{x:.1f},{y:.1f}"

    def title(self, text: str) -> None:
        self.parts.append(f'<text x="{LEFT}" y="{self._top - 12}" class="title">{text}</text>')

    def scale(self, ticks: Iterable[tuple[float, str]]) -> None:
        for value, text in ticks:
            y = self.at((0, value)).split(",")[1]
            self.parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" class="grid"/>')
            self.parts.append(f'<text x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end">{text}</text>')

    def seconds(self, step: int) -> None:
        for second in range(0, int(self._until_s) + 1, step):
            x = self.at((second, 0)).split(",")[0]
            self.parts.append(f'<text x="{x}" y="{self._top + HEIGHT + 18}" text-anchor="middle">{second} s</text>')

    def line(self, points: Iterable[Point], colour: str, *, dashes: str = "", width: float = 2) -> None:
        drawn = " ".join(self.at(each) for each in points)
        more = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<polyline points="{drawn}" stroke="{colour}" stroke-width="{width}"{more}/>')


def drawn(data: dict[str, Any]) -> str:
    runs, until_s, records = data["runs"], data["until_s"], data["records"]
    ordered = [each for each in COLOURS if each in runs]
    step = 5 if until_s > 12 else 1
    late = Panel(TOP, until_s, math.log10(MOST_MS / LEAST_MS), lambda ms: math.log10(max(ms, LEAST_MS) / LEAST_MS))
    late.title("How late a record was in hand, by when it was made (the latest of each quarter of a second)")
    late.scale([(1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1_000, "1 s"), (10_000, "10 s"), (100_000, "100 s")])
    late.seconds(step)
    end = records + until_s * PER_S
    below = Panel(TOP + HEIGHT + GAP, until_s, end)
    below.title(f"Offset of the newest record in hand: a backlog of {records:,}, then {PER_S:,} a second")
    below.scale([(share * records, f"{share * records:,.0f}") for share in (0, 0.25, 0.5, 0.75, 1)])
    below.seconds(step)
    below.line([(0, records), (until_s, end)], "#000", dashes="1 3", width=1.5)
    for client in ordered:
        run, colour = runs[client], COLOURS[client]
        late.line([(made / 1_000, age) for made, age in run["ages"]], colour)
        below.line([(0, 0), *((at / 1_000, count) for at, count in run["positions"])], colour)
        live = [((made + age) / 1_000, records + made * PER_S / 1_000) for made, age in run["ages"]]
        below.line(sorted(live), colour, dashes="7 4" if client == TWO_LANES else "")
    bottom = TOP + 2 * HEIGHT + GAP
    legend = []
    for number, client in enumerate(reversed(ordered)):
        x, run = LEFT + number * 192, runs[client]
        legend.append(f'<rect x="{x}" y="40" width="14" height="4" fill="{COLOURS[client]}"/>')
        legend.append(f'<text x="{x + 20}" y="46">{client}</text>')
        legend.append(f'<text x="{x + 20}" y="61" class="small">first live record: {told(run["first_live_ms"])}</text>')
    height = bottom + 58
    head = f"A service is back from a crash; each record takes it {WORK_US:g} µs"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">', STYLE]
    parts += [f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>']
    parts += [f'<text x="{LEFT}" y="24" class="title">{head}</text>', *legend, *late.parts, *below.parts]
    parts += [f'<text x="{LEFT}" y="{bottom + 40}" class="small">{FOOT}</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def told(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


def main() -> None:
    if len(sys.argv) > 1:
        data = taken(json.loads(Path(sys.argv[1]).read_text()))
        lines = json.dumps(data, indent=1).replace("[\n     ", "[").replace(",\n     ", ", ").replace("\n    ]", "]")
        DATA.write_text(lines + "\n")
    PICTURE.write_text(drawn(json.loads(DATA.read_text())))
    print(f"{PICTURE.relative_to(DOCS.parent)} is drawn")


if __name__ == "__main__":
    main()
