"""Whole groups on a virtual clock: real consumers, simulated brokers, and a script instead of a seed."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup.embedded import virtual_time
from tests.groups.scripted import Group
from tests.simulation.loop import SimLoop
from tests.support import group_members


def pytest_asyncio_loop_factories():
    return {"simulated": SimLoop}


@pytest.fixture
async def group():
    """Nothing is wrong with it, and nothing happens in it, but what the test does."""
    loop = asyncio.get_running_loop()
    with virtual_time(loop, group_members):
        made = Group(loop)
        yield made
        await made.end()
