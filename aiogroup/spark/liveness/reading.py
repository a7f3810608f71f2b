"""Reads event logs as a DataFrame: from files, or from a topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiogroup.errors import ConfigError
from aiogroup.spark.access import Access
from aiogroup.spark.liveness.errors import EventsError
from aiogroup.spark.liveness.schema import CORRUPT, UNKNOWN, event_schema
from aiogroup.spark.reading import check_connector

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["read_events"]

LINE: Final = "value"
LOOKED_AT_COUNT: Final = 1_000
"""How many lines are looked at before anything is returned: if none is an event, the input is something else."""
SHOWN_COUNT: Final = 200
"""How many characters of a bad line are kept."""
CODECS: Final = ",".join(
    (
        *(f"org.apache.hadoop.io.compress.{each}Codec" for each in ("Gzip", "Default", "BZip2")),
        "io.airlift.compress.zstd.ZstdCodec",
    )
)
"""Hadoop's own codec of zstd needs a native library that PySpark does not bring; this one is Java, among its jars."""


def read_events(
    spark: SparkSession,
    paths: str | Path | Iterable[str | Path] | None = None,
    *,
    bootstrap_servers: str | None = None,
    topic: str | None = None,
    properties: Mapping[str, str] | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    group: str | None = None,
) -> DataFrame:
    """The lines of event logs, one row for each: the columns of `event_schema()`, `unknown` and `_corrupt`.

    Either files and folders (with all folders in them; patterns such as `logs/*.jsonl.gz`; gzip, bzip2 and zstd by the
    end of the name), or a topic. `since` and `until` bound `at_ms`, and `until` is excluded; a number is milliseconds
    since the epoch. `group` keeps only this group.

    Fields that this version does not know are in `unknown`, as text; so are those of events that it does not know. A
    line that is no event, such as the last one of a writer that died, is a row whose `_corrupt` has its beginning, and
    which no bound leaves out. A compressed file that breaks off is read up to there. `properties` are those of a Java
    consumer.

    Raises:
        EventsError: nothing is there, it may not be read, or it is something else.
        ConnectorMissingError: a topic needs Spark's Kafka connector.
        ConfigError: not one of files and topic, or not a time.
    """
    since_ms, until_ms = _ms(since, "since"), _ms(until, "until")
    if paths is not None and bootstrap_servers is None and topic is None:
        named = [str(each) for each in ([paths] if isinstance(paths, str | Path) else paths)]
        lines, where = _of_files(spark, named), ", ".join(named)
    elif paths is None and bootstrap_servers is not None and topic is not None:
        lines, where = _of_topic(spark, bootstrap_servers, topic, properties, since_ms), f"the topic {topic!r}"
    else:
        raise ConfigError("read_events: give paths, or bootstrap_servers and a topic, and not both")
    events = _parsed(lines)
    _check(events, where)
    return _bounded(events, since_ms, until_ms, group)


def _ms(at: int | datetime | None, name: str) -> int | None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ConfigError(f"{name}={at!r} has no time zone: give one, or milliseconds since the epoch")
        return int(at.timestamp() * 1_000)
    if at is not None and (not isinstance(at, int) or isinstance(at, bool)):
        raise ConfigError(f"{name}={at!r}: a datetime or milliseconds since the epoch are needed")
    return at


def _of_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    """The lines of these files.

    Raises:
        EventsError: there is none, or one may not be read.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    if not paths:
        raise EventsError("no path of an event log was given")
    where = ", ".join(paths)
    try:
        lines = (
            spark.read.option("recursiveFileLookup", "true")
            .option("io.compression.codecs", CODECS)
            .option("ignoreCorruptFiles", "true")
            .text(paths, lineSep="\n")
        )
        files = lines.inputFiles()
        if not files:
            raise EventsError(f"no file is in {where}: does EventLog write there?")
        for file in files:
            _open(spark, file)
    except PySparkException as error:
        raise EventsError(f"{where} cannot be read: {_first_line(error)}") from error
    return lines


def _open(spark: SparkSession, file: str) -> None:
    """Open a file and close it again: Spark would find out in the middle of the job.

    Raises:
        EventsError: it may not be read.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)

    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java: JavaObject = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
    try:
        path.getFileSystem(java.sessionState().newHadoopConf()).open(path).close()
    except Py4JJavaError as error:
        told = str(error.java_exception.getMessage()).splitlines()[0]
        raise EventsError(f"{file} cannot be read: {told}; may this user read it?") from error


def _of_topic(
    spark: SparkSession, servers: str, topic: str, properties: Mapping[str, str] | None, since_ms: int | None
) -> DataFrame:
    """The lines in a topic. A line is written after what it tells, so `since` bounds the records, too."""
    check_connector(spark)
    access = Access.of(servers, "unused", {topic}, properties)
    reader = spark.read.format("kafka").options(**access.spark_options()).option("subscribe", topic)
    if since_ms is None:
        reader = reader.option("startingOffsets", "earliest")
    else:
        reader = reader.option("startingTimestamp", str(since_ms))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    return reader.option("endingOffsets", "latest").load().selectExpr(f"CAST(value AS STRING) AS {LINE}")


def _parsed(lines: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    schema = event_schema()
    known = schema.fieldNames()
    line = F.col(LINE)

    def is_new(name: Column, _: Column) -> Column:
        return ~name.isin(known)

    parsed = lines.where(F.trim(line) != "").select(line, F.from_json(line, schema).alias("read"))
    is_event = F.col("read.event").isNotNull() & F.col("read.at_ms").isNotNull()
    return parsed.select(
        *(F.col(f"read.{name}").alias(name) for name in known),
        F.map_filter(F.from_json(line, "map<string,string>"), is_new).alias(UNKNOWN),
        F.when(~is_event, F.substring(line, 1, SHOWN_COUNT)).alias(CORRUPT),
    )


def _check(events: DataFrame, where: str) -> None:
    """Look at the first lines.

    Raises:
        EventsError: there is none, or none is an event, or they cannot be read.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    try:
        looked_at = events.select(CORRUPT).limit(LOOKED_AT_COUNT).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise EventsError(f"{where} cannot be read: {_first_line(error)}") from error
    if not looked_at:
        raise EventsError(f"no line is in {where}: does EventLog write there?")
    if all(row[CORRUPT] is not None for row in looked_at):
        raise EventsError(
            f"{where} is no event log: none of its first {len(looked_at)} lines is an event. The first one begins with "
            f"{json.dumps(looked_at[0][CORRUPT][:60])}"
        )


def _bounded(events: DataFrame, since_ms: int | None, until_ms: int | None, group: str | None) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    at, is_bad = F.col("at_ms"), F.col(CORRUPT).isNotNull()
    if since_ms is not None:
        events = events.where(is_bad | (at >= since_ms))
    if until_ms is not None:
        events = events.where(is_bad | (at < until_ms))
    if group is not None:
        events = events.where(is_bad | (F.col("group") == group))
    return events


def _first_line(error: BaseException) -> str:
    """What Spark says of an error; of one that it did not translate, the last cause that Java names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:300]
