"""Fixtures `kafka_cluster` (1 node), `kafka_cluster_3`; the brokers' last words in a failing test's report.

Load it with `pytest_plugins = ["aiogroup.devkafka.pytest_plugin"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from aiogroup.devkafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


_START_MS: Final = 120_000
"""A node that was killed reads the logs of all tests before it: on a busy machine that takes more than a minute."""


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[Cluster]:
    """One node, started when first used, for all tests: use topics and groups of your own."""
    with Cluster(start_timeout_ms=_START_MS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster_3() -> Iterator[Cluster]:
    """Three nodes, started when first used; a test that ends or pauses a node brings it back."""
    with Cluster(nodes=3, start_timeout_ms=_START_MS) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append the log tail of each cluster that the test used."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Cluster):
                report.sections.append((f"Kafka's log: {name}", value.log_tail()))
    return report
