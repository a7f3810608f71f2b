"""The checks in front of the coordinator (topics, ids, faults), the groups' log, and lists of groups."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.messages.list_groups import ListGroupsRequest
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiogroup._core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.groups.log import Commit, Committed, GroupLog, Tombstone
from tests.support.embedded_clients import Machine

UNKNOWN_ID = UUID(int=77)


@pytest.fixture
def machine():
    made = Machine()
    for name in ("orders", "bills"):
        made.do(lambda cluster, now_ms, name=name: cluster.topics.create(name, 2, now_ms))
    return made


@pytest.fixture
def client(machine):
    return machine.client()


def topic_id(machine, name):
    return machine.cluster.topics.get(name).topic_id


def commit(*places, version=9, **more):
    """`places` are (topic or its id, partition, offset)."""
    topics = {}
    for topic, partition, offset in places:
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        )
    named = "topic_id" if version >= 10 else "name"
    asked = tuple(OffsetCommitRequestTopic(**{named: topic}, partitions=tuple(each)) for topic, each in topics.items())
    return OffsetCommitRequest(group_id="billing", topics=asked, **more)


def codes(answer):
    return {
        (topic.name or topic.topic_id, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def committed(client, *names, version=9):
    topics = tuple(OffsetFetchRequestTopic(name=name, partition_indexes=(0, 1)) for name in names) or None
    asked = OffsetFetchRequestGroup(group_id="billing", topics=topics)
    (group,) = client.ask(OffsetFetchRequest(groups=(asked,)), version).groups
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.error_code)
        for topic in group.topics
        for each in topic.partitions
        if each.committed_offset >= 0 or each.error_code
    }


def join(client, *, version=9, member_id="", group="billing", session_ms=30_000):
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000 if version else -1,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", b""),),
    )
    return client.ask(request, version)


def enter(client, **more):
    answer = join(client, version=3, **more)
    sync = SyncGroupRequest(
        group_id=more.get("group", "billing"),
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=(SyncGroupRequestAssignment(answer.member_id, b"all"),),
    )
    assert client.ask(sync, 4).error_code == 0
    return answer


def test_only_topics_and_partitions_that_are_there_are_committed(client):
    answer = client.ask(commit(("orders", 0, 5), ("orders", 2, 5), ("nothing", 0, 5)), 9)
    assert codes(answer) == {
        ("orders", 0): 0,
        ("orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert len(answer.topics) == 2, "each topic once"
    assert committed(client) == {("orders", 0): (5, 0)}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["orders 0", "orders 1"], ["orders 0:0", "orders 1:0"]),
        (["orders 0", "nothing 0", "orders 1"], ["nothing 0:3", "orders 0:0 1:0"]),
        (["orders 7", "orders 0", "orders 8", "orders 1"], ["orders 7:3 8:3 0:0 1:0"]),
        (["nothing 0", "nothing 1"], ["nothing 0:3 1:3"]),
        (["orders 0", "bills 0", "orders 1"], ["orders 0:0", "bills 0:0", "orders 1:0"]),
    ],
)
def test_a_topic_that_a_commit_repeats_is_answered_as_by_kafka(client, asked, told):
    """As 4.3.1 answered: one entry for each topic, but only if something is refused before the group is asked."""
    topics = []
    for each in asked:
        name, index = each.split()
        partition = OffsetCommitRequestPartition(partition_index=int(index), committed_offset=1, committed_metadata="")
        topics.append(OffsetCommitRequestTopic(name=name, partitions=(partition,)))
    answer = client.ask(OffsetCommitRequest(group_id="billing", topics=tuple(topics)), 9)
    assert told == [
        " ".join([topic.name, *(f"{each.partition_index}:{int(each.error_code)}" for each in topic.partitions)])
        for topic in answer.topics
    ]


def test_topics_by_id(machine, client):
    orders = topic_id(machine, "orders")
    answer = client.ask(commit((orders, 0, 5), (UNKNOWN_ID, 0, 5), version=10), 10)
    assert codes(answer) == {(orders, 0): 0, (UNKNOWN_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID}
    asked = tuple(OffsetFetchRequestTopic(topic_id=each, partition_indexes=(0,)) for each in (orders, UNKNOWN_ID))
    for topics, found in (
        (asked, {orders: (5, 0), UNKNOWN_ID: (-1, ErrorCode.UNKNOWN_TOPIC_ID)}),
        (None, {orders: (5, 0)}),
    ):
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="billing", topics=topics),))
        (group,) = client.ask(request, 10).groups
        assert {
            each.topic_id: (each.partitions[0].committed_offset, each.partitions[0].error_code) for each in group.topics
        } == found


def test_a_group_is_not_asked_about_unknown_topics(client):
    """As in KafkaApis, which answers before it asks the coordinator, so no answer says that the generation is old."""
    stranger = commit(("nothing", 0, 5), generation_id_or_member_epoch=4, member_id="stranger")
    assert codes(client.ask(stranger, 9)) == {("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    known = commit(("orders", 0, 5), generation_id_or_member_epoch=4, member_id="stranger")
    assert codes(client.ask(known, 9)) == {("orders", 0): ErrorCode.GROUP_ID_NOT_FOUND}


def test_a_commit_of_nothing_makes_no_group(client):
    client.ask(commit(("nothing", 0, 5)), 9)
    assert client.ask(ListGroupsRequest()).groups == ()


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_since_version_5_sync_group_names_the_assignor(client, missing):
    """KIP-559: the name is checked before anything else."""
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    sync = SyncGroupRequest(group_id="", generation_id=0, member_id="", **{**named, missing: None})
    assert client.ask(sync, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.ask(sync, 4).error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_a_deleted_topic_are_forgotten(machine, client):
    client.ask(commit(("orders", 0, 5), ("bills", 1, 6)), 9)
    machine.do(lambda cluster, now_ms: cluster.topics.delete(cluster.topics.get("orders"), now_ms))
    assert committed(client) == {("bills", 1): (6, 0)}
    machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 2, now_ms))
    assert committed(client, "orders") == {}


def test_lost_commits_leave_no_trace(machine, client):
    for offset in (1, 2, 3):
        client.ask(commit(("orders", 0, offset)), 9)
    client.ask(commit(("bills", 0, 9)), 9)
    machine.do(lambda cluster, now_ms: cluster.coordinators.lose_commits("billing", 2, now_ms))
    assert committed(client) == {("orders", 0): (2, 0)}
    machine.do(lambda cluster, now_ms: cluster.coordinators.lose_commits("billing", 99, now_ms))
    assert committed(client) == {}


def test_members_outlive_lost_commits_if_they_were_stored_before(machine, client):
    member = enter(client)
    own = {"generation_id_or_member_epoch": member.generation_id, "member_id": member.member_id}
    assert codes(client.ask(commit(("orders", 0, 7), **own), 9)) == {("orders", 0): 0}
    machine.do(lambda cluster, now_ms: cluster.coordinators.lose_commits("billing", 1, now_ms))
    beat = HeartbeatRequest(group_id="billing", generation_id=member.generation_id, member_id=member.member_id)
    assert client.ask(beat).error_code == 0
    assert committed(client) == {}


def test_a_fault_without_a_topic_hits_the_whole_commit_once(machine, client):
    fault = Fault("OffsetCommit", ErrorCode.NOT_COORDINATOR, Place(group="billing"))
    machine.cluster.faults.add(fault)
    both = commit(("orders", 0, 5), ("bills", 0, 5))
    assert set(codes(client.ask(both, 9)).values()) == {ErrorCode.NOT_COORDINATOR}
    assert committed(client) == {}
    assert set(codes(client.ask(both, 9)).values()) == {0}
    assert fault.used_count == 1


def test_a_fault_with_a_partition_hits_that_one_alone(machine, client):
    machine.cluster.faults.add(Fault("OffsetCommit", ErrorCode.REQUEST_TIMED_OUT, Place("orders", 1)))
    asked = commit(("orders", 0, 5), ("orders", 1, 5))
    assert codes(client.ask(asked, 9)) == {("orders", 0): 0, ("orders", 1): ErrorCode.REQUEST_TIMED_OUT}
    assert committed(client) == {("orders", 0): (5, 0)}
    machine.cluster.faults.add(Fault("OffsetFetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, Place("orders", 0)))
    assert committed(client, "orders")["orders", 0] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def test_a_commit_that_is_denied_was_made(machine, client):
    machine.cluster.faults.add(Fault("OffsetCommit", ErrorCode.REQUEST_TIMED_OUT, Place("orders", 0), after=True))
    assert codes(client.ask(commit(("orders", 0, 5)), 9)) == {("orders", 0): ErrorCode.REQUEST_TIMED_OUT}
    assert committed(client) == {("orders", 0): (5, 0)}


@pytest.mark.parametrize("after", [False, True])
def test_a_fault_of_a_member_before_and_after_its_join(machine, client, after):
    machine.cluster.faults.add(Fault("JoinGroup", ErrorCode.COORDINATOR_NOT_AVAILABLE, after=after))
    assert join(client, version=3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (group,) = client.ask(DescribeGroupsRequest(groups=("billing",)), 5).groups
    assert len(group.members) == after


def test_the_first_version_of_offset_fetch_says_a_groups_error_at_its_partitions(machine, client):
    machine.cluster.faults.add(Fault("OffsetFetch", ErrorCode.NOT_COORDINATOR, times=2))
    assert committed(client, "orders", version=1) == {
        ("orders", index): (-1, ErrorCode.NOT_COORDINATOR) for index in (0, 1)
    }
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="billing", topics=()),))
    assert client.ask(request, 2).groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("version", "waits_ms"), [(0, 6_000), (1, 30_000)])
def test_11_before_version_1_the_session_is_the_rebalance_timeout_on_the_wire(machine, version, waits_ms):
    a, b = machine.client(), machine.client()
    first = join(a, version=version, session_ms=6_000)
    sync = SyncGroupRequest(group_id="billing", generation_id=1, member_id=first.member_id)
    assert a.ask(sync, 0).error_code == 0
    assert join(b, version=version, session_ms=6_000) is None
    for _ in range(waits_ms // 1_000 - 1):
        machine.pass_ms(1_000)
        beat = HeartbeatRequest(group_id="billing", generation_id=1, member_id=first.member_id)
        assert a.ask(beat).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    machine.pass_ms(999)
    assert b.answer() is None
    machine.pass_ms(1)
    answer = b.answer()
    assert (answer.generation_id, answer.leader) == (2, answer.member_id)
    (group,) = a.ask(DescribeGroupsRequest(groups=("billing",))).groups
    assert [each.client_host for each in group.members] == ["/127.0.0.1"]


@pytest.mark.parametrize("static_membership", ["kafka", "draft"])
@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_a_rebalance_timeout_of_zero_does_not_stop_the_clock(static_membership, rebalance_ms):
    """Nobody rejoins and the static member keeps its place, so the round waits again and again. It must take time."""
    machine = Machine(static_membership=static_membership, properties={"group.min.session.timeout.ms": "100"})
    client = machine.client()
    request = JoinGroupRequest(
        group_id="billing",
        session_timeout_ms=1_000,
        rebalance_timeout_ms=rebalance_ms,
        member_id="",
        group_instance_id="A",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", b""),),
    )
    joined = client.ask(request)
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id="billing",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="A",
        protocol_type="consumer",
        protocol_name="range",
    )
    assert client.ask(sync).error_code == 0, "it may be answered in the same instant"
    machine.do(lambda cluster, now_ms: cluster.coordinators.rebalance("billing", now_ms))
    machine.pass_ms(999)
    assert client.ask(HeartbeatRequest(group_id="other")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    machine.pass_ms(1)
    (group,) = client.ask(DescribeGroupsRequest(groups=("billing",))).groups
    assert (group.group_state, group.members) == ("Empty", ())


def test_groups_are_listed_by_state_and_type(client):
    enter(client)
    client.ask(commit(("orders", 0, 1)), 9)
    simple = commit(("orders", 0, 1))
    client.ask(OffsetCommitRequest(group_id="simple", topics=simple.topics), 9)

    def listed(version=5, **filters):
        return {
            each.group_id: (each.protocol_type, each.group_state, each.group_type)
            for each in client.ask(ListGroupsRequest(**filters), version).groups
        }

    assert listed() == {"billing": ("consumer", "Stable", "classic"), "simple": ("", "Empty", "classic")}
    assert set(listed(states_filter=("stable",))) == {"billing"}
    assert set(listed(types_filter=("Classic",))) == {"billing", "simple"}
    assert listed(types_filter=("consumer",)) == {}
    for version in range(4):
        assert set(listed(version)) == {"billing", "simple"}


def test_a_cut_log_has_its_former_state():
    log = GroupLog()
    seen = [dict(log.offsets)]
    for number in range(30):
        log.append(
            Tombstone((("a", 0),)) if number % 7 == 6 else Commit({("a", number % 3): Committed(number, "", -1)})
        )
        seen.append(dict(log.offsets))
    for position in (29, 20, 7, 0):
        log.cut(position)
        assert (log.offsets, log.end) == (seen[position], position)


def test_a_log_that_is_cut_keeps_what_was_folded():
    log = GroupLog()
    log.append(Commit({("old", 0): Committed(7, "", -1)}))
    for number in range(2 * GroupLog.KEPT):
        log.append(Commit({("a", 0): Committed(number, "", -1)}))
    assert log.start > 0
    log.cut(log.start)
    assert log.offsets["old", 0].offset == 7


def test_a_group_that_commits_for_hours_keeps_a_bounded_log():
    log = GroupLog()
    for number in range(5_000):
        log.append(Commit({("a", 0): Committed(number, "", -1)}))
    assert len(log.entries) < 2 * GroupLog.KEPT
    assert log.end == 5_000
    log.cut(log.position_of_commit(3))
    assert log.offsets["a", 0].offset == 4_996
    with pytest.raises(ValueError, match="cannot be cut"):
        log.cut(0)


HALF_A_CHECK_MS = 300_000


@pytest.mark.parametrize(
    ("retention_ms", "version", "checks"),
    [(-1, 3, None), (0, 2, 1), (-5, 3, 1), (2**63 - 1, 4, 1), (900_000, 4, 2), (3_000, 5, None)],
)
def test_a_commit_expires_after_its_retention_time(machine, client, retention_ms, version, checks):
    """It expires at Kafka's next check. -1 and later versions set no expiry."""
    machine.pass_ms(HALF_A_CHECK_MS)
    asked = commit(("orders", 0, 5), retention_time_ms=retention_ms)
    assert codes(client.ask(asked, version)) == {("orders", 0): 0}
    machine.pass_ms(HALF_A_CHECK_MS - 1)
    kept = {("orders", 0): (5, 0)}
    assert committed(client) == kept
    machine.pass_ms(1)
    assert committed(client) == ({} if checks == 1 else kept)
    machine.pass_ms(600_000)
    assert committed(client) == ({} if checks else kept)
    machine.pass_ms(600_000_000)
    assert committed(client) == ({} if checks else kept)


def test_a_later_commit_or_a_possible_reader_of_the_topic_prevents_expiry(machine, client):
    client.ask(commit(("orders", 0, 5), ("orders", 1, 6), retention_time_ms=1), 4)
    client.ask(commit(("orders", 0, 5)), 4)
    answer = enter(client, session_ms=1_800_000)
    machine.pass_ms(1_200_000)
    assert committed(client) == {("orders", 0): (5, 0), ("orders", 1): (6, 0)}
    client.ask(LeaveGroupRequest(group_id="billing", members=(MemberIdentity(answer.member_id),)), 3)
    machine.pass_ms(600_000)
    assert committed(client) == {("orders", 0): (5, 0)}


def test_a_commit_without_topics_makes_no_group(client):
    assert client.ask(commit(), 9).topics == ()
    assert client.ask(ListGroupsRequest(), 5).groups == ()
    client.ask(commit(("orders", 0, 5)), 9)
    assert [each.group_id for each in client.ask(ListGroupsRequest(), 5).groups] == ["billing"]
