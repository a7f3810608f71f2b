"""Reads event logs as a DataFrame: from files, or from a topic."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from aiogroup.errors import ConfigError
from aiogroup.eventlog.columns import Envelope
from aiogroup.spark.access import Access
from aiogroup.spark.liveness.errors import EventsError, first_line
from aiogroup.spark.liveness.schema import CORRUPT, DAMAGE, FILE, HISTOGRAMS, UNKNOWN, event_schema, required
from aiogroup.spark.liveness.stretches import FIELDS, MOST_MS
from aiogroup.spark.reading import check_connector

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["ms_of", "read_events"]

LINE: Final = "value"
PATH: Final = "file_path"
SHOWN_COUNT: Final = 200
"""How many characters of a bad line are kept."""
CODECS: Final = ",".join(
    (
        *(f"org.apache.hadoop.io.compress.{each}Codec" for each in ("Gzip", "Default", "BZip2")),
        "io.airlift.compress.zstd.ZstdCodec",
    )
)
"""Hadoop's own codec for zstd needs a native library that PySpark does not bring. This one is written in Java, and in
PySpark's jars.
"""
COMPRESSED: Final = (".gz", ".deflate", ".bz2", ".zst")
"""The file name suffixes that these codecs read."""
UNREAD: Final = "FAILED_READ_FILE"
"""Spark's name for errors of files."""
LOGGERS: Final = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
PATTERN: Final = re.compile(r"[][{}*?\\]")


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
    """The lines of event logs, one row for each: the columns of `event_schema()`, `unknown`, and the columns about bad
    lines and files.

    They come either from files and folders, or from a topic. Folders are read with all their subfolders, patterns such
    as `logs/*.jsonl.gz` are expanded, and gzip, bzip2 and zstd are known by the suffix. `since` and `until` bound
    `at_ms`, and `until` is excluded; a number is milliseconds since the epoch. `group` keeps only this group.

    Fields that this version does not know are in `unknown`, as text; so are the fields of events that it does not know.
    A line that is no event, such as the last line of a writer that died, becomes a row with its beginning in `_corrupt`
    and its file in `_file`. A file that cannot be read, has no line, or breaks off adds one row, whose `_damage` (and
    `_corrupt`) say what is wrong; the lines before the damage are read. A file or folder that Spark skips because its
    name begins with `_` or `.` adds such a row too. No bound leaves these rows out. `properties` are those of a Java
    consumer.

    Compressed files are read to the end before anything is returned. One that gets damaged afterwards fails the job.

    Raises:
        EventsError: nothing is there, nothing of it can be read, or it holds no events.
        ConnectorMissingError: a topic needs Spark's Kafka connector.
        ConfigError: not exactly one of files and topic is given, or a bound is not a time.
    """
    since_ms, until_ms = ms_of(since, "since"), ms_of(until, "until")
    damages: dict[str, str] = {}
    if paths is not None and bootstrap_servers is None and topic is None:
        named = [str(each) for each in ([paths] if isinstance(paths, str | Path) else paths)]
        where = ", ".join(named)
        lines, damages = _of_files(spark, named)
    elif paths is None and bootstrap_servers is not None and topic is not None:
        lines, where = _of_topic(spark, bootstrap_servers, topic, properties, since_ms), f"the topic {topic!r}"
    else:
        raise ConfigError("read_events: give paths, or bootstrap_servers and a topic, and not both")
    events = _parsed(lines)
    _check(events, where, damages)
    if damages:
        events = events.unionByName(_rows_of(spark, damages), allowMissingColumns=True)
    return _bounded(events, since_ms, until_ms, group)


def ms_of(at: int | datetime | None, name: str) -> int | None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ConfigError(f"{name}={at!r} has no time zone: give one, or milliseconds since the epoch")
        return int(at.timestamp() * 1_000)
    if at is not None and (not isinstance(at, int) or isinstance(at, bool)):
        raise ConfigError(f"{name}={at!r}: a datetime or milliseconds since the epoch are needed")
    return at


def _of_files(spark: SparkSession, paths: list[str]) -> tuple[DataFrame, dict[str, str]]:
    """The lines of these files, and what is wrong with the damaged files.

    Raises:
        EventsError: there is no file, or none can be read.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    if not paths:
        raise EventsError("no path of an event log was given")
    where = ", ".join(paths)
    try:
        lines = _text(spark, paths)
        files = lines.inputFiles()
        left_out = _left_out(spark, paths, files)
    except (PySparkException, Py4JJavaError) as error:
        raise EventsError(f"{where} cannot be read: {first_line(error)}") from error
    if not files:
        also = f"; {_some(left_out)}" if left_out else ""
        raise EventsError(f"no file is in {where}: does EventLog write there?{also}")
    unread = {file: why for file in files if (why := _look(spark, file))}
    with _quiet(spark):
        broken = _broken(spark, [each for each in files if each.endswith(COMPRESSED) and each not in unread])
    damages = {_shown(file): why for file, (why, _) in broken.items()} | {
        _shown(file): why for file, why in unread.items()
    }
    unread |= {file: why for file, (why, is_read) in broken.items() if not is_read}
    if len(unread) == len(files):
        raise EventsError(f"no line is in {where}: {_some(damages | left_out)}")
    if damages:
        whole = [each for each in files if each not in unread and each not in broken]
        partly = [each for each in broken if each not in unread]
        parts = [_text(spark, map(_as_path, each), is_whole=each is whole) for each in (whole, partly) if each]
        lines = parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])
    return lines, damages | left_out


def _text(spark: SparkSession, paths: Iterable[str], *, is_whole: bool = True) -> DataFrame:
    """The lines of these files with their file. A file that breaks off raises if `is_whole`, else it is read up to the
    damage.
    """
    reader = spark.read.option("recursiveFileLookup", "true").option("io.compression.codecs", CODECS)
    lines = reader.option("ignoreCorruptFiles", str(not is_whole).lower()).text([*paths], lineSep="\n")
    return lines.select(LINE, f"_metadata.{PATH}")


def _left_out(spark: SparkSession, paths: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """The files and folders that Spark silently skips because of their names. Empty files and Hadoop's checksums are
    left out.
    """
    jvm, read, counts = spark.sparkContext._jvm, {_shown(file) for file in files}, Counter[str]()
    assert jvm is not None
    for path in map(jvm.org.apache.hadoop.fs.Path, paths):
        system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        for status in system.globStatus(path) or ():
            place = status.getPath()
            is_local = place.toUri().getScheme() == "file"
            root = place.toUri().getPath() if is_local else place.toString()
            for file in _files_of(root) if is_local else _files_in(system, place):
                if file not in read:
                    counts[_topmost(file, root)] += 1
    told = "not read, as Spark leaves out what has a name that begins with _ or ."
    return {name: f"{f'{count:,} files are' if count > 1 else 'is'} {told}" for name, count in counts.items()}


def _files_of(root: str) -> Iterator[str]:
    """The local file `root`, or the local files in the folder `root`."""
    named = [(root, "")] if os.path.isfile(root) else []  # noqa: PTH113 (as os.walk)
    for folder, _, names in os.walk(root, followlinks=True):
        named += ((folder, name) for name in names)
    for folder, name in named:
        file = os.path.join(folder, name) if name else folder  # noqa: PTH118
        if not _is_checksum(file) and os.path.getsize(file):  # noqa: PTH202
            yield file


def _files_in(system: Any, place: Any) -> Iterator[str]:  # noqa: ANN401 (Java's)
    found = system.listFiles(place, True)
    while found.hasNext():
        status = found.next()
        if status.getLen() and not _is_checksum(file := status.getPath().toString()):
            yield file


def _is_checksum(file: str) -> bool:
    name = file.rpartition("/")[2]
    return name.startswith(".") and name.endswith(".crc")


def _topmost(file: str, root: str) -> str:
    """The outermost folder below `root` whose name makes Spark skip the file, or the file itself."""
    parts = file.removeprefix(root).split("/")
    count = next((number for number, part in enumerate(parts, 1) if part.startswith(("_", "."))), len(parts))
    return root + "/".join(parts[:count])


def _look(spark: SparkSession, file: str) -> str:
    """Open a file, so that an error comes before the job starts. Returns why nothing can be read, or ""."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)

    place = urlsplit(file)
    try:
        if place.scheme == "file":
            with open(unquote(place.path), "rb", buffering=0) as local:  # noqa: PTH123 (ten times as fast as Java's)
                is_empty = not local.read(1)
        else:
            jvm, java = spark.sparkContext._jvm, spark._jsparkSession
            assert jvm is not None
            path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
            stream = path.getFileSystem(java.sessionState().newHadoopConf()).open(path)
            is_empty = stream.read() < 0
            stream.close()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except Py4JJavaError as error:
        return f"cannot be read: {str(error.java_exception.getMessage()).splitlines()[0]}"
    return "has no line" if is_empty else ""


def _broken(spark: SparkSession, files: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """Read these files to the end; where that fails, read each half of them. Returns what is wrong with each bad file,
    and whether its beginning can be read.

    Raises:
        EventsError: reading failed, and not because of a file.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    if not files:
        return {}
    try:
        counts = _counted(_text(spark, map(_as_path, files)))
    except (PySparkException, Py4JJavaError) as error:
        if UNREAD not in str(error):
            raise EventsError(f"the files cannot be read: {first_line(error)}") from error
        if len(files) > 1:
            middle = len(files) // 2
            return _broken(spark, files[:middle]) | _broken(spark, files[middle:])
        why = first_line(error)
    else:
        return {each: ("has no line", False) for each in files if _shown(each) not in counts}
    try:
        count = sum(_counted(_text(spark, map(_as_path, files), is_whole=False)).values())
    except (PySparkException, Py4JJavaError):
        count = 0
    return {files[0]: (f"breaks off after {count:,} lines: {why}" if count else f"cannot be read: {why}", count > 0)}


@contextmanager
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from logging each unreadable file with Java's stack: such files are expected here, and reported."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    levels = {name: log4j.LogManager.getLogger(name).getLevel() for name in LOGGERS}
    for name in LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    try:
        yield
    finally:
        for name, level in levels.items():
            log4j.core.config.Configurator.setLevel(name, level)


def _counted(lines: DataFrame) -> dict[str, int]:
    return {_shown(row[PATH]): row["count"] for row in lines.groupBy(PATH).count().collect()}


def _shown(file: str) -> str:
    """A file's path as a person writes it."""
    place = urlsplit(file)
    return unquote(place.path if place.scheme == "file" else file)


def _shown_in_spark() -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    place = F.regexp_replace(PATH, "^file:/+", "/")
    return F.url_decode(F.replace(place, F.lit("+"), F.lit("%2B")))


def _as_path(file: str) -> str:
    """A file as a path for Spark, with the characters escaped that Spark takes for a pattern."""
    return PATTERN.sub(r"\\\g<0>", unquote(file))


def _some(damages: Mapping[str, str]) -> str:
    told = [f"{file} {why}" for file, why in sorted(damages.items())]
    more = f"; and {len(told) - 3} more" if len(told) > 3 else ""
    return "; ".join(told[:3]) + more


def _of_topic(
    spark: SparkSession, servers: str, topic: str, properties: Mapping[str, str] | None, since_ms: int | None
) -> DataFrame:
    """The lines in a topic. A record is never older than the event in it, so `since` bounds the records, too."""
    check_connector(spark)
    access = Access.of(servers, "unused", {topic}, properties)
    reader = spark.read.format("kafka").options(**access.spark_options()).option("subscribe", topic)
    if since_ms is None:
        reader = reader.option("startingOffsets", "earliest")
    else:
        reader = reader.option("startingTimestamp", str(since_ms))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    return (
        reader.option("endingOffsets", "latest")
        .load()
        .selectExpr(f"CAST(value AS STRING) AS {LINE}", f"CAST(NULL AS STRING) AS {PATH}")
    )


def _parsed(lines: DataFrame) -> DataFrame:
    """The columns of lines of JSON.

    A line is parsed once for all fields that the analysis uses. It is parsed again for its histograms, if its text has
    any, and for other fields, if a query uses them. The first parse is the argument of `inline`: if it made a column,
    Spark would copy it into each later filter, once for each field.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)
    from pyspark.sql.types import StructType  # noqa: PLC0415 (an extra)

    schema = event_schema()
    known = schema.fieldNames()
    line = F.col(LINE)

    def read(names: Iterable[str]) -> Column:
        return F.from_json(line, StructType([schema[name] for name in names]))

    def is_new(name: Column, _: Column) -> Column:
        return ~name.isin(known)

    first = [name for name in known if name in FIELDS or name in Envelope.__dataclass_fields__]
    others = [name for name in known if name not in first and name != HISTOGRAMS]
    columns = {
        **{name: F.col(name) for name in first},
        **{name: read(others)[name] for name in others},
        HISTOGRAMS: F.when(line.contains(HISTOGRAMS), read([HISTOGRAMS])[HISTOGRAMS]),
    }
    parsed = lines.where(F.trim(line) != "").select(line, PATH, F.inline(F.array(read(first))))
    is_event = F.col("at_ms").between(0, MOST_MS)
    for name in required():
        is_event = is_event & F.col(name).isNotNull()
    is_event = F.coalesce(is_event, F.lit(False))
    return parsed.select(
        *(columns[name].alias(name) for name in known),
        F.map_filter(F.from_json(line, "map<string,string>"), is_new).alias(UNKNOWN),
        F.when(~is_event, F.substring(line, 1, SHOWN_COUNT)).alias(CORRUPT),
        F.when(~is_event, _shown_in_spark()).alias(FILE),
        F.lit(None).cast("string").alias(DAMAGE),
    )


def _rows_of(spark: SparkSession, damages: Mapping[str, str]) -> DataFrame:
    """A row for each damaged file. It is made of literals, since rows from Python would need Python on the workers."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    rows = [
        F.struct(F.lit(file).alias(FILE), F.lit(why).alias(CORRUPT), F.lit(why).alias(DAMAGE))
        for file, why in sorted(damages.items())
    ]
    return spark.range(1).select(F.inline(F.array(*rows)))


def _check(events: DataFrame, where: str, damages: Mapping[str, str]) -> None:
    """Check that there is at least one event.

    Raises:
        EventsError: there is no line, or none is an event, or they cannot be read.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    try:
        if events.where(events[CORRUPT].isNull()).limit(1).count():
            return
        first, count = events.select(CORRUPT).first(), events.count()
    except (PySparkException, Py4JJavaError) as error:
        raise EventsError(f"{where} cannot be read: {first_line(error)}") from error
    also = f"; {_some(damages)}" if damages else ""
    if first is None:
        raise EventsError(f"no line is in {where}: does EventLog write there?{also}")
    raise EventsError(
        f"{where} is no event log: none of its {count:,} lines is an event. The first one begins with "
        f"{json.dumps(first[CORRUPT][:60])}{also}"
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
