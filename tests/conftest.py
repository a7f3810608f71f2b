"""Plugins and marks for every test. Random order comes from pytest-randomly."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["aiogroup.devkafka.pytest_plugin"]

_MARKED = {
    Path(__file__).parent / folder: mark
    for folder, mark in {"kafka": "kafka", "simulation": "simulation", "groups": "simulation"}.items()
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs real Kafka, and what takes longer than a fast test may because whole groups take part, is marked."""
    for item in items:
        for folder, name in _MARKED.items():
            if folder in item.path.parents:
                item.add_marker(name)
