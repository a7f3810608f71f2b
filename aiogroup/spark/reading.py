"""Reads ranges as a DataFrame: by aiogroup's data source, or by Spark's own Kafka connector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final, Literal

from aiogroup.errors import ConfigError
from aiogroup.spark.access import Access
from aiogroup.spark.errors import ConnectorMissingError
from aiogroup.spark.session import check_installed, check_running
from aiogroup.spark.slices import Piece, layers, pieces_of
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SLICE", "Reader", "check_connector", "check_reader", "check_session", "read_pieces", "read_ranges"]

Reader = Literal["aiogroup", "connector"]

SLICE: Final = "slice"
TASK_RECORDS: Final = 250_000


def read_ranges(
    spark: SparkSession,
    ranges: Mapping[TopicPartition, Iterable[tuple[int, int]]],
    *,
    bootstrap_servers: str,
    properties: Mapping[str, str] | None = None,
    task_records: int | None = None,
    reader: Reader = "aiogroup",
) -> DataFrame:
    """A DataFrame of exactly the offsets of these (start, end) ranges, each without its end.

    Nothing is read before an action. The columns are those of Spark's Kafka source with headers (`key value topic
    partition offset timestamp timestampType headers`), and `slice`: topic, partition, start and end of the range,
    joined by dashes. A partition may have several ranges. `task_records`, `properties` and `reader` are as for `drain`.
    The action fails if retention deletes some of the records before they are read.

    Raises:
        ConnectorMissingError: start the session with Spark's Kafka connector, which this `reader` needs.
        ConfigError: there is no such reader. ValueError: there is no range, or one is empty.
    """
    check_reader(reader)
    check_session(spark, reader)
    pieces = pieces_of(ranges)
    if not pieces or not all(0 <= each.start < each.end for each in pieces):
        raise ValueError("read_ranges: at least one range is needed, and each as (start, end) with 0 <= start < end")
    access = Access.of(bootstrap_servers, "unused", {tp.topic for tp in ranges}, properties)
    if reader == "connector":
        return read_pieces(spark, pieces, access, task_records)
    from aiogroup.spark.source.frame import load  # noqa: PLC0415 (an extra)

    return load(spark, pieces, access, task_records, with_held=False)


def check_reader(reader: str) -> None:
    """Refuse a reader that does not exist.

    Raises:
        ConfigError: there is none of this name.
    """
    if reader not in ("aiogroup", "connector"):
        raise ConfigError(f"reader={reader!r}: 'aiogroup' or 'connector' is needed")


def check_session(spark: SparkSession, reader: Reader) -> None:
    """Refuse a session in which this reader cannot read.

    Raises:
        UnsupportedSparkError: `spark` is not a session, or it was stopped, or PySpark is too old.
        PySparkMissingError: pyarrow or pandas is not installed.
        ConnectorMissingError: the session has no Kafka connector.
    """
    if reader == "connector":
        check_connector(spark)
        return
    check_running(spark)
    check_installed("pyarrow", "pandas")


def read_pieces(spark: SparkSession, pieces: Iterable[Piece], access: Access, task_records: int | None) -> DataFrame:
    """The pieces as one DataFrame; at least one."""
    return reduce(
        lambda one, other: one.unionByName(other),
        [_read_layer(spark, layer, access, task_records or TASK_RECORDS) for layer in layers(pieces)],
    )


def _read_layer(spark: SparkSession, layer: Mapping[int, Piece], access: Access, task_records: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    topic = next(iter(layer.values())).tp.topic

    def by_partition(values: Mapping[int, int]) -> str:
        return json.dumps({topic: {str(number): value for number, value in values.items()}})

    frame = (
        spark.read.format("kafka")
        .options(**access.spark_options())
        .option("assign", json.dumps({topic: sorted(layer)}))
        .option("startingOffsets", by_partition({number: piece.start for number, piece in layer.items()}))
        .option("endingOffsets", by_partition({number: piece.end for number, piece in layer.items()}))
        .option("maxRecordsPerPartition", str(task_records))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
    )
    # The names are in an array by partition number, so that no record needs a search.
    names = [layer[number].name if number in layer else "" for number in range(max(layer) + 1)]
    return frame.withColumn(SLICE, F.get(F.array(*map(F.lit, names)), F.col("partition")))


def check_connector(spark: SparkSession) -> None:
    """Refuse a session that cannot read Kafka.

    Raises:
        UnsupportedSparkError: `spark` is not a session, or it was stopped, or PySpark is too old.
        ConnectorMissingError: the session has no Kafka connector.
    """
    check_running(spark)
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    named = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "none"}  # no broker is asked
    try:
        _ = spark.read.format("kafka").options(**named).load().schema
    except PySparkException as error:
        raise ConnectorMissingError(
            "this Spark session has no Kafka connector: start it with "
            f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version} (spark.jars.packages), or with "
            "the connector's jars (spark.jars)"
        ) from error
