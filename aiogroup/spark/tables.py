"""Tables of Delta and Iceberg: reads the marks of their commits, and appends with a mark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiogroup.spark.errors import TableError
from aiogroup.spark.marks import LaterMarkError, Mark, of_delta, of_iceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeltaTable", "IcebergTable", "Table", "provider_of", "table_of"]

PROPERTY: Final = "aiogroup"
"""The property of an Iceberg snapshot."""
COMMITS: Final = 10_000
"""How many of a Delta table's last commits are read."""
LATEST: Final = 20
"""How many are read first, if the earlier commits are known."""


class Table(Protocol):
    """A table whose commits have marks."""

    def marks(self) -> list[Mark]:
        """The marks that hold for the table now."""

    def append(self, frame: DataFrame, mark: Mark) -> None:
        """Append the records and the mark in one commit."""


def table_of(spark: SparkSession, name: str) -> Table:
    """The table of this name.

    Raises:
        TableError: there is none, or it is neither Delta's nor Iceberg's.
    """
    provider = provider_of(spark, name)
    if provider == "delta":
        return DeltaTable(spark, name)
    if provider == "iceberg":
        return IcebergTable(spark, name)
    what = f"a table of {provider}" if provider else "no table"
    raise TableError(
        f"{name} is {what}, and to_table writes to tables of Delta and Iceberg, whose commits say which offsets they "
        "have brought. Where the format knows MERGE, use to_merge; into files, to_parquet"
    )


def provider_of(spark: SparkSession, name: str) -> str:
    """The format of the table in lower case; "" if it has none.

    Raises:
        TableError: there is no such table.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except PySparkException as error:
        why = str(error).partition("\n")[0]
        raise TableError(f"{name} is not there to be written to: {why} Create the table first") from error
    names = [row[0] for row in rows]
    start = names.index("# Detailed Table Information") if "# Detailed Table Information" in names else len(rows)
    return next((str(row[1]).lower() for row in rows[start:] if row[0] == "Provider"), "")


class DeltaTable:
    """A mark is a commit's user metadata. Its content id is also a `txnAppId` of Delta's: of two concurrent commits of
    the same offsets Delta accepts the first, and drops or refuses the second.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        # the row of the last commit, and all commits by version
        self._known: tuple[Any, Mapping[int, Any]] = (None, {})

    def marks(self) -> list[Mark]:
        last, commits = self._known
        rows = [] if last is None else self._history(LATEST)
        if last not in rows:  # this is the first look, or it is another table now, or has many new commits
            rows, commits = self._history(COMMITS), {}
        news = {row.version: (row.operation, row.operationParameters, row.userMetadata) for row in rows}
        self._known = (rows[0], {**commits, **news})
        return _read(self._name, lambda: of_delta(self._known[1]))

    def append(self, frame: DataFrame, mark: Mark) -> None:
        # A restored table no longer holds the records, but Delta still knows the `txnAppId`: hence a higher version.
        former = (Mark.read_text(text) for _, _, text in self._known[1].values())
        before = sum(each is not None and each.content_id == mark.content_id for each in former)
        options = {"userMetadata": mark.text, "txnAppId": mark.content_id, "txnVersion": str(before + 1)}
        frame.writeTo(self._name).options(**options).append()

    def _history(self, limit: int) -> list[Any]:
        """The last commits, the newest first."""
        told = self._spark.sql(f"DESCRIBE HISTORY {self._name} LIMIT {limit}")
        wanted = ("version", "timestamp", "operation", "operationParameters", "userMetadata")
        return sorted(told.select(*wanted).collect(), key=lambda row: -row.version)


class IcebergTable:
    """A mark is a property of a snapshot."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name

    def marks(self) -> list[Mark]:
        self._spark.sql(f"REFRESH TABLE {self._name}")  # the catalog may cache a table
        heads = self._spark.sql(f"SELECT snapshot_id FROM {self._name}.refs WHERE name = 'main'").collect()  # noqa: S608 (as SQL names it)
        told = f"SELECT snapshot_id, parent_id, summary['{PROPERTY}'] FROM {self._name}.snapshots"  # noqa: S608
        snapshots = {number: (parent, text) for number, parent, text in self._spark.sql(told).collect()}
        return _read(self._name, lambda: of_iceberg(snapshots, heads[0][0] if heads else None))

    def append(self, frame: DataFrame, mark: Mark) -> None:
        frame.writeTo(self._name).option(f"snapshot-property.{PROPERTY}", mark.text).append()


def _read(name: str, read: Callable[[], list[Mark]]) -> list[Mark]:
    try:
        return read()
    except LaterMarkError as error:
        raise TableError(f"{name}: {error}. Update aiogroup") from error
