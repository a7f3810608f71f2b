"""Drains into Delta and Iceberg tables, in a process of its own: their jars must be there when Java starts.

python -m tests.support.spark_tables BOOTSTRAP FOLDER GROUP,TOPIC,CASE...

prints for each case a line of JSON: the report's counts, the error if there is one, and the tables' rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aiogroup.spark import DrainError, drain, to_table
from tests.support.spark import start_spark_with_tables

COLUMNS = ["topic", "partition", "offset", "value"]
SCHEMA = "topic STRING, partition INT, offset BIGINT, value BINARY"


def merge(frame, table: str, where: str = "true") -> None:
    """Update and insert, so that a job can be repeated. `table` is the name in SQL."""
    frame.select(COLUMNS).createOrReplaceTempView("news")
    frame.sparkSession.sql(
        f"MERGE INTO {table} AS t USING (SELECT * FROM news WHERE {where}) AS s "
        "ON t.topic = s.topic AND t.partition = s.partition AND t.offset = s.offset "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def append(frame, table: str) -> None:
    frame.select(COLUMNS).writeTo(table).append()


def process_of(case: str, spark, table: str, other: str):
    """The function that the case gives to `drain`."""
    return {
        "append": lambda frame: append(frame, table),
        "merge": lambda frame: merge(frame, table),
        "merge nothing": lambda frame: merge(frame, table, "offset < 0"),
        "forget": lambda frame: frame.join(spark.sql(f"SELECT * FROM {table}"), COLUMNS[:3], "left_anti"),
        "a part and then all": lambda frame: to_table(table)(frame.select(COLUMNS)),
        "two sinks": lambda frame: (merge(frame, table), append(frame, other)),
    }[case]


def main(bootstrap: str, folder: str, *cases: str) -> None:
    spark = start_spark_with_tables(Path(folder, "lake"))
    spark.sql("CREATE DATABASE IF NOT EXISTS lake.db")
    for number, given in enumerate(cases):
        group, topic, kind, case, keep = given.split(",")
        delta, iceberg = f"delta.`{folder}/delta-{number}`", f"lake.db.t{number}"
        spark.sql(f"CREATE TABLE {delta} ({SCHEMA}) USING delta")
        spark.sql(f"CREATE TABLE {iceberg} ({SCHEMA}) USING iceberg")
        table, other = (delta, iceberg) if kind == "delta" else (iceberg, delta)
        said: dict[str, object] = {}
        job = {"bootstrap_servers": bootstrap, "group_id": group, "topics": topic, "slice_records": 20}
        try:
            if case == "a part and then all":
                try:
                    drain(spark, lambda frame: to_table(table)(frame.select(COLUMNS).limit(3)), **job)  # noqa: B023
                except DrainError as error:
                    said["first"] = f"{type(error).__name__}: {error}"
            report = drain(spark, process_of(case, spark, table, other), **job, keep=keep or None)
            said |= {"records": report.record_count, "left": report.left_count}
        except DrainError as error:
            said["error"] = f"{type(error).__name__}: {error}"
        said["tables"] = [
            sorted((row.partition, row.offset) for row in spark.sql(f"SELECT * FROM {each}").collect())
            for each in (table, other)
        ]
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
