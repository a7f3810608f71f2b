"""Where a job writes records: Parquet files, tables that take each record once, or a function of the application."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from aiogroup.errors import ConfigError
from aiogroup.spark.current import Current, current
from aiogroup.spark.errors import TableError
from aiogroup.spark.marks import Mark, Offsets, held, without
from aiogroup.spark.reading import SLICE
from aiogroup.spark.session import is_remote
from aiogroup.spark.tables import Table, provider_of, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["load_function", "to_merge", "to_parquet", "to_table"]

KEYS: Final = ("topic", "partition", "offset")
RAW_DISK: Final = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
"""On a local disk Hadoop writes a file of checksums beside each file, and starts a process for each to set its rights:
with a thousand slices that is a third of the time. Parquet's pages have checksums of their own.
"""

_logger: Final = logging.getLogger("aiogroup")


def to_parquet(path: str) -> Callable[[DataFrame], None]:
    """A `process` for `drain` that writes each slice into a folder of its own, `path/slice=TOPIC-PARTITION-START-END`.

    A repeated slice replaces the files that a killed attempt left. Several drivers may write into one path.
    """

    def write(frame: DataFrame) -> None:
        writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.options(**RAW_DISK).partitionBy(SLICE).parquet(path)

    return write


def to_table(name: str) -> Callable[[DataFrame], None]:
    """A `process` for `drain` that appends to a table of Delta or Iceberg, in one commit, each record once.

    Each commit records its offsets for the group. A repeated slice leaves out the offsets that earlier commits
    recorded, even if the slices are cut differently now. `name` is the table's name in SQL, for example `lake.orders`
    or `` delta.`/path` ``. The table must exist.

    If `process` turns out not to have read every record, a second commit without records says that the first one does
    not count: the next job writes all of the slice, and the part that is there is there twice.

    The DataFrame may be changed before: `to_table("lake.orders")(frame.select(...))`. It must still have the columns
    topic, partition and offset. The column `slice` is left out if the table has none. Each call of `process` may
    write to a table once.

    A record is recognized as long as the table's history has its commit: until Iceberg's `expire_snapshots`, or within
    the last 10,000 commits in Delta's log.

    Raises:
        TableError: when it is called; the message says what to do.
    """
    _check_name(name)
    tables: dict[object, Table] = {}

    def write(frame: DataFrame) -> None:
        spark, now = frame.sparkSession, current()
        if now is None:
            raise TableError(
                "to_table writes within drain, in the thread that calls process: it asks the job which offsets the "
                "DataFrame has. Elsewhere use to_merge"
            )
        _check_columns(name, frame, KEYS)
        if spark not in tables:
            tables[spark] = table_of(spark, name)
        if name in now.tables:
            raise TableError(f"process has written to {name} already: union what it has to write, and write it once")
        now.tables.add(name)
        _append_once(tables[spark], name, frame, now)

    return write


def _append_once(table: Table, name: str, frame: DataFrame, now: Current) -> None:
    """Append the records that the table does not hold. Every record is read, so that the job can count them."""
    left = without(now.offsets, held(table.marks(), now.group_id))
    mark = Mark.of(now.group_id, left)
    if left:
        news = _fitting(name, frame if left == now.offsets else _only(frame, left))
        try:
            table.append(news, mark)
        except Exception:
            # The table may hold the records all the same: the answer to the commit was lost, or another driver
            # committed them and Delta refused this commit.
            if without(left, held(table.marks(), now.group_id)):
                raise
        else:
            marks = table.marks()
            if any(each.id == mark.id for each in marks):
                now.undo.append(partial(_void, table, name, frame, mark))
                _tell_twice(name, left, held((each for each in marks if each.id != mark.id), now.group_id))
                return
    # The table holds the records already. They are read all the same, because the job counts what is read now.
    frame.write.format("noop").mode("overwrite").save()


def _void(table: Table, name: str, frame: DataFrame, mark: Mark) -> None:
    """Commit that the commit with this mark has not brought what the mark names: the next job writes all of it."""
    table.marks()
    table.append(_fitting(name, frame.limit(0)), Mark(mark.group_id, {}, uuid4().hex, mark.id))
    _logger.error(
        "%s holds a part of what is still pending, and gets it once more: process wrote a DataFrame that had not read "
        "every record",
        name,
    )


def _fitting(name: str, frame: DataFrame) -> DataFrame:
    """The DataFrame, without the column `slice` if the table has none."""
    return frame if SLICE in frame.sparkSession.table(name).columns else frame.drop(SLICE)


def _only(frame: DataFrame, offsets: Offsets) -> DataFrame:
    """The records with these offsets."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    by_partition = json.dumps({f"{log.topic}/{log.partition}": ranges for log, ranges in offsets.items()})
    known = F.from_json(F.lit(by_partition), "map<string,array<array<bigint>>>")
    ranges = F.try_element_at(known, F.concat_ws("/", "topic", "partition"))
    found = F.exists(ranges, lambda each: F.col("offset").between(each[0], each[1] - 1))
    return frame.where(F.coalesce(found, F.lit(False)))


def _tell_twice(name: str, mine: Offsets, others: Offsets) -> None:
    """Log the offsets that are in both. There are none unless two drivers worked on a partition at once."""
    once = without(mine, others)
    if twice := without(mine, once):
        _logger.error(
            "%s holds records twice: while this driver wrote them another one did, and one of the two had lost its "
            "claim. Remove the duplicates by (topic, partition, offset): %s",
            name,
            ", ".join(f"{log.topic}-{log.partition} {' '.join(map(str, each))}" for log, each in twice.items()),
        )


def to_merge(table: str, keys: Sequence[str] = KEYS) -> Callable[[DataFrame], None]:
    """A `process` for `drain` that merges into a table, by SQL's MERGE: a record whose keys the table has replaces it.

    Use it for tables that know MERGE and that `to_table` does not support, or that others write to as well. `keys` are
    columns of the DataFrame and of the table, and no two records of a slice may have the same keys. Columns that the
    table does not have are left out; the DataFrame must have all columns of the table.

    For Delta, and over Spark Connect, `drain` needs `keep`, because Spark does not report there what MERGE reads.

    Raises:
        ConfigError: no key is given. TableError: when it is called; the message says what to do.
    """
    _check_name(table)
    if isinstance(keys, str) or not keys:
        raise ConfigError(f"to_merge: keys={keys!r}: a sequence of columns is needed")
    matches = " AND ".join(f"t.`{key}` <=> s.`{key}`" for key in keys)

    def write(frame: DataFrame) -> None:
        spark, now = frame.sparkSession, current()
        _check_columns(table, frame, keys)
        is_untold = provider_of(spark, table) == "delta" or is_remote(spark)
        if is_untold and now is not None and now.keep is None:
            raise TableError(
                f"{table}: Spark does not tell what MERGE reads, into tables of Delta and over Spark Connect: give "
                'drain keep, for example keep="MEMORY_AND_DISK"'
            )
        spark.sql(
            f"MERGE INTO {table} AS t USING {{news}} AS s ON {matches} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            news=frame,
        )

    return write


def _check_name(name: str) -> None:
    if not name.strip():
        raise ConfigError("the name of a table is needed")


def _check_columns(name: str, frame: DataFrame, wanted: Sequence[str]) -> None:
    if missing := [column for column in wanted if column not in frame.columns]:
        raise TableError(f"{name}: the DataFrame has no column {', '.join(missing)}, by which records are recognized")


def load_function(name: str) -> Callable[[DataFrame], object]:
    """The function that `module:function` names. Modules are also looked for in the current folder.

    Raises:
        ConfigError: there is no such function.
    """
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name:
        raise ConfigError(f"{name!r}: module:function is needed, say jobs.orders:process")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:
        raise ConfigError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{name!r} is no function; give one that takes a DataFrame")
    function: Callable[[DataFrame], object] = found
    return function
