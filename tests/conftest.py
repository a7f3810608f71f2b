"""Plugins and marks for every test. Random order comes from pytest-randomly."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["aiogroup.devkafka.pytest_plugin"]

_MARKED = {Path(__file__).parent / name: name for name in ("kafka", "simulation")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lies in tests/kafka/ runs against real Kafka, what lies in tests/simulation/ takes long: both are marked."""
    for item in items:
        for folder, name in _MARKED.items():
            if folder in item.path.parents:
                item.add_marker(name)
