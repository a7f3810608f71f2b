"""A fault of each kind for each request that a consumer and a producer need: it hits exactly the named place, as often
as asked, and a refused request is not carried out.
"""

from __future__ import annotations

import dataclasses

import pytest

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiogroup._core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from aiogroup.embedded.machine.faults.faults import Fault, Place
from aiogroup.embedded.machine.faults.rules import CUT
from aiogroup.embedded.machine.logs.batches import Record, build
from aiogroup.embedded.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.clients import Clients

PLACES = [("orders", 0), ("orders", 1), ("bills", 0)]
OF_PARTITIONS = ["Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "Metadata"]
OF_GROUPS = ["OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat"]
APIS = [*OF_PARTITIONS, "JoinGroup", "Heartbeat"]
CODE = ErrorCode.REQUEST_TIMED_OUT
ALL_WELL = dict.fromkeys(PLACES, 0)


@pytest.fixture(params=["by name", "by id"])
def world(request):
    return World(by_id=request.param == "by id")


class World:
    """Two nodes, with a client each. The first node leads everything and coordinates."""

    def __init__(self, *, by_id):
        self.by_id = by_id
        self.clients = Clients(nodes=2, properties={"group.initial.rebalance.delay.ms": "0"})
        self.cluster = self.clients.cluster
        topics = self.cluster.topics
        self.topics = [
            topics.create(name, count, self.clients.now_ms, assignments=[(1, 2)] * count)
            for name, count in (("orders", 2), ("bills", 1))
        ]
        for group in ("billing", "shipping"):
            self.clients.control(lambda group=group: self.cluster.coordinators.move(group, 1, 0, self.clients.now_ms))
        self.client = self.clients.connect(1)
        self.other = self.clients.connect(2)

    def fault(self, api, code=CODE, place=None, **settings):
        fault = Fault(api, code, place or Place(), **settings)
        self.cluster.faults.add(fault)
        return fault

    def request(self, api, group="billing"):
        """A request that names all places, and its version."""
        if api == "Produce":
            data = [
                TopicProduceData(each.name, each.topic_id, self._each(each, lambda n: PartitionProduceData(n, batch())))
                for each in self.topics
            ]
            return ProduceRequest(acks=-1, topic_data=tuple(data)), 13 if self.by_id else 12
        if api == "Fetch":
            wanted = [
                FetchTopic(each.name, each.topic_id, self._each(each, lambda n: FetchPartition(n)))
                for each in self.topics
            ]
            return FetchRequest(topics=tuple(wanted), session_epoch=-1), 18 if self.by_id else 12
        if api == "ListOffsets":
            named = [
                ListOffsetsTopic(each.name, self._each(each, lambda n: ListOffsetsPartition(n, -1, -1)))
                for each in self.topics
            ]
            return ListOffsetsRequest(topics=tuple(named)), 7
        if api == "Metadata":
            asked = [MetadataRequestTopic(each.topic_id, None if self.by_id else each.name) for each in self.topics]
            if not self.by_id:
                asked = [MetadataRequestTopic(name=each.name) for each in self.topics]
            return MetadataRequest(topics=tuple(asked)), 13
        return self._of_group(api, group)

    def _of_group(self, api, group):
        if api == "OffsetCommit":
            offsets = [
                OffsetCommitRequestTopic(
                    each.name, each.topic_id, self._each(each, lambda n: OffsetCommitRequestPartition(n, 7))
                )
                for each in self.topics
            ]
            return OffsetCommitRequest(group_id=group, topics=tuple(offsets)), 10 if self.by_id else 9
        if api == "OffsetFetch":
            asked = tuple(
                OffsetFetchRequestTopic(each.name, each.topic_id, self._each(each, int)) for each in self.topics
            )
            one = OffsetFetchRequestGroup(group, member_id="m", topics=asked)
            return OffsetFetchRequest(groups=(one,)), 10 if self.by_id else 9
        if api == "JoinGroup":
            protocols = (JoinGroupRequestProtocol("range", b""),)
            join = JoinGroupRequest(group, 10_000, 10_000, "", None, protocol_type="consumer", protocols=protocols)
            return join, 9
        return HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 4

    @staticmethod
    def _each(topic, make):
        return tuple(make(each.index) for each in topic.partitions)

    def codes(self, api, client=None, group="billing"):
        """The error codes of an answer: by place, or a single one."""
        answer = (client or self.client).ask(*self.request(api, group))
        if api in ("JoinGroup", "Heartbeat"):
            return answer.error_code
        if api == "OffsetFetch":
            (of_group,) = answer.groups
            if of_group.error_code:
                return of_group.error_code
            topics = of_group.topics
        else:
            topics = answer.responses if api in ("Produce", "Fetch") else answer.topics
        names = {each.topic_id: each.name for each in self.topics}
        found = {}
        for topic in topics:
            name = getattr(topic, "name", None) or getattr(topic, "topic", None) or names[topic.topic_id]
            if api == "Metadata" and topic.error_code:
                found[name] = topic.error_code
            for each in topic.partition_responses if api == "Produce" else topic.partitions:
                index = each.index if api == "Produce" else each.partition_index
                found[name, index] = each.error_code
        return found

    def ends(self):
        return {(each.name, at.index): at.log.end_offset for each in self.topics for at in each.partitions}

    def committed(self, group="billing"):
        log = self.cluster.coordinators.log_of(group)
        return {} if log is None else log.offsets


def batch():
    return bytes(build([Record(0, 1_000, None, b"v")]))


@pytest.mark.parametrize("api", OF_PARTITIONS)
def test_an_error_of_one_partition(world, api):
    fault = world.fault(api, place=Place("orders", 1), times=2)
    for _ in range(2):
        assert world.codes(api) == {**ALL_WELL, ("orders", 1): CODE}
    assert world.codes(api) == ALL_WELL
    assert fault.used_count == 2
    assert not world.cluster.faults.is_set, "what is used up costs nothing"


@pytest.mark.parametrize("api", OF_PARTITIONS)
def test_an_error_of_one_topic(world, api):
    fault = world.fault(api, place=Place("orders"), times=2)
    if api == "Metadata":
        wanted = [{"orders": CODE, ("bills", 0): 0}] * 2
    else:
        wanted = [{("orders", 0): CODE, ("orders", 1): CODE, ("bills", 0): 0}, ALL_WELL]
    assert [world.codes(api), world.codes(api)] == wanted
    assert world.codes(api) == ALL_WELL
    assert fault.used_count == 2


@pytest.mark.parametrize("api", APIS)
def test_an_error_at_one_node(world, api):
    fault = world.fault(api, node_id=2, times=None)
    before = world.codes(api)
    assert CODE not in (before.values() if isinstance(before, dict) else [before])
    assert fault.used_count == 0
    after = world.codes(api, world.other)
    assert CODE in (after.values() if isinstance(after, dict) else [after])
    assert fault.used_count > 0


@pytest.mark.parametrize("api", OF_GROUPS)
def test_an_error_of_one_group(world, api):
    fault = world.fault(api, place=Place(group="shipping"), times=2)
    assert world.codes(api) != CODE
    for _ in range(2):
        refused = world.codes(api, group="shipping")
        assert refused == (dict.fromkeys(PLACES, CODE) if api == "OffsetCommit" else CODE)
    assert world.codes(api, group="shipping") == world.codes(api)
    assert fault.used_count == 2


@pytest.mark.parametrize("api", ["OffsetFetch", "Heartbeat"])
def test_an_error_of_one_member(world, api):
    world.fault(api, place=Place(member="somebody else"), times=None)
    assert world.codes(api) != CODE
    world.fault(api, place=Place(member="m"))
    assert world.codes(api) == CODE


@pytest.mark.parametrize("api", APIS)
def test_an_error_when_a_function_says_so(world, api):
    asked = []
    world.fault(api, times=None, when=lambda exchange: asked.append(exchange.api) or len(asked) > 1_000)
    codes = world.codes(api)
    assert CODE not in (codes.values() if isinstance(codes, dict) else [codes])
    assert {*asked} == {api}


@pytest.mark.parametrize("after", [False, True])
def test_a_produce_that_is_refused_appends_nothing_and_one_that_is_denied_does(world, after):
    world.fault("Produce", place=Place("orders", 1), after=after)
    world.codes("Produce")
    assert world.ends() == {("orders", 0): 1, ("orders", 1): int(after), ("bills", 0): 1}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", [Place("orders", 1), Place()])
def test_a_commit_that_is_refused_commits_nothing_and_one_that_is_denied_does(world, after, place):
    world.fault("OffsetCommit", place=place, after=after)
    codes = world.codes("OffsetCommit")
    denied = PLACES if place == Place() else [("orders", 1)]
    assert codes == {**ALL_WELL, **dict.fromkeys(denied, CODE)}
    assert list(world.committed()) == [each for each in PLACES if after or each not in denied]


@pytest.mark.parametrize("after", [False, True])
def test_a_join_that_is_refused_adds_nobody(world, after):
    world.fault("JoinGroup", after=after)
    assert world.codes("JoinGroup") == CODE
    group = world.cluster.coordinators.at(1, "billing").groups.get("billing")
    assert (group is not None and len(group.pending) == 1) is after


def test_a_heartbeat_that_is_refused_prolongs_no_session(world):
    join, version = world.request("JoinGroup")
    member_id = world.client.ask(join, version).member_id
    world.client.ask(dataclasses.replace(join, member_id=member_id), version)
    beat = HeartbeatRequest(group_id="billing", generation_id=1, member_id=member_id)
    member = world.cluster.coordinators.at(1, "billing").groups["billing"].members[member_id]
    ends_at_ms = member.session_ends_at_ms
    world.clients.pass_ms(100)
    world.fault("Heartbeat", place=Place(member=member_id))
    assert world.client.ask(beat, 4).error_code == CODE
    assert member.session_ends_at_ms == ends_at_ms
    world.fault("Heartbeat", after=True)
    assert world.client.ask(beat, 4).error_code == CODE
    assert member.session_ends_at_ms == ends_at_ms + 100


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["delay", "hold", "drop", "cut", "corrupt", "rewrite", "throttle"])
def test_a_rule_of_each_kind_hits_its_request_at_its_node_as_often_as_asked(api, kind):
    world = World(by_id=False)
    rules = world.cluster.rules
    make = {
        "delay": lambda **where: rules.delay(api, ms=100, **where),
        "hold": lambda **where: rules.hold(api, **where),
        "drop": lambda **where: rules.drop(api, **where),
        "cut": lambda **where: rules.cut(api, **where),
        "corrupt": lambda **where: rules.corrupt(api, how="correlation_id", **where),
        "rewrite": lambda **where: rules.rewrite(api, lambda _exchange: CUT, **where),
        "throttle": lambda **where: rules.throttle(api, ms=100, **where),
    }[kind]
    usual = world.codes(api)
    rule = make(node_id=1, times=1)
    unlike = "Metadata" if api != "Metadata" else "ListOffsets"
    assert world.codes(unlike), "another request passes"
    world.other.send(*world.request(api))
    assert len(world.other.take()) == 1, "the other node's answer passes"
    assert rule.used_count == 0
    world.client.send(*world.request(api))
    if kind == "corrupt":
        assert int.from_bytes(world.client.received[4:8], "big") != 3, "the correlation id is another one"
        world.client.received = b""
    elif kind == "throttle":
        ((_, answer),) = world.client.take()
        assert answer.throttle_time_ms == 100
        world.client.send(*world.request(unlike))
        assert world.client.take() == []
        world.clients.pass_ms(100)
        assert len(world.client.take()) == 1
    else:
        assert world.client.take() == []
        assert world.client.is_closed is (kind in ("cut", "rewrite"))
    if kind == "hold":
        world.clients.control(rule.remove)
    world.clients.pass_ms(100)
    assert len(world.client.take()) == (kind in ("delay", "hold"))
    assert rule.used_count == 1
    again = world.clients.connect(1)
    assert world.codes(api, again) == usual, "it is used up"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_with_before_the_request_does_not_happen(api, kind):
    world = World(by_id=False)
    getattr(world.cluster.rules, kind)(api, before=True, times=1)
    world.client.send(*world.request(api))
    assert world.client.take() == []
    assert set(world.ends().values()) == {0}
    assert world.committed() == {}
    assert world.cluster.coordinators.at(1, "billing").groups.get("billing") is None
