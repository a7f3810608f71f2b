"""Shared by tests of aiogroup.spark: a session with the connector, a token in the group's commit, and what is done."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiokafka.structs import OffsetAndMetadata

from aiogroup import ConsumerConfig, TopicPartition
from aiogroup._core.recovery import ranges
from aiogroup._core.recovery.token import HandOffNote, LogId, Token, make_id, second_group_mark, write_token
from aiogroup._runtime.net.link import Link
from aiogroup.admin import GroupMember, list_members
from aiogroup.devkafka import jars
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.errors import GroupNotFoundError
from aiogroup.spark import make_session
from aiogroup.spark.errors import JavaMissingError, PySparkMissingError
from aiogroup.spark.session import check_java, check_pyspark
from tests.support.kafka import Place

ROOT = Path(__file__).parents[2]
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a test is over before C2 pays
TRAINING_S = 600
TABLE_JARS = {
    "4.0": (
        "io.delta:delta-spark_2.13:4.0.0",
        "io.delta:delta-storage:4.0.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    ),
    "4.1": (
        "io.delta:delta-spark_4.1_2.13:4.1.0",
        "io.delta:delta-storage:4.1.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    ),
}
"""By Spark's version: each of both is built for one."""


def conf_of(java_options: str) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
    }


def java_options() -> str:
    """Java's options. Spark's classes come from an archive, so that a session starts in half the time. If the archive
    does not fit, Java goes on without it; its message about that is silenced, since tests compare the output.
    """
    return f"{JAVA_OPTIONS} -XX:SharedArchiveFile={class_archive()} -Xshare:auto -Xlog:disable"


def conf() -> dict[str, str]:
    """The settings of a session, and of the command."""
    return conf_of(java_options())


@cache
def class_archive() -> Path:
    """The archive of Spark's classes, parsed and verified (JEP 350), made once for each version of Java and PySpark."""
    spark, home = find_spec("pyspark"), os.environ.get("JAVA_HOME")
    assert spark is not None
    assert spark.origin is not None
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "")
    jars_of_spark = Path(spark.origin).parent / "jars"
    parts = (java.resolve(), java.resolve().stat().st_mtime, jars_of_spark, jars_of_spark.stat().st_mtime)
    path = jars.cache_dir() / f"spark-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers may get here at once
        if not path.exists():
            draft = path.with_suffix(".draft")
            draft.unlink(missing_ok=True)
            command = [sys.executable, "-m", "tests.support.spark", str(draft)]
            # Java writes the archive after Python has ended. It holds the other end of the pipe too, so `run` waits for
            # it.
            subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, timeout=TRAINING_S, check=True)
            draft.replace(path)
    return path


def train(archive: str) -> None:
    """Use Spark as tests do. Its Java writes the archive when it ends."""
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    session = make_session("local[2]", jars=jars.spark_jars(), conf=conf_of(options))
    with tempfile.TemporaryDirectory() as folder:
        session.range(100).selectExpr("id", "id % 2 AS rest").where("id > 5").write.partitionBy("rest").parquet(
            f"{folder}/out"
        )
        assert session.read.parquet(f"{folder}/out").count() == 94
    session.stop()


def why_no_spark() -> str:
    """Why Spark cannot be tested here; "" where it can."""
    try:
        check_pyspark()
        check_java()
        jars.spark_jars()
    except (PySparkMissingError, JavaMissingError, DevKafkaError) as error:
        return str(error)
    return ""


def start_spark(master: str = "local[2]"):
    return make_session(master, jars=jars.spark_jars(), conf=conf())


def table_jars() -> list[Path]:
    """The jars of Delta and Iceberg for the Spark that is installed."""
    of_spark = version("pyspark").rpartition(".")[0]
    if of_spark not in TABLE_JARS:
        pytest.skip(f"Delta and Iceberg have no jar for Spark {of_spark}, or TABLE_JARS does not name it")
    return jars.fetched(f"lake-tables-{of_spark}", [*TABLE_JARS[of_spark]])


def start_spark_with_tables(lake: Path):
    """Start a session with Delta and Iceberg. Iceberg's catalog `lake` has its tables in this folder."""
    tables = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",  # the default is 50 tasks for each read of a small table
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(lake),
    }
    return make_session("local[2]", jars=[*jars.spark_jars(), *table_jars()], conf={**conf(), **tables})


async def place_of(place: Place, partition: int = 0) -> LogId:
    """The `LogId` to which a token of this partition is bound."""
    async with Link(ConsumerConfig(bootstrap_servers=place.cluster.bootstrap_servers)) as link:
        cluster = await link.fetch_metadata([place.topic])
    return LogId(cluster.cluster_id or "", place.topic, cluster.topics[place.topic].topic_id, partition)


async def leave_behind(
    place: Place,
    pending: Mapping[int, Iterable[tuple[int, int]]],
    live: int,
    id: str = "",  # noqa: A002
    *,
    second_group: str = "",
    read_committed: bool = False,
    handed_off: bool = True,
) -> str:
    """Commit for the group what a service does that leaves these ranges to jobs. Returns the id of its tokens."""
    mark = second_group_mark(second_group or f"{place.group}.catchup")
    token_id = id or make_id(os.urandom(8))
    entries = {}
    for partition, pairs in pending.items():
        spans = ranges.read(pairs)
        note = HandOffNote(mark, read_committed, (1_750_000_000,) * len(spans)) if handed_off else None
        token = Token(token_id, live, 0, spans, note)
        text = write_token(token, await place_of(place, partition))
        entries[place.tp(partition)] = OffsetAndMetadata(token.pending[0].start, text)
    await commit_explicitly(place, entries)
    return token_id


async def members_of(place: Place) -> tuple[GroupMember, ...]:
    """The members of the second commit log's group, which the join of a driver creates."""
    try:
        return await list_members(f"{place.group}.catchup", bootstrap_servers=place.cluster.bootstrap_servers)
    except GroupNotFoundError:
        return ()


def explode_at_5(frame) -> None:
    """A function for `--foreach` that fails for one record."""
    if any(row.offset == 5 for row in frame.collect()):
        raise ValueError("offset 5 is no good")


async def commit_explicitly(place: Place, entries: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    async with place.unsubscribed(enable_auto_commit=False) as consumer:
        consumer.assign(list(entries))
        await consumer.commit(dict(entries))


def explode(frame: object) -> None:
    """A function for `--foreach` that fails."""
    raise ZeroDivisionError("this is\nno good")


def access(place: Place) -> dict[str, object]:
    return {"bootstrap_servers": place.cluster.bootstrap_servers, "group_id": place.group, "topics": place.topic}


def run(coroutine):
    """Run a coroutine from a test that is not a coroutine, since Spark's calls block."""
    return asyncio.run(coroutine)


if __name__ == "__main__":
    train(*sys.argv[1:])


def explode_on_a_worker(frame):
    """For `--foreach`: an error in a function that Spark calls in a process of its own."""
    from pyspark.sql import functions as F  # noqa: N812

    @F.udf
    def amount(value):
        raise ValueError("the amount is no number")

    frame.select(amount("value")).collect()
