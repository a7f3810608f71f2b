"""The checker's rule on two members that are given records of one partition: which of them it holds against whom."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aiogroup.records import LIVE
from tests.simulation.checker import Checker, Ownerships

TP = TopicPartition("orders", 3)
BOUND_MS = 9_000


class Scene:
    """Two processes of one static name: `old` is replaced by `new`. Instants are in milliseconds."""

    def __init__(self):
        self.now_ms = 0
        self.checker = Checker(self, lambda *_: None)
        self.checker.is_exact = False
        self.checker.both_give_ms = BOUND_MS
        self.views = {name: Ownerships(self.checker, name) for name in ("old", "new")}

    def time(self):
        return 1_000 + self.now_ms / 1000

    def grant(self, name, at_ms, code=ErrorCode.NONE):
        self.now_ms = at_ms
        process = SimpleNamespace(name=name)
        request = SyncGroupRequest(group_id="billing", generation_id=2, member_id=name)
        self.checker.on_answers([(process, request, SyncGroupResponse(error_code=code))])

    def assign(self, name, at_ms):
        self.now_ms = at_ms
        self.views[name].assigned({TP})

    def give(self, name, *instants_ms):
        for self.now_ms in instants_ms:
            view = self.views[name]
            view.moved(TP)
            view.delivered(SimpleNamespace(topic=TP.topic, partition=TP.partition, offset=0, timestamp=0, lane=LIVE))


@pytest.fixture
def scene():
    scene = Scene()
    scene.grant("old", 0)
    scene.grant("new", 5_000)
    return scene


@pytest.fixture(params=[100, 5_800], ids=["before it is replaced", "after the other was"])
def told(scene, request):
    """The application of the old one is told of the partition at this instant, and that of the new one at 5,200."""
    for name, at_ms in sorted({"old": request.param, "new": 5_200}.items(), key=lambda each: each[1]):
        scene.assign(name, at_ms)
    return scene


def test_who_replaced_another_reads_on_after_that_one_was_fenced(told):
    """The old process froze, or was in its callback: its first records come when the new one has its own already."""
    told.give("new", 5_900)
    told.give("old", 6_000, 6_400)  # then a heartbeat is answered with FENCED_INSTANCE_ID
    told.give("new", 6_500, 30_000)
    assert told.checker.violations == []


def test_who_was_replaced_may_not_read_on_past_the_bound(told):
    told.give("new", 5_900)
    told.give("old", 6_000, 5_900 + BOUND_MS)
    assert told.checker.violations == []
    told.give("old", 5_901 + BOUND_MS)
    assert len(told.checker.violations) == 1
    assert "old is given" in told.checker.violations[0]


def test_the_bound_counts_from_a_heartbeat_that_a_loading_coordinator_answered(told):
    told.give("new", 5_900)
    told.now_ms = 12_000
    told.checker.on_blind_answer(SimpleNamespace(name="old"))
    told.give("old", 12_000 + BOUND_MS)
    assert told.checker.violations == []
    told.give("old", 12_001 + BOUND_MS)
    assert len(told.checker.violations) == 1


def test_the_bound_counts_from_the_end_of_a_freeze(told):
    """A process that is frozen hears of nobody who replaces it, and gives nothing either."""
    told.give("new", 5_900)
    told.now_ms = 12_000
    told.checker.thawed_at["old"] = told.time()
    told.give("old", 12_000 + BOUND_MS)
    assert told.checker.violations == []
    told.give("old", 12_001 + BOUND_MS)
    assert len(told.checker.violations) == 1


def test_a_refused_sync_grants_nothing(scene):
    """Who was replaced and asks again stays the one that was replaced."""
    scene.grant("old", 5_100, ErrorCode.FENCED_INSTANCE_ID)
    scene.assign("new", 5_200)
    scene.assign("old", 5_800)
    scene.give("new", 5_900)
    scene.give("old", 5_901 + BOUND_MS)
    assert len(scene.checker.violations) == 1
