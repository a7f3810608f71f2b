"""The fixtures `kafka_cluster` (1 node) and `kafka_cluster_3`; a failing test's report has the end of the brokers'
logs.

Load it with `pytest_plugins = ["aiogroup.devkafka.pytest_plugin"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from aiogroup.devkafka.cluster import Cluster
from aiogroup.devkafka.sharing import BorrowedCluster, Lender

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


_START_MS: Final = 120_000
"""The time for a start: a node that was killed reads the logs of all earlier tests, which takes more than a minute on a
busy machine.
"""


_SHARED: Final = "kafka_cluster_shared"
_LENDER: Final = pytest.StashKey[Lender]()
_ADDRESS: Final = "aiogroup_devkafka_address"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_SHARED, "the workers of pytest-xdist share the node of kafka_cluster", type="bool", default=False)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 (xdist's, which need not be installed)
    """In pytest-xdist's controller: tell a worker where it finds the cluster of all workers."""
    if not node.config.getini(_SHARED):
        return
    stash = node.config.stash
    if _LENDER not in stash:
        stash[_LENDER] = Lender(lambda: Cluster(start_timeout_ms=_START_MS))
    node.workerinput[_ADDRESS] = stash[_LENDER].address


def pytest_unconfigure(config: pytest.Config) -> None:
    """In pytest-xdist's controller: end the cluster of all workers."""
    if _LENDER in config.stash:
        config.stash[_LENDER].close()
        del config.stash[_LENDER]


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """One node for all tests, started at its first use: give each test topics and groups of its own.

    With `kafka_cluster_shared = true` in pytest's configuration the workers of pytest-xdist share it. Then it cannot be
    stopped or paused.
    """
    address = getattr(pytestconfig, "workerinput", {}).get(_ADDRESS)
    with Cluster(start_timeout_ms=_START_MS) if address is None else BorrowedCluster(address) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster_3() -> Iterator[Cluster]:
    """Three nodes, started at their first use; a test that stops or pauses a node must bring it back."""
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
