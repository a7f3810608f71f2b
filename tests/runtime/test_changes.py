"""Who wakes for which change."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup._core.changes import WAKES, Change, Changes, Waiter
from aiogroup._runtime.loop.clock import Signal


def test_every_change_wakes_somebody_and_everybody_is_woken_by_something():
    assert list(WAKES) == list(Change)
    assert all(WAKES.values())
    assert {waiter for woken in WAKES.values() for waiter in woken} == set(Waiter)


@pytest.mark.parametrize("change", Change, ids=lambda each: each.name)
async def test_a_change_wakes_those_of_its_row_once_and_in_its_order(change):
    changes, woken = Changes(Signal), []

    async def wait(waiter):
        await changes[waiter].wait()
        woken.append(waiter)

    tasks = [asyncio.create_task(wait(each)) for each in Waiter]
    await asyncio.sleep(0)
    changes.tell(change)
    changes.tell(change)
    await asyncio.sleep(0)
    assert woken == list(WAKES[change])
    for each in tasks:
        each.cancel()


def test_without_a_consumer_nobody_hears_of_a_change():
    silent = Changes.silent()
    for each in Change:
        silent.tell(each)
