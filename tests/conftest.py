"""Plugins and marks for every test. Random order comes from pytest-randomly."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["aiogroup.devkafka.pytest_plugin"]

_KAFKA = Path(__file__).parent / "kafka"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lies in tests/kafka/ runs against real Kafka: `-m "not kafka"` leaves it out."""
    for item in items:
        if _KAFKA in item.path.parents:
            item.add_marker(pytest.mark.kafka)
