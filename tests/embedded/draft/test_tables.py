"""The draft's two tables, to the millisecond, by scripted requests; also with the coordinator moved between rows."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from tests.support.static_group import Scene, ms

MINUTE = 60_000
REGISTRATION = {"registration_ms": 15 * MINUTE, "expansion_ms": 0}
EXPANSION = {"registration_ms": 30 * MINUTE, "expansion_ms": 5 * MINUTE}


def leader_and(scene, *others, **settings):
    """A stable group whose leader stays alive."""
    leader, *members = (scene.process(name, **settings) for name in ("leader", *others))
    for each in (leader, *members):
        each.join()
        scene.act()
        scene.pass_ms(settings["expansion_ms"] or 1)
    scene.begin()
    assert scene.state == "Stable"
    assert scene.names == tuple(sorted(("leader", *others)))
    return leader, *members


def nothing(_scene):
    """Nothing happens before the table."""


def switches(scene):
    """Switch to a dynamic group and back: first a process without a name joins, and then one with a name."""
    names = scene.names
    visitor = scene.process(None)
    visitor.join()
    scene.act()
    assert set(scene.names) == {"-"}
    visitor.die()
    visitor.leave()
    assert (scene.state, scene.names) == ("Stable", names)
    scene.begin()


BEFORE = pytest.mark.parametrize("before", [nothing, switches])


@BEFORE
def test_scale_down_with_a_registration_of_15_minutes(before):
    scene = Scene()
    leader, a, b = leader_and(scene, "A", "B", **REGISTRATION)
    before(scene)
    n, old_share = scene.group.generation, a.share
    a.die()
    scene.at("0:10")
    b.die()
    scene.at("0:14")
    assert scene.generations == []
    a = a.again()
    assert (a.share, a.joined.generation_id) == (old_share, n)
    scene.at("0:24:59.999")
    assert scene.generations == []
    assert scene.state == "Stable"
    scene.at("0:25:00.000")
    assert scene.generations == [(ms("0:25"), n + 1, ("A", "leader"))]
    scene.at("1:30")
    assert len(scene.generations) == 1
    assert (leader.generation, a.generation) == (n + 1, n + 1)


@pytest.mark.parametrize("after", ["0:00", "0:05", "0:10", "0:12", "0:14", "0:20"])
def test_scale_down_with_the_coordinator_moved_counts_from_the_move(after):
    """A member that was silent at the move gets a whole registration time-out. A member that came back keeps its
    partitions.
    """
    scene = Scene()
    _, a, b = leader_and(scene, "A", "B", **REGISTRATION)
    n, old_share, moved_at = scene.group.generation, a.share, ms(after)

    def go(instant):
        if scene.now_ms < moved_at <= ms(instant):
            scene.at(moved_at)
            scene.move()
        scene.at(instant)

    a.die()
    if not moved_at:
        scene.move()
    go("0:10")
    b.die()
    go("0:14")
    a = a.again()
    assert (a.share, a.generation) == (old_share, n)
    gone_at = max(ms("0:10"), moved_at) + 15 * MINUTE
    go(gone_at - 1)
    assert scene.generations == []
    scene.at(gone_at)
    assert scene.generations == [(gone_at, n + 1, ("A", "leader"))]
    scene.at("2:00")
    assert len(scene.generations) == 1


@BEFORE
def test_scale_up_with_an_expansion_of_5_minutes(before):
    scene = Scene()
    (leader,) = leader_and(scene, **EXPANSION)
    before(scene)
    n = scene.group.generation
    a = scene.process("A", **EXPANSION)
    a.join()
    assert a.is_parked
    scene.at("0:03")
    b = scene.process("B", **EXPANSION)
    b.join()
    assert leader.commit() == 0
    scene.at("0:04:59.999")
    assert (scene.state, scene.generations, leader.commit()) == ("Stable", [], 0)
    scene.at("0:05:00.000")
    assert scene.generations == [(ms("0:05"), n + 1, ("A", "B", "leader"))]
    scene.at("0:06")
    c = scene.process("C", **EXPANSION)
    c.join()
    scene.at("0:10:59.999")
    assert len(scene.generations) == 1
    assert c.is_parked
    scene.at("0:11:00.000")
    assert scene.generations[1:] == [(ms("0:11"), n + 2, ("A", "B", "C", "leader"))]
    scene.at("2:00")
    assert len(scene.generations) == 2
    assert sorted(each.share for each in (leader, a, b, c)) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("after", ["0:01", "0:03", "0:04", "0:05", "0:05:30.000", "0:06", "0:08"])
def test_scale_up_with_the_coordinator_moved_counts_from_the_repeated_joins(after):
    scene = Scene()
    leader_and(scene, **EXPANSION)
    n, moved_at = scene.group.generation, ms(after)

    def come(name):
        scene.process(name, **EXPANSION).join()

    come("A")
    joins, counts_from = [("B", ms("0:03")), ("C", ms("0:06"))], 0
    expected, waiting = [], ["A"]
    for instant in sorted([moved_at, *(at for _, at in joins)]):
        if waiting and counts_from + 5 * MINUTE <= instant:
            expected.append((counts_from + 5 * MINUTE, n + len(expected) + 1))
            waiting = []
        scene.at(instant)
        for name, at in joins:
            if at == instant:
                counts_from = counts_from if waiting else instant
                waiting.append(name)
                come(name)
        if instant == moved_at:
            scene.move()
            counts_from = instant if waiting else counts_from
    if waiting:
        expected.append((counts_from + 5 * MINUTE, n + len(expected) + 1))
        scene.at(counts_from + 5 * MINUTE - 1)
        assert len(scene.generations) == len(expected) - 1
    scene.at("1:00")
    assert [each[:2] for each in scene.generations] == expected
    assert scene.names == ("A", "B", "C", "leader")


def test_scale_down_with_two_processes_under_one_name():
    """A was not dead, only silent. Its successor has the name and the partitions, and A is told so at its next
    heartbeat.
    """
    scene = Scene()
    _, a, b = leader_and(scene, "A", "B", **REGISTRATION)
    n = scene.group.generation
    a.die()
    scene.at("0:10")
    b.die()
    scene.at("0:14")
    successor = a.again()
    a.lives = True
    scene.at("0:20")
    assert (a.failed, successor.failed, scene.generations) == (E.FENCED_INSTANCE_ID, None, [])
    scene.at("0:24:59.999")
    assert scene.generations == []
    scene.at("1:30")
    assert scene.generations == [(ms("0:25"), n + 1, ("A", "leader"))]


def test_scale_up_with_two_processes_under_one_name():
    scene = Scene()
    leader_and(scene, **EXPANSION)
    n = scene.group.generation
    processes = {}
    for at, name in (("0:00", "A"), ("0:03", "B"), ("0:04", "A"), ("0:06", "C"), ("0:10", "C")):
        scene.at(at)
        former, processes[name] = processes.get(name), scene.process(name, **EXPANSION)
        processes[name].join()
        scene.act()
        assert former is None or former.failed == E.FENCED_INSTANCE_ID
    scene.at("1:30")
    assert scene.generations == [
        (ms("0:05"), n + 1, ("A", "B", "leader")),
        (ms("0:11"), n + 2, ("A", "B", "C", "leader")),
    ]
    assert {each.generation for each in processes.values()} == {n + 2}
