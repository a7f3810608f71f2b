"""Drains by `to_table` and `to_merge` into Delta and Iceberg tables, in a process of its own: their jars must be there
when Java starts.

python -m tests.support.spark_sinks BOOTSTRAP FOLDER GROUP,TOPIC,CASE...

prints a line of JSON for each case: the final contents of each table, by kind, and the result of the case.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partialmethod, reduce
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

from aiogroup._core.recovery.ranges import read
from aiogroup._core.recovery.token import LogId
from aiogroup.spark import DrainReport, TableError, drain, tables, to_merge, to_table
from aiogroup.spark.__main__ import main as command
from aiogroup.spark.current import Current, at_work
from tests.support.spark import start_spark_with_tables

COLUMNS = ["topic", "partition", "offset", "value"]
SCHEMA = "topic STRING, partition INT, offset BIGINT, value BINARY"
RAW = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


PAGE = Path(__file__).parents[2] / "docs/how-to-spark-tables.md"


class KilledError(Exception):
    """Stands for the end of the job between the table's commit and the job's own."""


class Case:
    """One group's backlog, and a table of each kind, or of `only` one."""

    def __init__(
        self,
        spark: Any,
        bootstrap: str,
        folder: str,
        group: str,
        topic: str,
        schema: str = SCHEMA,
        only: str | None = None,
    ) -> None:
        self.spark, self.bootstrap, self.group, self.topic = spark, bootstrap, group, topic
        name = group.replace("-", "_").replace(".", "_")
        self.tables = {"delta": f"delta.`{folder}/{name}`", "iceberg": f"lake.db.{name}"}
        if only is not None:
            self.tables = {only: self.tables[only]}
        for kind, table in self.tables.items():
            spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({schema}) USING {kind}")

    @property
    def rows(self) -> dict[str, list[Any]]:
        return {
            kind: sorted([row.partition, row.offset] for row in self.spark.sql(f"SELECT * FROM {table}").collect())
            for kind, table in self.tables.items()
        }

    def write(self, frame: Any, make: Callable[[str], Callable[[Any], None]] = to_table) -> None:
        for table in self.tables.values():
            make(table)(frame.select(COLUMNS))

    def drain(self, process: Callable[[Any], object], slice_records: int = 20, **settings: Any) -> DrainReport:
        return drain(
            self.spark,
            process,
            bootstrap_servers=self.bootstrap,
            group_id=settings.pop("group_id", self.group),
            topics=self.topic,
            slice_records=slice_records,
            **settings,
        )

    def take(self, kind: str, *pairs: tuple[int, int], group: str = "billing", topic_id: int = 1) -> None:
        """Give `to_table` these offsets of partition 0, without Kafka."""
        ranges = (self.spark.range(start, end, 1, 1) for start, end in pairs)
        frame = reduce(lambda one, other: one.union(other), ranges).selectExpr(
            f"'{self.topic}' AS topic", "0 AS partition", "id AS offset", "X'' AS value"
        )
        with at_work(Current(group, {LogId("c", self.topic, UUID(int=topic_id), 0): read(pairs)})):
            to_table(self.tables[kind])(frame)


@contextmanager
def appending(kind: str, instead: Callable[..., None]) -> Iterator[None]:
    """Replace the table's append by `instead`, which is called with the original method and its arguments."""
    of_kind = {"delta": tables.DeltaTable, "iceberg": tables.IcebergTable}[kind]
    append = of_kind.append
    of_kind.append = partialmethod(_called, instead, append)
    try:
        yield
    finally:
        of_kind.append = append


def _called(table: Any, instead: Callable[..., None], append: Callable[..., None], *given: Any) -> None:
    instead(append, table, *given)


def killed_thrice(case: Case) -> dict[str, Any]:
    """The job is killed three times, each time with differently cut slices."""

    def process(frame: Any) -> None:
        case.write(frame)
        raise KilledError

    for slice_records in (20, 7, 20):
        with suppress(KilledError):
            case.drain(process, slice_records)
    report = case.drain(case.write, 11)
    return {"records": report.record_count, "left": report.left_count}


def killed_between_tables(case: Case) -> dict[str, Any]:
    def process(frame: Any) -> None:
        to_table(case.tables["delta"])(frame.select(COLUMNS))
        raise KilledError

    with suppress(KilledError):
        case.drain(process)
    return {"records": case.drain(case.write, 20).record_count}


def isolated(case: Case) -> dict[str, Any]:
    """A round that fails after it was written is repeated in halves, and again by the next job."""

    def process(frame: Any) -> None:
        case.write(frame)
        if frame.where("partition = 1 AND offset = 15").count():
            raise ValueError("no good")

    report = case.drain(process, on_error="isolate", task_records=100)
    failed = [[each.tp.partition, *each.ranges] for each in report.failed]
    return {"failed": failed, "left": case.drain(case.write).left_count}


def kept(case: Case) -> dict[str, Any]:
    def process(frame: Any) -> None:
        case.write(frame)
        raise KilledError

    with suppress(KilledError):
        case.drain(process, 7, keep="MEMORY_AND_DISK")
    return {"records": case.drain(case.write, keep="MEMORY_AND_DISK").record_count}


def two_drivers(case: Case) -> dict[str, Any]:
    reports: list[DrainReport] = []
    both = [Thread(target=lambda: reports.append(case.drain(case.write, 12))) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    return {"records": sum(each.record_count for each in reports), "left": [each.left_count for each in reports]}


def overtaken(case: Case) -> dict[str, Any]:
    """A driver has lost its claim. Between its look and its commit another one writes: first the same offsets, then
    some of them.
    """
    told: list[str] = []

    class Ears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    def late(kind: str, mine: tuple[int, int], other: tuple[int, int]) -> None:
        def instead(append: Callable[..., None], *given: Any) -> None:
            with appending(kind, lambda own, *others: append(*others)):
                case.take(kind, other)
            append(*given)

        with appending(kind, instead):
            case.take(kind, mine)

    ears = Ears()
    logging.getLogger("aiogroup").addHandler(ears)
    for kind in case.tables:
        late(kind, (0, 8), (0, 8))
        late(kind, (8, 16), (12, 20))
    logging.getLogger("aiogroup").removeHandler(ears)
    return {"told": [each.partition("offset): ")[2] for each in told]}


def lost_answers(case: Case) -> dict[str, Any]:
    """The table has the commit, but the driver does not get the answer."""

    def unheard(append: Callable[..., None], *given: Any) -> None:
        append(*given)
        raise TimeoutError

    def failing(*_: Any) -> None:
        raise ZeroDivisionError

    said = []
    for kind in case.tables:
        with appending(kind, unheard):
            case.take(kind, (0, 4))
        try:
            with appending(kind, failing):
                case.take(kind, (0, 8))
        except ZeroDivisionError:
            said.append(kind)
    return {"failed": said}


def others(case: Case) -> dict[str, Any]:
    """Another group, and a topic that was created again, have separate records."""
    for kind in case.tables:
        case.take(kind, (0, 2))
        case.take(kind, (0, 3))
        case.take(kind, (0, 1), group="audit")
        case.take(kind, (0, 1), topic_id=2)
    return {}


def rolled_back(case: Case) -> dict[str, Any]:
    """Records that were rolled back are written again, with the same commit as before."""
    delta, iceberg = case.tables["delta"], case.tables["iceberg"]
    for kind in case.tables:
        case.take(kind, (0, 2))
        case.take(kind, (2, 4))
    case.spark.sql(f"RESTORE TABLE {delta} TO VERSION AS OF 1")
    (first,) = case.spark.sql(f"SELECT snapshot_id FROM {iceberg}.snapshots WHERE parent_id IS NULL").collect()
    case.spark.sql(f"CALL lake.system.rollback_to_snapshot('{iceberg.removeprefix('lake.')}', {first[0]})")
    for kind in case.tables:
        for _ in range(2):
            case.take(kind, (0, 2))
            case.take(kind, (2, 4))
    return {}


def replaced(case: Case) -> dict[str, Any]:
    """Tables that are replaced while the sink is in use hold nothing."""
    sinks = {kind: to_table(table) for kind, table in case.tables.items()}
    frame = case.spark.createDataFrame([(case.topic, 0, offset, b"") for offset in range(3)], SCHEMA)
    for kind, table in case.tables.items():
        for _ in range(2):
            with at_work(Current("billing", {LogId("c", case.topic, UUID(int=1), 0): read([(0, 3)])})):
                sinks[kind](frame)
            if _ == 0:
                case.spark.sql(f"CREATE OR REPLACE TABLE {table} ({SCHEMA}) USING {kind}")
    return {}


def refused(case: Case) -> dict[str, Any]:
    case.spark.sql("CREATE TABLE files (topic STRING, partition INT, offset BIGINT) USING parquet")
    case.spark.range(1).createOrReplaceTempView("view")
    frame = case.spark.createDataFrame([(case.topic, 0, 0, b"")], SCHEMA)
    now = Current("billing", {LogId("c", case.topic, UUID(int=1), 0): read([(0, 1)])})
    delta, iceberg = case.tables.values()

    def twice(frame: Any) -> None:
        to_table(iceberg)(frame)
        to_table(iceberg)(frame)

    tries: list[tuple[Callable[[Any], None], Any]] = [
        (to_table("files"), frame),
        (to_table("view"), frame),
        (to_table("nowhere.orders"), frame),
        (to_table(iceberg), frame.select("topic", "value")),
        (twice, frame),
        (to_merge(delta), frame),
        (to_merge(iceberg, keys=("topic", "id")), frame),
    ]
    said = []
    for process, given in tries:
        try:
            with at_work(Current(now.group_id, now.offsets)):
                process(given)
        except TableError as error:
            said.append(str(error))
    try:
        to_table(iceberg)(frame)
    except TableError as error:
        said.append(str(error))
    return {"said": said}


def merged(case: Case) -> dict[str, Any]:
    def process(frame: Any) -> None:
        case.write(frame, to_merge)
        raise KilledError

    with suppress(KilledError):
        case.drain(process, 7, keep="MEMORY_AND_DISK")
    return {"records": case.drain(lambda frame: case.write(frame, to_merge), keep="MEMORY_AND_DISK").record_count}


def merged_without_keep(case: Case) -> dict[str, Any]:
    return {"records": case.drain(to_merge(case.tables["iceberg"])).record_count}


def page(case: Case) -> dict[str, Any]:
    """Run the examples of docs/how-to-spark-tables.md, which has two tables of its own."""
    text = PAGE.read_text()
    (create,), (code,) = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("sql", "python"))
    case.spark.sql("CREATE DATABASE lake.shop")
    case.spark.sql(create)
    columns = "topic STRING, partition INT, offset BIGINT, amount STRING"
    case.spark.sql(f"CREATE TABLE lake.shop.amounts ({columns}) USING iceberg")
    code = code.replace("broker:9092", case.bootstrap).replace('"billing"', repr(case.group))
    code = code.replace('topics="orders"', f"topics={case.topic!r}").replace("    make_session,", "    spark,")
    names: dict[str, Any] = {"spark": case.spark}
    exec(compile(code, str(PAGE), "exec"), names)
    rows = case.spark.sql("SELECT partition, offset, amount FROM lake.shop.amounts").collect()
    return {"amounts": sorted([row.partition, row.offset] for row in rows if row.amount == str(row.offset))}


def by_command(case: Case) -> dict[str, Any]:
    """The command ends the session."""
    arguments = ["--bootstrap-server", case.bootstrap, "--group", case.group, "--topic", case.topic]
    code = command(["drain", *arguments, "--to", f"table:{case.tables['iceberg']}"])
    return {"code": code}


def killed(case: Case, slice_records: int) -> None:
    """Kill this process, where other cases raise `KilledError`."""

    def process(frame: Any) -> None:
        case.write(frame)
        os.kill(os.getpid(), signal.SIGKILL)

    case.drain(process, slice_records, session_timeout_ms=3_000)


def last(case: Case) -> dict[str, Any]:
    return {"records": case.drain(case.write, 11).record_count}


ALL = (
    killed_thrice, last, killed_between_tables, isolated, kept, two_drivers, overtaken, lost_answers, others,
    rolled_back, replaced, refused, merged, merged_without_keep, page, by_command,
)  # fmt: skip
CASES = {case.__name__: case for case in ALL}
ONLY = {
    "isolated": "iceberg", "kept": "delta", "two_drivers": "iceberg", "merged_without_keep": "iceberg",
    "page": "iceberg", "by_command": "iceberg",
}  # fmt: skip
"""Cases with only one table, to save time."""


def main(bootstrap: str, folder: str, *given: str) -> None:
    spark = start_spark_with_tables(Path(folder, "lake"))
    spark.sql("CREATE DATABASE IF NOT EXISTS lake.db")
    for each in given:
        group, topic, name, *rest = each.split(",")
        if name == "killed":
            killed(Case(spark, bootstrap, folder, group, topic), int(rest[0]))
        schema = RAW if name == "by_command" else SCHEMA
        case = Case(spark, bootstrap, folder, group, topic, schema, ONLY.get(name))
        said = CASES[name](case)
        rows = None if name == "by_command" else case.rows
        sys.stdout.write(f"{json.dumps({'rows': rows, **said})}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
