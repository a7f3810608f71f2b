"""`python benchmarks/compare.py OLD.json NEW.json`: what changed between two runs of the benchmarks.

A change is shown if the medians differ by at least `--percent` and no run of the one lies among the runs of the other:
anything less is noise. With fewer than three runs the difference must be 50 %. `--all` shows everything. Next to rates
it shows the ratio to aiokafka's rate in the same run, which a slower or busier machine changes less. It imports nothing
of this package, so that it runs as a script.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HIGHER_IS_BETTER = frozenset({"records_per_s", "ratio"})
CIRCUMSTANCES = frozenset({"load", "others_cores", "records"})
"""Not results, but the circumstances of a measurement."""
FEW_RUNS, OF_FEW_PERCENT = 3, 50.0
SIZES = ("quick", "records")
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Change:
    """One metric of one client in one scenario."""

    key: Key
    metric: str
    old: float
    new: float
    is_clear: bool

    @property
    def percent(self) -> float | None:
        return (self.new / self.old - 1) * 100 if self.old else None

    @property
    def is_better(self) -> bool:
        return (self.new > self.old) == (self.metric in HIGHER_IS_BETTER)


def keyed(rows: Sequence[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    return {(row["kind"], row["scenario"], row["client"]): row for row in rows}


def values(row: Mapping[str, Any], metric: str) -> list[float]:
    return [run[metric] for run in row["runs"] if run.get(metric) is not None]


def is_apart(old: Sequence[float], new: Sequence[float]) -> bool:
    """Whether no run of the one lies among those of the other."""
    return max(old) < min(new) or max(new) < min(old)


def differs(old: float, new: float, percent: float) -> bool:
    return abs(new - old) * 100 >= percent * max(abs(old), abs(new)) > 0


def changes(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], percent: float = 5.0
) -> Iterator[Change]:
    """Every metric that both runs have."""
    before = keyed(old)
    for key, row in keyed(new).items():
        if key not in before:
            continue
        was = before[key]
        is_told = False
        for metric in row["medians"]:
            a, b = values(was, metric), values(row, metric)
            if metric in CIRCUMSTANCES or not a or not b:
                continue
            middle_a, middle_b = statistics.median(a), statistics.median(b)
            least = percent if min(len(a), len(b)) >= FEW_RUNS else max(percent, OF_FEW_PERCENT)
            is_clear = is_apart(a, b) and differs(middle_a, middle_b, least)
            is_told = is_told or (is_clear and metric == "records_per_s")
            yield Change(key, metric, middle_a, middle_b, is_clear)
        if was["ratio"] is not None and row["ratio"] is not None:
            is_clear = is_told and differs(was["ratio"], row["ratio"], percent)
            yield Change(key, "ratio", was["ratio"], row["ratio"], is_clear)


def missing(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> tuple[list[Key], list[Key]]:
    """The keys (only in the old run, only in the new run)."""
    before, after = keyed(old), keyed(new)
    return sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def markdown(told: Sequence[Change]) -> str:
    lines = ["| scenario | client | metric | old | new | change | |", "|---|---|---|---|---|---|---|"]
    for each in told:
        _, scenario, client = each.key
        percent = "-" if each.percent is None else f"{each.percent:+.0f} %"
        word = ("better" if each.is_better else "worse") if each.old != each.new else "same"
        lines.append(
            f"| {scenario} | {client} | {each.metric} | {shown(each.old)} | {shown(each.new)} | {percent} | {word} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--percent", type=float, default=5.0)
    parser.add_argument("--all", action="store_true", help="what did not change, too")
    args = parser.parse_args()
    old, new = (json.loads(path.read_text()) for path in (args.old, args.new))
    for name in SIZES:
        if old.get(name) != new.get(name):
            print(f"Not the same work: {name} was {old.get(name)} and is {new.get(name)}.\n")
    every = list(changes(old["rows"], new["rows"], args.percent))
    told = [each for each in every if args.all or each.is_clear]
    print(markdown(told) if told else "Nothing changed beyond noise.")
    print(f"\n{len(every)} metrics compared, {sum(each.is_clear for each in every)} changed")
    for title, keys in zip(("only in the old", "only in the new"), missing(old["rows"], new["rows"]), strict=True):
        for _, scenario, client in keys:
            print(f"{title}: {scenario}, {client}")
    for name in sorted(old["versions"].keys() | new["versions"].keys()):
        was, now = old["versions"].get(name), new["versions"].get(name)
        if was != now:
            print(f"{name}: {was} -> {now}")


if __name__ == "__main__":
    main()
