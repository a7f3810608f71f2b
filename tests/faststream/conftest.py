"""What the tests of aiogroup.faststream share: FastStream's brokers on an embedded one, stopped when the test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest


@pytest.fixture
async def make_stream(aiogroup_broker: Any) -> AsyncIterator[Callable[..., Any]]:
    """Make aiogroup's KafkaBroker, or FastStream's own as the control."""
    import faststream.kafka

    import aiogroup.faststream

    made = []

    def make(by: str = "aiogroup", **settings: Any) -> Any:
        home = aiogroup.faststream if by == "aiogroup" else faststream.kafka
        settings.setdefault("graceful_timeout", 0.05)
        made.append(home.KafkaBroker(aiogroup_broker.bootstrap_servers, **settings))
        return made[-1]

    yield make
    for each in made:
        await each.stop()
