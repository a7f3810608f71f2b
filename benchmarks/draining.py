"""Every client drains a backlog: 100 B and 1 KB, 4 and 80 partitions, every codec, read_committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from aiogroup.devkafka import Cluster
from benchmarks import clients as c
from benchmarks.backlog import Backlog
from benchmarks.results import Table
from benchmarks.turns import measure, take_turns

COLUMNS = (
    ("records_per_s", "records/s", "median"),
    ("cpu_s_per_million", "CPU s per million", "median"),
    ("peak_mb", "memory MB", "median"),
    ("late_max_ms", "latest tick ms, of all", "worst"),
    ("late_own_ms", "by its own CPU", "worst"),
    ("late_p99_ms", "p99 ms", "median"),
    ("first_record_ms", "first record ms", "median"),
    ("load", "load", "median"),
    ("others_cores", "other cores", "median"),
)


@dataclass(frozen=True)
class Drain:
    """One scenario. Goals and comparisons look up rows by its name."""

    name: str
    partitions: int
    size: int = 100
    codec: str = "none"
    batch_bytes: int = 16_384
    read_committed: bool = False

    def backlog(self, count: int) -> Backlog:
        topic = "".join(each if each.isalnum() else "-" for each in self.name)
        return Backlog(
            topic, self.partitions, count, self.size, self.codec, self.batch_bytes, transactional=self.read_committed
        )

    @property
    def clients(self) -> Sequence[str]:
        """The clients to measure. The floors do not support transactions; a merge needs records with times."""
        return [name for name in c.CLIENTS if name != c.MERGED and not (self.read_committed and name in c.FLOORS)]


def name(partitions: int, size: str = "100 B", codec: str = "none") -> str:
    return f"{size}, {partitions} partitions" + ("" if codec == "none" else f", {codec}")


CODECS = ("none", "lz4", "zstd", "gzip")
FULL = (
    *(Drain(name(partitions, codec=codec), partitions, codec=codec) for codec in CODECS for partitions in (4, 80)),
    Drain(name(4, codec="gzip") + ", batches of 1 MB", 4, codec="gzip", batch_bytes=1_000_000),
    *(Drain(name(partitions, "1 KB"), partitions, 1_000) for partitions in (4, 80)),
    Drain(name(4) + ", read_committed", 4, read_committed=True),
)
QUICK = tuple(each for each in FULL if each.name in (name(4), name(80), name(4, "1 KB"), name(4, codec="lz4")))


def table() -> Table:
    return Table("drain", COLUMNS, c.AIOKAFKA_FOR, "records_per_s")


def drain(
    cluster: Cluster, scenarios: Sequence[Drain], count: int, rounds: int, into: Table, who: str = ""
) -> Iterator[str]:
    """Yields the Markdown of each scenario when it is done. There are a third as many records of 1 KB. `who` is
    `--clients`.
    """
    for scenario in scenarios:
        records = count if scenario.size == 100 else count // 3 // c.BATCH * c.BATCH
        backlog = scenario.backlog(records)
        backlog.write(cluster)
        options = ["--topic", backlog.topic, "--servers", cluster.bootstrap_servers]
        options += ["--count", str(records), "--size", str(scenario.size)]
        options += [f"--ours={node.pid}" for node in cluster.nodes]
        options += ["--read-committed"] if scenario.read_committed else []
        options += ["--check-crcs"] if scenario.size == 1_000 else []
        clients = [client for client in scenario.clients if who in client]
        for client, run in take_turns(clients, rounds, partial(measure, "drain", options=options)):
            into.row(scenario.name, client).runs.append(run)
        backlog.remove(cluster)
        yield into.markdown([into.row(scenario.name, client) for client in clients])
