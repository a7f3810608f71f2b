"""Each row of the table of the draft's rules, by scripted requests: what `static_membership="draft"` does."""

from __future__ import annotations

import pytest

from aiogroup._core.protocol.errors import ErrorCode as E
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup.embedded.machine.refusals import BrokerRefusal
from tests.support.embedded_clients import Machine
from tests.support.static_group import GROUP, HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Scene

LONG_MS = 900_000
LONG = {"registration_ms": LONG_MS}


@pytest.fixture
def scene():
    return Scene()


def numbers(scene):
    return [number for _, number, _ in scene.generations]


# 1: names and ids.


def test_1_each_join_without_an_id_gets_a_new_one(scene):
    a, b = scene.of("A", "B", **LONG)
    assert a.member_id.startswith("A-")
    assert b.member_id.startswith("B-")
    assert a.joined.leader == a.member_id
    again = b.again()
    assert again.member_id not in (a.member_id, b.member_id)
    assert scene.names == ("A", "B")


def test_1_an_empty_name_is_none(scene):
    nobody = scene.process("")
    nobody.join()
    scene.act()
    assert scene.names == ("-",)
    assert nobody.commit(group_instance_id="") == 0


# 2: every join of a name updates the mapping.


def test_2_the_outdated_id_is_refused_everywhere(scene):
    _, b = scene.of("A", "B", **LONG)
    newer = b.again()
    assert b.beat() == E.FENCED_INSTANCE_ID
    assert b.commit() == E.FENCED_INSTANCE_ID
    assert b.leave() == E.FENCED_INSTANCE_ID
    b.lives = True
    b.sync()
    scene.act()
    assert (b.failed, newer.failed) == (E.FENCED_INSTANCE_ID, None)
    assert newer.commit() == 0
    assert scene.generations == []


def test_2_a_second_process_is_told_at_once_while_it_waits_to_be_let_in(scene):
    scene.of("A", **LONG, expansion_ms=60_000)
    first, second = (scene.process("B", **LONG, expansion_ms=60_000) for _ in range(2))
    first.join()
    scene.act()
    second.join()
    scene.act()
    assert (first.failed, second.is_parked) == (E.FENCED_INSTANCE_ID, True)


def test_2_a_second_process_is_told_at_once_while_it_waits_for_its_assignment(scene):
    a, b, c = scene.of("A", "B", "C", **LONG)
    a.lives = False
    for each in (a, b, c):
        each.join()
    b.act(), c.act()  # the leader does not send the assignment yet
    assert scene.state == "CompletingRebalance"
    second = scene.process("B", **LONG)
    second.join()
    b.act()
    assert b.failed == E.FENCED_INSTANCE_ID
    assert scene.state == "CompletingRebalance"
    a.lives = True
    scene.act()
    assert (second.generation, second.share) == (c.generation, b"1"), "the leader knew it under its former id"
    assert len(scene.generations) == 1


def test_2_two_processes_under_one_name_never_take_it_from_each_other_again(scene):
    _, b = scene.of("A", "B", **LONG)
    second = b.again()
    b.lives = True
    scene.at("0:10")
    assert (b.failed, second.failed) == (E.FENCED_INSTANCE_ID, None)
    assert scene.generations == []


# 3: a commit needs both.


def test_3_the_order_of_a_commits_refusals(scene):
    a, b = scene.of("A", "B", **LONG)
    old = {"generation_id_or_member_epoch": 77}
    missing = E.NO_STATIC_MEMBER_INFO_SET
    assert a.commit(group_instance_id=None) == missing
    assert a.commit(group_instance_id="") == missing
    assert a.commit(member_id="") == missing
    assert a.commit(member_id="", group_instance_id=None, generation_id_or_member_epoch=-1) == missing
    assert a.commit(group_instance_id=None, version=6) == missing, "it has no name"
    assert a.commit(group_instance_id="Z", **old) == E.UNKNOWN_MEMBER_ID
    assert a.commit(member_id=b.member_id, **old) == E.FENCED_INSTANCE_ID
    assert a.commit(**old) == E.ILLEGAL_GENERATION
    assert a.commit() == 0


def test_3_in_the_sync_phase_commits_are_refused_last(scene):
    a, b = scene.of("A", "B", **LONG)
    a.lives = False
    a.join()
    b.beat_if_member()
    b.act()
    assert scene.state == "CompletingRebalance"
    assert b.commit() == E.REBALANCE_IN_PROGRESS
    assert b.commit(generation_id_or_member_epoch=0) == E.ILLEGAL_GENERATION


def test_3_a_group_without_members_takes_simple_commits(scene):
    (a,) = scene.of("A", **LONG)
    a.die()
    a.leave()
    nobody = {"member_id": "", "group_instance_id": None, "generation_id_or_member_epoch": -1}
    assert scene.state == "Empty"
    assert a.commit(**nobody) == 0
    assert a.commit() == E.UNKNOWN_MEMBER_ID


# 4, 5, 6: who rejoins.


@pytest.mark.parametrize("with_id", [True, False])
def test_4_5_a_follower_gets_its_share_also_with_another_subscription(scene, with_id):
    a, b = scene.of("A", "B", **LONG)
    share, generation = b.share, b.generation
    b.share = None
    if with_id:
        b.subscription = b"other"
        b.join()
        scene.act()
    else:
        b = b.again(subscription=b"other")
    assert (b.share, b.generation, scene.generations) == (share, generation, [])
    scene.at("0:10")
    assert scene.generations == []
    a.join()
    scene.act()
    known = {each.member_id: bytes(each.metadata) for each in a.joined.members}
    assert known == {a.member_id: b"orders", b.member_id: b"other"}, "it is kept for the next round"


def test_4_a_follower_without_the_groups_assignor_cannot_be_served_from_what_is_stored(scene):
    """The draft does not say this, but its client would refuse an answer with an assignor that it did not offer."""
    scene.of("A", "B", **LONG, protocols=("range", "sticky"))
    b = scene.processes[1].again(protocols=("sticky",))
    scene.act()
    assert (scene.group.protocol, b.joined.protocol_name) == ("sticky", "sticky")
    assert len(scene.generations) == 1


@pytest.mark.parametrize("with_id", [True, False])
def test_6_the_leaders_rejoin_rebalances_under_whatever_id(scene, with_id):
    a, b = scene.of("A", "B", **LONG)
    if with_id:
        a.join()
        scene.act()
    else:
        a = a.again()
    assert len(scene.generations) == 1
    assert a.joined.leader == a.member_id == b.joined.leader
    assert not a.joined.skip_assignment


# 7, 8: offline for too long.


def test_7_heartbeats_are_counted_against_the_registration_and_not_the_session(scene):
    _, b = scene.of("A", "B", **LONG)
    b.die()
    scene.at(LONG_MS - 1)
    assert (scene.names, scene.generations) == (("A", "B"), [])
    scene.at(LONG_MS)
    assert scene.names == ("A",)


def test_7_each_member_has_a_time_out_of_its_own_and_the_first_to_pass_counts(scene):
    a = scene.of("A", **LONG)[0]
    b, c = scene.process("B", registration_ms=600_000), scene.process("C", registration_ms=300_000)
    for each in (b, c):
        each.join()
        scene.pass_ms(HEARTBEAT_MS)
    scene.begin()
    b.die()
    scene.at("0:04")
    c.die()
    c_died_ms = scene.now_ms
    scene.at(c_died_ms + 299_999)
    assert scene.generations == []
    scene.at(c_died_ms + 300_000)
    assert [each[2] for each in scene.generations] == [("A",)], "B was silent for longer than its session: rule 8"
    assert a.generation == scene.group.generation


def test_7_without_the_drafts_fields_the_session_counts(scene):
    _, b = scene.of("A", "B", session_ms=20_000)
    b.die()
    scene.at(19_999)
    assert scene.generations == []
    scene.at(20_000)
    assert scene.names == ("A",)


def test_8_all_silent_members_are_dropped_in_the_same_round_without_a_wait(scene):
    _, b, c, d = scene.of("A", "B", "C", "D", **LONG)
    b.die()
    scene.at("0:05")
    c.die()
    scene.at(LONG_MS)
    assert [each[::2] for each in scene.generations] == [(LONG_MS, ("A", "D"))]
    scene.at("2:00")
    assert len(scene.generations) == 1, "no needless rebalance follows"
    assert d.generation == scene.group.generation


def test_8_a_member_that_answers_in_that_round_stays(scene):
    a, b, c = scene.of("A", "B", "C", **LONG)
    b.die()
    scene.at("0:05")
    c.die()
    a.lives = False  # it sends no more heartbeats, but its session has not ended yet: the round waits for it
    scene.at(LONG_MS - 5_000)
    a.beat()
    scene.at(LONG_MS)
    assert (scene.state, scene.generations) == ("PreparingRebalance", [])
    c = c.again()
    a.lives = True
    scene.act()
    assert scene.names == ("A", "C")
    assert numbers(scene) == [c.generation]


def test_8_the_round_waits_for_the_session_of_a_member_that_fell_silent_just_before(scene):
    _, b, c = scene.of("A", "B", "C", **LONG)
    b.die()
    scene.at(LONG_MS - 4_000)
    c.die()
    heard_ms = scene.group.members.named("C").heard_at_ms - scene.began_ms
    scene.at(heard_ms + SESSION_MS - 1)
    assert (scene.state, scene.generations) == ("PreparingRebalance", [])
    scene.at(heard_ms + SESSION_MS)
    assert [each[::2] for each in scene.generations] == [(heard_ms + SESSION_MS, ("A",))]


# 9, 10, 11: expansion.

SLOW = {**LONG, "expansion_ms": 300_000}


def test_9_later_newcomers_neither_lengthen_nor_shorten_the_count(scene):
    (a,) = scene.of("A", **LONG)
    for at, name, expansion_ms in (("0:00", "B", 300_000), ("0:01", "C", 3_600_000), ("0:02", "D", 1_000)):
        scene.at(at)
        scene.process(name, **LONG, expansion_ms=expansion_ms).join()
    scene.at("0:04:59.999")
    assert (scene.state, scene.generations, a.commit()) == ("Stable", [], 0)
    scene.at("0:05:00.000")
    assert [each[2] for each in scene.generations] == [("A", "B", "C", "D")]


def test_9_a_name_that_joins_again_does_not_count_twice(scene):
    scene.of("A", **LONG)
    b = scene.process("B", **SLOW)
    b.join()
    scene.at("0:04")
    b = b.again()
    scene.at("0:05:00.000")
    assert [each[::2] for each in scene.generations] == [(300_000, ("A", "B"))]
    assert b.generation == scene.group.generation


def test_9_a_newcomer_may_wait_for_longer_than_kafka_lets_it(scene):
    scene.of("A", **LONG)
    b = scene.process("B", **LONG, expansion_ms=3_600_000)
    b.join()
    scene.at("0:59:59.999")
    assert b.is_parked
    scene.at("1:00:00.000")
    assert scene.names == ("A", "B")


def test_9_kafkas_limit_does_not_apply_in_a_long_join_phase(scene):
    (a,) = scene.of("A", **LONG)
    a.lives = False
    newcomer = scene.process("B", **LONG)
    newcomer.rebalance_ms = 900_000
    newcomer.join()
    member_id = scene.group.members.named("B").member_id
    while scene.now_ms < 600_000:
        scene.pass_ms(HEARTBEAT_MS)
        a.beat()
    assert (scene.state, newcomer.is_parked) == ("PreparingRebalance", True)
    assert scene.group.members.named("B").member_id == member_id, "it was never sent away"
    a.lives = True
    scene.act()
    assert scene.names == ("A", "B")


def test_9_the_join_phase_is_bounded_by_the_rebalance_timeout(scene):
    """A member that sends heartbeats but does not rejoin keeps its place, and its partitions by its name."""
    a, b = scene.of("A", "B", **LONG)
    b.lives = False
    newcomer = scene.process("C", **LONG)
    newcomer.join()
    until_ms = scene.now_ms + REBALANCE_MS
    while scene.now_ms < until_ms - 1:
        scene.pass_ms(min(HEARTBEAT_MS, until_ms - 1 - scene.now_ms))
        b.beat()
    assert (scene.state, newcomer.is_parked) == ("PreparingRebalance", True)
    scene.at(until_ms)
    assert [each[2] for each in scene.generations] == [("A", "B", "C")]
    b.lives = True
    scene.pass_ms(HEARTBEAT_MS)
    assert (b.generation, len(scene.generations), b.share) == (a.generation, 1, b"1")


def test_9_the_brokers_property_counts_for_clients_without_the_field():
    scene = Scene(properties={"group.static.expansion.timeout.ms": "60000"})
    scene.of("A")
    scene.process("B").join()
    scene.at(59_999)
    assert scene.generations == []
    scene.at(60_000)
    assert scene.names == ("A", "B")


def test_9_newcomers_go_into_any_round_that_begins(scene):
    a, _ = scene.of("A", "B", **LONG)
    c = scene.process("C", **SLOW)
    c.join()
    scene.at("0:01")
    a.join()
    scene.act()
    assert [each[::2] for each in scene.generations] == [(60_000, ("A", "B", "C"))]
    scene.at("1:00")
    assert len(scene.generations) == 1, "its count is over"


def test_9_a_newcomer_that_an_administrator_removes_no_longer_counts(scene):
    a, _ = scene.of("A", "B", **LONG)
    c = scene.process("C", **SLOW)
    c.join()
    c.lives = False
    assert a.leave(name="C", member_id="") == 0
    scene.at("1:00")
    assert (scene.generations, scene.names) == ([], ("A", "B"))


def test_9_newcomers_need_an_assignor_in_common_with_each_other_too(scene):
    scene.of("A", **LONG, protocols=("range", "sticky"))
    scene.process("B", **SLOW, protocols=("range",)).join()
    c = scene.process("C", **SLOW, protocols=("sticky",))
    c.join()
    with pytest.raises(AssertionError, match="INCONSISTENT_GROUP_PROTOCOL"):
        scene.act()
    c.die()
    scene.at("0:05")
    assert scene.names == ("A", "B")


def test_9_newcomers_take_room_and_a_name_that_comes_back_needs_none():
    scene = Scene(properties={"group.max.size": "2"})
    a = scene.of("A", **LONG)[0]
    scene.process("B", **SLOW).join()
    c = scene.process("C", **SLOW)
    c.join()
    with pytest.raises(AssertionError, match="GROUP_MAX_SIZE_REACHED"):
        scene.act()
    c.die()
    scene.at("0:05")
    assert a.again().generation == scene.group.generation


def test_10_a_newcomer_in_the_sync_phase_starts_a_count_too(scene):
    a, b = scene.of("A", "B", **LONG)
    a.lives = False
    a.join()
    b.beat_if_member()
    assert scene.state == "CompletingRebalance"
    c = scene.process("C", **SLOW)
    c.join()
    assert c.is_parked
    a.lives = True
    scene.act()
    assert (scene.state, scene.names) == ("Stable", ("A", "B"))
    scene.at("0:05")
    assert [each[::2] for each in scene.generations] == [(0, ("A", "B")), (300_000, ("A", "B", "C"))]


def test_10_a_newcomer_that_comes_while_members_rejoin_goes_into_that_round(scene):
    a, b = scene.of("A", "B", **LONG)
    b.lives = False
    a.join()
    assert scene.state == "PreparingRebalance"
    scene.process("C", **SLOW).join()
    b.lives = True
    scene.act()
    assert [each[::2] for each in scene.generations] == [(0, ("A", "B", "C"))]


def test_11_an_empty_group_uses_the_initial_rebalance_delay():
    scene = Scene(properties={"group.initial.rebalance.delay.ms": "3000"})
    scene.process("A", **SLOW).join()
    scene.at(2_000)
    scene.process("B", **SLOW).join()
    scene.at(5_999)
    assert scene.generations == []
    scene.at(6_000)
    assert scene.generations == [(6_000, 1, ("A", "B"))]


def test_11_an_expansions_round_keeps_offline_members_and_does_not_wait_for_them(scene):
    a, b = scene.of("A", "B", **LONG)
    b.die()
    scene.at("0:01")
    scene.process("C", **SLOW).join()
    scene.at("0:06")
    assert [each[::2] for each in scene.generations] == [(360_000, ("A", "B", "C"))]
    b = b.again()
    assert (b.share, b.generation) == (b"1", a.generation)
    scene.at("2:00")
    assert len(scene.generations) == 1


def test_11_an_absent_members_silence_continues_to_count_during_the_round(scene):
    _, b = scene.of("A", "B", **LONG)
    b.die()
    scene.at("0:05")
    scene.process("C", **LONG).join()
    scene.at(LONG_MS - 1)
    assert scene.names == ("A", "B", "C")
    scene.at(LONG_MS)
    assert scene.names == ("A", "C")


# 12: leaving.


@pytest.mark.parametrize("by_name", [True, False])
def test_12_a_member_that_leaves_frees_its_name_at_once(scene, by_name):
    a, b = scene.of("A", "B", **LONG)
    b.lives = False
    leaver = a if by_name else b
    assert leaver.leave(name="B", **({"member_id": ""} if by_name else {})) == 0
    assert [each[::2] for each in scene.generations] == [(0, ("A",))]
    assert scene.values[-1]["members"].keys() == {"A"}


# 13: the map.


def test_13_the_complete_map_is_written_at_each_stable_state(scene):
    a, b = scene.of("A", "B", registration_ms=900_000, expansion_ms=0)
    topic = scene.cluster.topics.get("static_member_map")
    assert topic.config == {"cleanup.policy": "compact"}
    assert topic.is_internal
    assert [each["generation"] for each in scene.values] == [1, 2]
    ids = {"A": a.member_id, "B": b.member_id}
    assert scene.values[-1] == {
        "version": 41,
        "generation": 2,
        "leader": a.member_id,
        "members": {
            name: {"id": each, "registration_timeout_ms": 900_000, "expansion_timeout_ms": 0}
            for name, each in ids.items()
        },
    }
    b.join()
    scene.act()
    assert len(scene.values) == 2, "nothing has changed"
    again = b.again(registration_ms=600_000)
    assert len(scene.values) == 3
    assert scene.values[-1]["members"]["B"] == {
        "id": again.member_id,
        "registration_timeout_ms": 600_000,
        "expansion_timeout_ms": 0,
    }


def test_13_one_partition_for_each_coordinator_partition():
    scene = Scene(properties={"offsets.topic.num.partitions": "5"})
    topic = scene.cluster.topics.get("static_member_map")
    assert len(topic.partitions) == 5
    scene.of("A", **LONG)
    number = scene.cluster.coordinators.number_of(GROUP)
    assert [each.log.end_offset for each in topic.partitions] == [int(each == number) for each in range(5)]


def test_13_the_next_coordinator_loads_the_map_and_restarts_every_registration(scene):
    _, b = scene.of("A", "B", **LONG)
    b.die()
    scene.at("0:10")
    scene.move()
    assert scene.names == ("A", "B")
    scene.at("0:24:59.999")
    assert scene.generations == []
    scene.at("0:25:00.000")
    assert scene.names == ("A",)


def test_13_names_are_known_from_the_map_alone(scene):
    """Another coordinator knows names only from the map. Without it the same members have no names, and their session
    time-outs count.
    """
    _, b = scene.of("A", "B", **LONG)
    scene.machine.do(lambda cluster, now_ms: cluster.topics.delete(cluster.topics.get("static_member_map"), now_ms))
    scene.move()
    assert scene.names == ("-", "-")
    b.die()
    scene.pass_ms(SESSION_MS)
    assert len(scene.names) == 1


def test_13_the_new_id_of_a_member_that_came_back_outlives_the_coordinator(scene):
    _, b = scene.of("A", "B", **LONG)
    newer = b.again()
    scene.move()
    assert (newer.beat(), newer.commit(), b.beat()) == (0, 0, E.FENCED_INSTANCE_ID)


def test_8_the_loss_of_a_nameless_member_takes_no_static_one_along(scene):
    _, b = scene.of("A", "B", **LONG)
    b.join()  # the first join since the group became stable: it stays static
    scene.act()
    nameless = scene.process(None)
    nameless.join()
    scene.act()
    b.die(), nameless.die()
    scene.pass_ms(SESSION_MS + HEARTBEAT_MS)
    assert scene.names == ("A", "B")


# 14: from static to dynamic and back.


def test_14_a_nameless_join_first_makes_the_next_generation_dynamic(scene):
    a, b, c = scene.of("A", "B", "C", **LONG)
    b.die(), c.die()
    scene.pass_ms(SESSION_MS)
    scene.begin()
    nameless = b.again(name=None)
    assert [each[::2] for each in scene.generations] == [(0, ("-", "-"))], "at once, without those who are absent"
    assert scene.values[-1] is None, "a tombstone"
    assert (a.commit(), a.commit(group_instance_id=None), nameless.commit()) == (0, 0, 0)
    a.die()
    scene.pass_ms(SESSION_MS)
    assert len(scene.names) == 1, "the session counts"


def test_14_there_is_no_expansion_for_nameless_newcomers():
    scene = Scene(properties={"group.static.expansion.timeout.ms": "300000"})
    scene.of("A", **LONG)
    scene.process(None).join()
    scene.act()
    assert scene.names == ("-", "-")


def test_14_names_are_ignored_in_a_dynamic_group(scene):
    scene.process(None).join()
    scene.act()
    first, second = (scene.process("B", **LONG) for _ in range(2))
    for each in (first, second):
        scene.group.form.decided = False  # as if a process without a name had joined since
        each.join()
        scene.act()
    assert scene.names == ("-", "-", "-")
    assert (first.failed, second.failed) == (None, None)


def test_14_a_named_join_first_makes_the_next_generation_static(scene):
    nameless = scene.process(None)
    nameless.join()
    scene.act()
    scene.begin()
    a = scene.process("A", **SLOW)
    a.join()
    scene.at("0:04:59.999")
    assert (scene.generations, a.is_parked, nameless.commit()) == ([], True, 0)
    scene.at("0:05")
    assert [each[2] for each in scene.generations] == [("-", "A")]
    assert nameless.commit() == E.NO_STATIC_MEMBER_INFO_SET
    assert a.commit() == 0
    assert scene.values[-1]["members"].keys() == {"A"}
    nameless.die()
    scene.pass_ms(SESSION_MS)
    assert scene.names == ("A",), "it lives by its session"


def test_14_there_and_back_with_processes_that_keep_their_names(scene):
    """In a dynamic generation the names of running processes are ignored. When one of them joins first, all names
    count.
    """
    a, b = scene.of("A", "B", **LONG)
    visitor = scene.process(None)
    visitor.join()
    scene.act()
    assert scene.names == ("-", "-", "-")
    visitor.die()
    visitor.leave()
    assert scene.names == ("A", "B"), "the first join since was that of a process with a name"
    share = b.share
    b = b.again()
    assert b.share == share
    assert scene.values[-1]["members"].keys() == {"A", "B"}
    assert a.commit() == b.commit() == 0


def test_14_when_names_count_again_the_process_that_joins_gets_the_shared_name(scene):
    visitor = scene.process(None)
    visitor.join()
    scene.act()
    first, second = (scene.process("B", **LONG) for _ in range(2))
    for each in (first, second):
        scene.group.form.decided = False
        each.join()
        scene.act()
    second.join()
    scene.act()
    visitor.die()
    visitor.leave()
    scene.pass_ms(SESSION_MS)
    assert (first.failed, second.failed) == (E.FENCED_INSTANCE_ID, None)
    assert scene.names == ("B",)


def test_14_the_first_join_decides_and_not_the_second(scene):
    _, b = scene.of("A", "B", **LONG)
    b.join()
    scene.act()
    nameless = scene.process(None)
    nameless.join()
    scene.act()
    assert scene.names == ("-", "A", "B")
    assert nameless.commit() == E.NO_STATIC_MEMBER_INFO_SET


# 15, 16, and what ApiVersions says.


def test_15_an_old_join_has_no_name(scene):
    a = scene.process("A", join_version=4)
    a.join()
    scene.act()
    assert (scene.names, a.commit(version=6)) == (("-",), 0)
    a.die()
    scene.pass_ms(SESSION_MS)
    assert scene.state == "Empty"


def test_16_a_rebalance_by_force(scene):
    _, b, c = scene.of("A", "B", "C", **LONG)
    c.die()
    scene.pass_ms(SESSION_MS)
    scene.begin()
    scene.rebalance()
    assert [each[::2] for each in scene.generations] == [(0, ("A", "B", "C"))], "who is offline keeps its place"
    assert b.commit() == 0
    with pytest.raises(BrokerRefusal, match="there is no group nobody"):
        scene.machine.do(lambda cluster, now_ms: cluster.coordinators.rebalance("nobody", now_ms))


@pytest.mark.parametrize("form", ["draft", "kafka"])
def test_api_versions_lists_the_feature_in_the_drafts_mode_alone(form):
    machine = Machine(static_membership=form)
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for version in (3, 4):
        answer = machine.client().ask(asked, version)
        found = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        final = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        expected = (41, 41) if form == "draft" else None
        assert found.get("static.membership.draft") == final.get("static.membership.draft") == expected
    assert (machine.cluster.topics.get("static_member_map") is not None) == (form == "draft")


def test_what_belongs_to_the_draft_is_refused_elsewhere():
    with pytest.raises(BrokerRefusal, match="belongs to static_membership='draft'"):
        Machine(properties={"group.static.expansion.timeout.ms": "1"})
    with pytest.raises(BrokerRefusal, match="it is kafka, or draft"):
        Machine(static_membership="released")


def test_the_coordinator_that_loads_says_nothing_of_names(scene):
    _, b = scene.of("A", "B", **LONG)
    scene.machine.do(lambda cluster, now_ms: cluster.coordinators.move(GROUP, 2, 5_000, now_ms))
    scene.machine.pass_ms(5_000)
    assert b.beat() == 0
    (group,) = scene.machine.client(2).ask(DescribeGroupsRequest(groups=(GROUP,))).groups
    assert sorted(each.group_instance_id for each in group.members) == ["A", "B"]


def test_a_static_leader_that_does_not_sync_keeps_its_place_and_another_one_leads(scene):
    a, b = scene.of("A", "B", **LONG)
    a.lives = False
    a.join()
    b.beat_if_member()
    assert scene.state == "CompletingRebalance"
    scene.pass_ms(REBALANCE_MS)
    scene.pass_ms(HEARTBEAT_MS)
    assert (scene.state, scene.names, b.joined.leader) == ("Stable", ("A", "B"), b.member_id)
