"""Which broker the tests in tests/kafka use: the embedded one, or Kafka itself with `--broker real`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from aiogroup.devkafka import Cluster, jars, jvm
from aiogroup.embedded import Broker
from aiogroup.embedded.machine.logs.batches import header_of
from tests.support.brokers_differ import JUDGED, ONLY_REAL, THOROUGH
from tests.support.workers import by_one_worker

OPTION = "--broker"
DEAR = {"kafka_cluster_3": "three_nodes", "breakable_cluster": "breakable_node"}
"""Fixtures with a cluster of their own, which only one worker of pytest-xdist starts if it is real."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION,
        choices=("embedded", "real"),
        default="embedded",
        help="the broker of tests/kafka: embedded (no Java; leaves out what runs on real Kafka alone) or real",
    )


def is_real(config: pytest.Config) -> bool:
    return bool(config.getoption(OPTION) == "real")


def scope_of_cluster(fixture_name: str, config: pytest.Config) -> str:
    """The scope of a fixture that gives a cluster: a real one serves the whole run, an embedded one a single test."""
    return "session" if is_real(config) else "function"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if is_real(metafunc.config):
        for fixture, worker in DEAR.items():
            if fixture in metafunc.fixturenames:
                metafunc.parametrize(fixture, by_one_worker(worker), indirect=True, scope="session")


def found_in(listed: dict[str, str], item: pytest.Item) -> str | None:
    """Why the test is listed: the entry of its file, of its function, or of its function with parameters."""
    file = item.path.name
    function = f"{file}::{getattr(item, 'originalname', item.name)}"
    return listed.get(file) or listed.get(function) or listed.get(f"{file}::{item.name}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if why := found_in(ONLY_REAL, item):
            item.add_marker(pytest.mark.real_kafka(why))
            if not is_real(config):
                item.add_marker(pytest.mark.skip(f"only on real Kafka: {why}"))
        elif why := found_in(JUDGED, item):
            item.add_marker(pytest.mark.real_kafka(why))
        if found_in(THOROUGH, item):
            item.add_marker(pytest.mark.thorough)


def skip_without_jars() -> None:
    """Skip tests that need Kafka's jars if these were not fetched. Tests on the embedded broker need none and do not
    fetch them.
    """
    if not (jars.cache_dir() / f"kafka-{jars.KAFKA_VERSION}.json").exists():
        pytest.skip("needs Kafka's jars: python -m aiogroup.devkafka fetch")


class EmbeddedCluster(Broker):
    """An embedded broker with the calls of a cluster of devkafka."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._tools: list[subprocess.Popen[Any]] = []

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = 1, *args: Any, **settings: Any
    ) -> None:
        """Create a topic with one replica unless more are asked for, as a devkafka cluster does."""
        super().create_topic(name, partitions, replication_factor, *args, **settings)

    def java(self, main_class: str, *arguments: str, **popen: Any) -> subprocess.Popen[Any]:
        """Run a tool of Kafka's jars until the broker is closed. If the jars were not fetched, the test is skipped."""
        skip_without_jars()
        popen.setdefault("stdin", subprocess.DEVNULL)
        tool = subprocess.Popen(jvm.tool(main_class, *arguments), **popen)
        self._tools.append(tool)
        return tool

    def codecs(self, topic: str) -> set[int]:
        """The codecs of the batches in a topic's first partition, by the protocol's numbers."""
        return self._call(
            lambda _now_ms: {header_of(each).codec for each in self._topic(topic).partitions[0].log.batches()}
        )

    def close(self) -> None:
        super().close()
        for tool in self._tools:
            tool.kill()
            tool.wait()
        bugs = [str(each) for each in self.troubles if each.refusal.name == "bug"]
        assert not bugs, "\n".join(bugs)


def clean(cluster: Cluster | EmbeddedCluster, topic: str) -> None:
    """Compact the topic. The embedded broker does it when asked; Kafka's cleaner runs by itself."""
    if isinstance(cluster, EmbeddedCluster):
        cluster.compact(topic)


@pytest.fixture(scope=scope_of_cluster)
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster | EmbeddedCluster]:
    """One node: a real one for all tests (devkafka's fixture of this name), or an embedded one for each."""
    if is_real(request.config):
        yield request.getfixturevalue("kafka_cluster")  # devkafka's fixture, which this one overrides
    else:
        with EmbeddedCluster() as cluster:
            yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Append each embedded broker's refusals and last requests to the report."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, EmbeddedCluster):
                report.sections.append((f"the embedded broker: {name}", value.log_tail()))
    return report
