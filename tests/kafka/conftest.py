"""What the tests on Kafka share, on the embedded broker or on real Kafka."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from aiogroup.devkafka import Cluster
from tests.support.brokers import EmbeddedCluster, is_real, scope_of_cluster, skip_without_jars
from tests.support.kafka import Place
from tests.support.nodes import bring_back
from tests.support.programs import Running
from tests.support.spark import start_spark, why_no_spark
from tests.support.workers import by_one_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    AnyCluster = Cluster | EmbeddedCluster


START_MS = 120_000
"""A node that was killed reads the logs of all earlier tests, which takes more than a minute on a busy machine."""


USERS = {"alice": "s3cret-of-alice", "mallory": "s3cret-of-mallory"}
"""The accounts of the fixture `secure`."""


if os.environ.get("EVENT_LOOP") == "uvloop":

    def pytest_asyncio_loop_factories():
        """All tests of this folder on uvloop, in place of asyncio's own event loop."""
        import uvloop

        return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """A name for a topic or a group that no other test of the shared cluster uses."""
    return lambda prefix: f"{prefix}-{uuid4().hex[:8]}"


@pytest.fixture
def group(unique_name: Callable[[str], str]) -> str:
    return unique_name("group")


@pytest.fixture(scope="session")
def spark_session():
    """One Spark session for all tests of a process; where there is no Spark, the summary says why."""
    if why := why_no_spark():
        pytest.skip(why)
    session = start_spark()
    yield session
    session.stop()


@pytest.fixture(scope="session", params=by_one_worker("java_tools"))
def java_tools(pytestconfig: pytest.Config):
    """Kafka's own tools, in one JVM for all tests."""
    if not is_real(pytestconfig):
        skip_without_jars()
    pytest.importorskip("py4j", reason="comes with PySpark")
    from tests.support.one_jvm import one_jvm

    with one_jvm() as jvm:
        yield jvm


@pytest.fixture
def spark(spark_session):
    """The session. PySpark leaves sockets to the garbage collector, which warns: here, and not in another test."""
    yield spark_session
    gc.collect()


@pytest.fixture
def is_gone() -> Callable[[int], bool]:
    """Whether a process has ended; a zombie, which waits only to be reaped, has."""

    def ask(pid: int) -> bool:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.strip()
        return not state or state.startswith("Z")

    return ask


@pytest.fixture
def make_place(kafka_cluster: Cluster, unique_name: Callable[[str], str]) -> Callable[..., Place]:
    """Make a topic with so many partitions, and name a group that nobody else uses.

    Nothing is deleted by its time: every five minutes Kafka looks for records older than a week, and some tests write
    records of the first second of 1970.
    """

    def make(partitions: int = 1, **topic_settings: str) -> Place:
        place = Place(kafka_cluster, unique_name("topic"), unique_name("group"), partitions)
        kafka_cluster.create_topic(place.topic, partitions, config={"retention.ms": "-1", **topic_settings})
        return place

    return make


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    with ExitStack() as stack:

        def start(place: Place, *command: str, **variables: str) -> Running:
            running = Running(place, tmp_path / f"{len(list(tmp_path.iterdir()))}.log", *command, **variables)
            stack.callback(running.close)
            return running

        yield start


@pytest.fixture(scope="session")
def make_cluster(pytestconfig: pytest.Config) -> Callable[..., AnyCluster]:
    """A cluster of one's own, of the broker that the tests run on."""
    if is_real(pytestconfig):
        return lambda **settings: Cluster(start_timeout_ms=START_MS, **settings)
    return EmbeddedCluster


@pytest.fixture(scope=scope_of_cluster)
def kafka_cluster_3(make_cluster: Callable[..., AnyCluster]) -> Iterator[AnyCluster]:
    """Three nodes whose leaders send a reader that names its rack to the follower in that rack."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with make_cluster(nodes=3, properties={"replica.selector.class": selector}) as cluster:
        yield cluster


@pytest.fixture(scope=scope_of_cluster)
def breakable_cluster(make_cluster: Callable[..., AnyCluster]) -> Iterator[AnyCluster]:
    with make_cluster() as cluster:
        yield cluster


@pytest.fixture
async def cluster_1(breakable_cluster: Cluster) -> AsyncIterator[Cluster]:
    """One node that a test may stop, kill or freeze: it serves again when the test is over."""
    yield breakable_cluster
    await asyncio.to_thread(bring_back, breakable_cluster)


@pytest.fixture(scope="session", params=by_one_worker("accounts"))
def secure() -> Iterator[Cluster]:
    """One node with accounts, and a topic `secured` with the records 0, 1, 2.

    Alice and whoever connects without an account may do all, mallory nothing. A test that stops the node starts it.
    """
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    with Cluster(security="SASL_SSL", users=USERS, properties=properties, start_timeout_ms=START_MS) as cluster:
        cluster.create_topic("secured", 1)
        asyncio.run(Place(cluster, "secured", "").produce(range(3)))
        yield cluster


@pytest.fixture
async def cluster_3(kafka_cluster_3: Cluster) -> AsyncIterator[Cluster]:
    """Three nodes for a test that stops, kills or freezes some: all serve again when it is over."""
    yield kafka_cluster_3
    await asyncio.to_thread(bring_back, kafka_cluster_3)
