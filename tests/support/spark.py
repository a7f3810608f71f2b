"""What the tests of aiogroup.spark share: a session with the connector, a token in the group's commit, what is done."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping

from aiokafka.structs import OffsetAndMetadata

from aiogroup import ConsumerConfig, TopicPartition
from aiogroup.devkafka import jars
from aiogroup.devkafka.errors import DevKafkaError
from aiogroup.recovery import ranges
from aiogroup.recovery.token import HandOffNote, LogId, Token, make_id, second_group_mark, write_committed
from aiogroup.runtime.net.link import Link
from aiogroup.spark import make_session
from aiogroup.spark.errors import JavaMissingError, PySparkMissingError
from aiogroup.spark.session import check_java, check_pyspark
from tests.support.kafka import Place

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # a test is over before C2 pays
}


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
    return make_session(master, jars=jars.spark_jars(), conf=CONF)


async def place_of(place: Place, partition: int = 0) -> LogId:
    """What a token of this partition is bound to."""
    link = Link(ConsumerConfig(bootstrap_servers=place.cluster.bootstrap_servers))
    try:
        cluster = await link.fetch_metadata([place.topic])
    finally:
        await link.wait_closed(link.close())
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
    """Commit for the group what a service commits that leaves these ranges to jobs; the id of its tokens."""
    mark = second_group_mark(second_group or f"{place.group}.catchup")
    token_id = id or make_id(os.urandom(8))
    entries = {}
    for partition, pairs in pending.items():
        spans = ranges.read(pairs)
        note = HandOffNote(mark, read_committed, (1_750_000_000,) * len(spans)) if handed_off else None
        token = Token(token_id, live, 0, spans, note)
        text = write_committed(token, await place_of(place, partition))
        entries[place.tp(partition)] = OffsetAndMetadata(token.pending[0].start, text)
    await commit_explicitly(place, entries)
    return token_id


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
    """A coroutine, from a test that is no coroutine itself: Spark's calls block."""
    return asyncio.run(coroutine)
