"""The picture of docs/order.md is what its script draws, and tells what a merge does."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.merging import World
from tests.support.sources import ROOT


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("order_picture", ROOT / "docs/order_picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_drawn_by_its_script(script):
    assert (ROOT / "docs/order.svg").read_text() == script.picture(), "run python docs/order_picture.py"


@pytest.mark.parametrize("number", range(3))
def test_what_it_shows_is_what_a_merge_does(script, number):
    """The same records at the same instants, handed out in the same order and as late."""
    setting, _, shown = script.ROWS[number]
    world = World(2, int(setting))
    partitions = {"A": 0, "B": 1}
    for owner, at, _ in sorted(script.RECORDS, key=lambda each: each[1]):
        if (owner, at) != ("B", 9) and at <= 6:
            world.produce(partitions[owner], at)  # these are written before anything is read
    given = []
    for world.now_ms in range(1, 20):
        for owner, at, there_at in script.RECORDS:
            if there_at == world.now_ms:
                if at > 6:
                    world.produce(partitions[owner], at)
                world.fetch(partitions[owner], 1)
        given += [("AB"[each.partition], each.timestamp, each.lateness_ms > 0) for each in world.ask()]
    told = [(name[0], int(name[1:].rstrip("!")), name.endswith("!")) for _, name in shown]
    assert given == told
