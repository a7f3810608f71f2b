"""Random lives of a merge: arrivals, answers without records, pauses, rebalances, seeks and requests."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from aiogroup._core.delivery import merge, merging
from tests.support.merging import Oracle, World

PARTITIONS = 3

numbers = st.integers(0, PARTITIONS - 1)
times = st.lists(st.integers(0, 12), min_size=1, max_size=5)
steps = st.one_of(
    st.tuples(st.just("produce"), numbers, times),
    st.tuples(st.just("fetch"), numbers, st.integers(0, 4)),
    st.tuples(st.just("hold"), numbers, times),
    st.tuples(st.just("ask"), st.integers(1, 12)),
    st.tuples(st.just("ask"), st.integers(1, 3)),
    st.tuples(st.just("later"), st.integers(1, 12)),
    st.tuples(st.just("pause"), numbers, st.booleans()),
    st.tuples(st.just("revoke"), numbers),
    st.tuples(st.just("assign"), numbers),
    st.tuples(st.just("seek"), numbers, st.integers(0, 6)),
)
scripts = st.tuples(st.sampled_from((-1, 0, 5)), st.lists(steps, max_size=40))


def random_script(seed):
    """A random script without hypothesis, whose import takes a second."""
    dice = random.Random(seed)

    def step():
        number = dice.randrange(PARTITIONS)
        some = [dice.randint(0, 12) for _ in range(dice.randint(1, 5))]
        return dice.choice(
            (
                ("produce", number, some),
                ("fetch", number, dice.randint(0, 4)),
                ("hold", number, some),
                ("ask", dice.randint(1, 12)),
                ("ask", dice.randint(1, 3)),
                ("later", dice.randint(1, 12)),
                ("pause", number, dice.random() < 0.5),
                ("revoke", number),
                ("assign", number),
                ("seek", number, dice.randint(0, 6)),
            )
        )

    return dice.choice((-1, 0, 5)), [step() for _ in range(40)]


def differences(max_idle_ms, script, modules=(merge, merging)):
    """The first difference between the merge and the brute force, `None` if there is none."""
    world, oracle = World(PARTITIONS, max_idle_ms, per_turn=4, modules=modules), Oracle(PARTITIONS, max_idle_ms)
    for at, step in enumerate(script):
        told = _do(world, oracle, step)
        if told is not None:
            return f"step {at} {step}: {told}"
    return None


def _do(world, oracle, step):
    what, *given = step
    if what == "ask":
        mine = [(each.partition, each.offset, each.lateness_ms) for each in world.ask(*given)]
        theirs = oracle.ask(*given)
        if mine != theirs:
            return f"{mine} is not {theirs}"
        return _compare(world, oracle, is_waiting=len(mine) < given[0])
    if what == "later":
        world.now_ms += given[0]
        oracle.now_ms += given[0]
        return None
    number = given[0]
    if what == "assign":
        if number not in oracle.owned:
            for each in (world, oracle):
                each.assign(number)
        return None
    if number not in oracle.owned and what != "produce":
        return None
    if what == "seek":
        given[1] = min(given[1], len(oracle.logs[number]))
    if what in ("produce", "hold"):
        given = [number, *given[1]]
    for each in (world, oracle):
        getattr(each, what)(*given)
    return None


def _compare(world, oracle, *, is_waiting):
    positions = {number: of["position"] for number, of in oracle.owned.items()}
    if world.positions() != positions:
        return f"positions {world.positions()} are not {positions}"
    for name, mine, theirs in (
        ("enforced", world.rule.enforced_count, oracle.enforced),
        ("late", world.rule.late_count, oracle.late),
        ("stream time", world.rule.max_time, oracle.stream_time),
    ):
        if mine != theirs:
            return f"{name} {mine} is not {theirs}"
    if is_waiting and world.states() != oracle.waiting:
        return f"waits for {world.states()} and not {oracle.waiting}"
    if world.committable() != oracle.committable():
        return f"committable {world.committable()} is not {oracle.committable()}"
    in_hand = {name.partition: count for name, count in world.delivery.in_hand().items()}
    theirs = {} if oracle.in_hand is None else {oracle.in_hand: 1}
    return None if in_hand == theirs else f"in hand {in_hand} is not {theirs}"
