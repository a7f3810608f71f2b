"""Many simulations by seed, and whether a seed is all that they depend on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from unittest import mock

import pytest

from tests.simulation.__main__ import MESSAGE, lines, run_one
from tests.simulation.loop import Process
from tests.simulation.member import STYLES, sleep_ms
from tests.simulation.world import LANES_FROM, LATEST_FROM, World, simulate
from tests.support.effort import third
from tests.support.sources import ROOT

SEEDS = third(300)
MORE_SEEDS = third(60)
ONCE_FAILED = (755, 804, 1484, 1552, 2714, 3944, 4442, 5024, 5354, 5394, 7854, 1001062, 1001335, 2000458)
BLOCK = 10
TAIL = 80


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, BLOCK),
        *range(LANES_FROM, LANES_FROM + MORE_SEEDS, BLOCK),
        *range(LATEST_FROM, LATEST_FROM + MORE_SEEDS, BLOCK),
    ],
)
def test_what_must_hold_holds_in_every_simulation(first):
    for seed in range(first, first + BLOCK):
        world = simulate(seed)
        if world.checker.violations:
            told = list(lines(world))
            at = next(index for index, line in enumerate(told) if "VIOLATION" in line)
            before = "\n".join(told[max(0, at - TAIL) : at + 1])
            message = MESSAGE.format(seed=seed, why=world.checker.violations[0])
            pytest.fail(f"{before}\n{message}", pytrace=False)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed_passes(seed):
    assert simulate(seed).checker.violations == []


@pytest.mark.parametrize("seed", [1, 8, 13])
def test_a_simulation_depends_on_its_seed_alone(seed):
    program = f"from tests.simulation.__main__ import run_one; print(run_one({seed})[2])"
    told = {run_one(seed)[2]}
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        told.add(run.stdout.strip())
    assert len(told) == 1


def test_seeds_differ():
    assert len({run_one(seed)[2] for seed in range(4)}) == 4


def test_what_a_dead_process_says_while_it_is_cleared_away_counts_for_nothing():
    """An application that was not told of its cancellation, as by `wait_for` on Python 3.11, asks an ended consumer."""
    asked_again = []

    async def die_with_a_record(member):
        await member.consumer.getone()
        member.is_dead = member.process.is_halted = True
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await sleep_ms(10)  # by then the consumer's tasks have ended, too
            asked_again.append(member)
            await member.consumer.getone()

    async def run(world):
        world.brokers.add_partitions(world.topic, 1)
        world.append()
        member = world.add_member()
        member.settle()
        while not member.is_dead:
            await sleep_ms(100)

    with (
        mock.patch.object(World, "run", run),
        mock.patch.multiple(
            "tests.simulation.member.Member", **{f"_read_{style}": die_with_a_record for style in STYLES}
        ),
    ):
        world = simulate(0)
    assert len(asked_again) == 1
    assert world.checker.violations == []


def test_a_task_that_ends_while_its_process_dies_is_not_waited_for():
    """It waits among what is ready when the process dies, and still runs; what calls back in its context does not."""
    process, ended = Process("m1"), []

    async def end():
        ended.append(process.is_halted)

    def die():
        process.is_halted = True

    async def run(world):
        world.loop.call_soon(lambda: world.spawn(end()), context=process.context)
        world.loop.call_soon(die)
        await sleep_ms(1)
        assert not world.tasks

    with mock.patch.object(World, "run", run):
        world = simulate(0)
    assert ended == [True]
    assert world.checker.violations == []


def test_what_an_application_began_as_its_process_died_is_not_waited_for():
    """Its step was ready when the process died, and still runs. The task that it makes never does."""
    members = []

    async def run(world):
        world.brokers.add_partitions(world.topic, 1)
        members.append(member := world.add_member())
        world.loop.call_soon(die, member)
        world.loop.call_soon(member.begin_intrusion, context=member.process.context)
        await sleep_ms(1)
        assert member.intruding
        assert not world.tasks

    def die(member):
        member.is_dead = member.process.is_halted = True

    with mock.patch.object(World, "run", run):
        world = simulate(0)
    assert len(members) == 1
    assert world.checker.violations == []


def test_time_that_stands_still_is_a_violation():
    """A delay below the resolution of the loop's clock is none: who makes it again and again never ends."""

    async def run(world):
        def again():
            if not world.checker.violations:
                world.loop.call_later(1e-12, again)

        again()
        await sleep_ms(1)

    with mock.patch.object(World, "run", run):
        world = simulate(0)
    assert len(world.checker.violations) == 1
    assert "time has not gone on" in world.checker.violations[0]
