"""Plugins and marks for every test. Random order comes from pytest-randomly."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.sources import forget
from tests.support.workers import make_scheduler

pytest_plugins = ["aiogroup_pytest", "aiogroup.devkafka.pytest_plugin", "tests.support.brokers"]

# What runs in the background of a script ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does, and says nothing about what is tested.
settings.register_profile("aiogroup", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("aiogroup")

_MARKED = {
    Path(__file__).parent / folder: mark
    for folder, mark in {"kafka": "kafka", "simulation": "simulation", "groups": "simulation"}.items()
}


@cache
def _marks_of(path: Path) -> list[str]:
    marks = [name for folder, name in _MARKED.items() if folder in path.parents]
    return [*marks, "spark"] if "kafka" in marks and path.name.startswith("test_spark_") else marks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs real Kafka, and what takes longer than a fast test may because whole groups take part, is marked."""
    for item in items:
        for name in _marks_of(item.path):
            item.add_marker(name)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """What is imported and collected stays: nothing is looked for among it before `pytest_collection_finish`."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def no_trees_left() -> Iterator[None]:
    """What a file's tests read of the sources is gone after the last of them."""
    yield
    forget()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In place of pytest-xdist's own `--dist loadgroup`."""
    return make_scheduler(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """What was imported and collected stays: looked through at every collection, it took a seventh of all the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
