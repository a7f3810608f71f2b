"""The goals of this client, judged by the results of one run of the benchmarks; some may not have been measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import clients as c
from benchmarks import draining, importing, living, stopping
from benchmarks.compare import shown
from benchmarks.results import Table

TICK_MS, TICK_P99_MS = 10.0, 4.0
STOP_MS = 2_100.0
Where = tuple[str, str, str]
"""Kind of table, scenario, metric."""


@dataclass(frozen=True)
class Part:
    """One comparison of a goal; `held` is None when it was not measured."""

    told: str
    held: bool | None


@dataclass(frozen=True)
class Goal:
    text: str
    parts: Sequence[Part]

    @property
    def held(self) -> bool | None:
        """False if any part failed; True only if every part was measured and held."""
        verdicts = [part.held for part in self.parts]
        return False if False in verdicts else None if None in verdicts or not verdicts else True


class Measured:
    """Looks up what one run measured."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._rows = {(table.kind, row.scenario, row.client): row for table in tables for row in table.rows}

    def value(self, where: Where, client: str, how: str = "median") -> float | None:
        kind, scenario, metric = where
        row = self._rows.get((kind, scenario, client))
        found: float | None = None if row is None else getattr(row, how)(metric)
        return found

    def ratio(
        self, where: Where, ours: str, theirs: str, *, least: float | None = None, most: float | None = None
    ) -> Part:
        """Our median is at least `least`, or at most `most`, times theirs."""
        mine, other = self.value(where, ours), self.value(where, theirs)
        if mine is None or not other:
            return Part(f"{where[1]}, {theirs}: not measured", None)
        times = mine / other
        held = (least is None or times >= least) and (most is None or times <= most)
        wanted = f">= {least:g}" if least is not None else f"<= {most:g}"
        return Part(f"{where[1]}: {shown(times)} x {theirs} ({wanted})", held)

    def highest(self, wheres: Sequence[Where], client: str, most: float, how: str) -> list[Part]:
        """The highest value of several scenarios stands for all that were measured; the others are counted."""
        found = [(value, where) for where in wheres if (value := self.value(where, client, how)) is not None]
        parts = []
        if found:
            value, where = max(found)
            parts.append(Part(f"{shown(value)} ms ({where[1]})", value <= most))
        if len(found) < len(wheres):
            parts.append(Part(f"{len(wheres) - len(found)} of {len(wheres)} scenarios not measured", None))
        return parts


def judged(tables: Sequence[Table]) -> list[Goal]:
    measured = Measured(tables)
    return [*_rates(measured), *_ticks(measured), *_costs(measured), *_times(measured), _ends(tables)]


def _ends(tables: Sequence[Table]) -> Goal:
    """No run of aiogroup may fail. This is a goal of its own, since a failed run is in no median."""
    ours = [row for table in tables for row in table.rows if row.client.startswith("aiogroup") and row.runs]
    failed = [
        Part(f"{row.scenario}, {row.client}: {len(row.failures)} failed", held=False) for row in ours if row.failures
    ]
    ended = Part(f"{sum(len(row.runs) for row in ours)} runs", held=True if ours else None)
    return Goal("every run of aiogroup's ends, with every record", failed or [ended])


def _rates(measured: Measured) -> Iterator[Goal]:
    ratio, metric = measured.ratio, "records_per_s"
    four: Where = ("drain", draining.name(4), metric)
    eighty: Where = ("drain", draining.name(80), metric)
    kb: Where = ("drain", draining.name(4, "1 KB"), metric)
    yield Goal(
        "`async for`, 100 B: >= 5x aiokafka's, >= AIOConsumer.consume(500)",
        [
            ratio(where, c.FOR, theirs, least=least)
            for theirs, least in ((c.AIOKAFKA_FOR, 5), (c.AIO_CONSUMER, 1))
            for where in (four, eighty)
        ],
    )
    for ours in (c.MANY, c.POLL):
        yield Goal(
            f"{ours}, 100 B: >= 2x aiokafka's at 4 partitions, 1.5x at 80; >= 0.9x Consumer.consume(500)",
            [
                ratio(four, ours, c.AIOKAFKA_MANY, least=2),
                ratio(eighty, ours, c.AIOKAFKA_MANY, least=1.5),
                *(ratio(where, ours, c.CONSUMER, least=0.9) for where in (four, eighty)),
            ],
        )
    yield Goal("1 KB: `async for` >= 4x aiokafka's", [ratio(kb, c.FOR, c.AIOKAFKA_FOR, least=4)])
    yield Goal(
        "1 KB: getmany(500) >= 0.8x Consumer.consume(500) that checks CRCs",
        [ratio(kb, c.MANY, c.CONSUMER, least=0.8)],
    )


def _ticks(measured: Measured) -> Iterator[Goal]:
    names = [draining.name(partitions, codec=codec) for codec in draining.CODECS for partitions in (4, 80)]
    latest: list[Where] = [("drain", name, "late_max_ms") for name in names]
    p99: list[Where] = [("drain", name, "late_p99_ms") for name in names]
    for ours in (c.FOR, c.MANY, c.POLL):
        for rounds, how in (("median of the rounds", "median"), ("worst of all rounds", "worst")):
            yield Goal(
                f"latest tick, {rounds}, every codec, 4 and 80 partitions: <= {TICK_MS:g} ms, {ours}",
                measured.highest(latest, ours, TICK_MS, how),
            )
        yield Goal(
            f"p99 of the ticks: <= {TICK_P99_MS:g} ms, {ours}", measured.highest(p99, ours, TICK_P99_MS, "median")
        )


def _costs(measured: Measured) -> Iterator[Goal]:
    ratio = measured.ratio
    cpu: list[Where] = [("drain", draining.name(partitions), "cpu_s_per_million") for partitions in (4, 80)]
    idle: Where = ("flow", living.IDLE, "cpu_percent")
    yield Goal(
        "CPU per million records, `async for`, 100 B: <= 1/4 of aiokafka's",
        [ratio(where, c.FOR, c.AIOKAFKA_FOR, most=0.25) for where in cpu],
    )
    yield Goal(
        "CPU at 1000 msg/s, `async for`: <= 0.75x aiokafka's",
        [ratio(("flow", living.FLOW, "cpu_percent"), c.FOR, c.AIOKAFKA_FOR, most=0.75)],
    )
    yield Goal(
        "CPU at 1000 msg/s, `async for`: <= 1.5x the floor's, a bare protocol with aiokafka's decoder",
        [ratio(("flow", living.FLOW, "cpu_percent"), c.FOR, c.FLOOR_HEAD, most=1.5)],
    )
    yield Goal(
        "import: at most as much again as `import aiokafka`, which is a part of it",
        [
            ratio(("import", importing.SCENARIO, metric), importing.AIOGROUP, importing.AIOKAFKA, most=2)
            for metric in ("wall_ms", "cpu_ms")
        ],
    )
    yield Goal(
        "CPU with 1000 idle partitions and one busy: <= 1/4 of aiokafka's, <= confluent's",
        [
            ratio(idle, c.MANY, c.AIOKAFKA_MANY, most=0.25),
            ratio(idle, c.MANY, c.AIO_CONSUMER, most=1),
            ratio(idle, c.MANY, c.CONSUMER, most=1),
        ],
    )


def _times(measured: Measured) -> Iterator[Goal]:
    ratio = measured.ratio
    age: Where = ("flow", living.FLOW, "p50_ms")
    flow: Where = ("flow", living.FLOW, "p99_ms")
    commit: Where = ("commit", living.COMMIT, "p50_ms")
    first: Where = ("drain", draining.name(4), "first_record_ms")
    yield Goal(
        "end-to-end latency p50 at 1000 msg/s: <= aiokafka's",
        [ratio(age, c.FOR, c.AIOKAFKA_FOR, most=1), ratio(age, c.MANY, c.AIOKAFKA_MANY, most=1)],
    )
    yield Goal(
        "end-to-end latency p99 at 1000 msg/s: <= aiokafka getmany's",
        [ratio(flow, ours, c.AIOKAFKA_MANY, most=1) for ours in (c.MANY, c.FOR)],
    )
    yield Goal("commit of what was just read, p50: <= aiokafka's", [ratio(commit, c.MANY, c.AIOKAFKA_MANY, most=1)])
    yield Goal(
        "time from start() to first record: <= 1.2x aiokafka's",
        [
            ratio(first, c.FOR, c.AIOKAFKA_FOR, most=1.2),
            ratio(first, c.MANY, c.AIOKAFKA_MANY, most=1.2),
        ],
    )
    stops: list[Where] = [("stop", stopping.scenario(state), "took_ms") for state in ("frozen", "killed")]
    yield Goal(
        "stop(timeout_ms=2000), broker frozen or killed: <= 2.1 s", measured.highest(stops, c.MANY, STOP_MS, "worst")
    )


def markdown(goals: Sequence[Goal]) -> str:
    words = {True: "yes", False: "**no**", None: "not measured"}
    lines = ["| goal | measured | held? |", "|---|---|---|"]
    lines += [
        f"| {goal.text} | {'; '.join(_marked(part) for part in goal.parts)} | {words[goal.held]} |" for goal in goals
    ]
    return "\n".join(lines)


def _marked(part: Part) -> str:
    return f"**{part.told}**" if part.held is False else part.told


def told(goals: Sequence[Goal]) -> list[dict[str, Any]]:
    return [
        {"goal": goal.text, "held": goal.held, "parts": [{"told": part.told, "held": part.held} for part in goal.parts]}
        for goal in goals
    ]
