"""Exchanges with a group's coordinator, step by step, for a real one and for ours: both must give the same answers."""

from __future__ import annotations

import dataclasses
import select
import socket
import struct
import time

from aiogroup._core.protocol.consumer_protocol import Subscription, encode_subscription
from aiogroup._core.protocol.framing import decode_request, decode_response, encode_request, encode_response
from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsRequest
from aiogroup._core.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from aiogroup._core.protocol.versions import first_error_code
from aiogroup.embedded.machine.groups.coordinator import GroupCoordinator
from aiogroup.embedded.machine.groups.group import GroupSettings

CLIENT_ID = "scripted"
PARKED_AFTER_SECONDS = 0.2
"""A request without an answer after this time may be parked. If the coordinator has answered a later one, it is."""
LATE_SECONDS = 10
UNKNOWN_MEMBER_ID = 25


def reads(*topics):
    """A valid subscription. Brokers read subscriptions, and if they cannot read one, the group gets no answer."""
    return encode_subscription(Subscription(topics=topics))


RANGE = (("range", reads("orders")),)
DEVKAFKA = GroupSettings(min_session_timeout_ms=100, initial_rebalance_delay_ms=0)
"""devkafka's settings."""


class RealCoordinator:
    """A broker, asked over one connection per actor."""

    def __init__(self, address):
        self._address = address
        self._sockets = {}
        self._parked = {}

    def wait_until_it_serves(self, group):
        """Wait until the coordinator serves: the first group of a cluster creates the offsets topic, which takes a
        moment.
        """
        ends_at = time.monotonic() + LATE_SECONDS
        while True:
            found = self.send("look-up", FindCoordinatorRequest(coordinator_keys=(group,)), 4).coordinators[0]
            code = found.error_code or self._heartbeat_of_nobody(group)
            if code == UNKNOWN_MEMBER_ID:
                return
            assert time.monotonic() < ends_at, f"no coordinator: {code}"
            self.pass_ms(50)

    def send(self, who, request, version):
        """Send a request. Returns the answer, or `None` if there is none yet."""
        peer = self._sockets.get(who) if who not in self._parked else None
        if peer is None:
            peer = self._sockets[who] = socket.create_connection(self._address, timeout=LATE_SECONDS)
        frame = encode_request(request, version, 1, CLIENT_ID)
        peer.sendall(struct.pack(">i", len(frame)) + frame)
        may_park = isinstance(request, JoinGroupRequest | SyncGroupRequest)
        if may_park:  # on a busy machine its silence alone would say nothing
            self._heartbeat_of_nobody(request.group_id)
        readable, _, _ = select.select([peer], [], [], PARKED_AFTER_SECONDS if may_park else LATE_SECONDS)
        if not readable:
            self._parked[who] = (peer, type(request), version)
            return None
        return self._read(peer, type(request), version)

    def late(self, who):
        """The answer to the request that was parked."""
        return self._read(*self._parked.pop(who))

    def _heartbeat_of_nobody(self, group):
        """The error code of a request that changes nothing."""
        request = HeartbeatRequest(group_id=group, generation_id=0, member_id="nobody")
        return self.send("look-up", request, 4).error_code

    def pass_ms(self, duration_ms):
        select.select([], [], [], duration_ms / 1000)

    @staticmethod
    def _read(peer, request_type, version):
        stream = peer.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return decode_response(request_type, version, stream.read(size))[1]

    def close(self):
        for peer in self._sockets.values():
            peer.close()


class PureCoordinator:
    """The embedded broker's coordinator, with a clock that only `pass_ms` moves."""

    def __init__(self, settings=DEVKAFKA):
        self._count = 0
        self.now_ms = 0
        self._answers = {}
        self.coordinator = GroupCoordinator(self.new_id, settings)

    def new_id(self, prefix):
        self._count += 1
        return f"{prefix}-{self._count}"

    def send(self, who, request, version):
        _, request = decode_request(encode_request(request, version, 1, CLIENT_ID))
        ticket = (who, type(request), version)
        self._take(self.coordinator.handle(ticket, request, self.now_ms, version=version, client_id=CLIENT_ID))
        return self._answers.pop(who, None)

    def _take(self, answers):
        """Take answers as they are on the wire, without fields that the version lacks."""
        for each in answers:
            who, request_type, version = each.ticket
            frame = encode_response(request_type, each.response, version, 1)
            self._answers[who] = decode_response(request_type, version, frame)[1]

    def late(self, who):
        return self._answers.pop(who)

    def pass_ms(self, duration_ms):
        self.now_ms += duration_ms
        self._take(self.coordinator.tick(self.now_ms))

    def close(self):
        pass


class Script:
    """One group and its actors. `transcript` has every answer, with ids by the order in which they were given."""

    def __init__(self, coordinator, group, topic):
        self.coordinator = coordinator
        self.group = group
        self.topic = topic
        self.transcript = []
        self._labels = {"": ""}

    def actor(self, name, instance_id=None, **settings):
        return Actor(self, name, instance_id, **settings)

    def pass_ms(self, duration_ms):
        self.coordinator.pass_ms(duration_ms)

    def note(self, who, what, response):
        self.transcript.append((who, what, "parked" if response is None else self._plain(response)))

    def _plain(self, value):
        if dataclasses.is_dataclass(value):
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return {
                name: self._label(each) if name in ("member_id", "leader") else self._plain(each)
                for name, each in fields.items()
                if name not in ("throttle_time_ms", "client_host", "error_message")
            }
        if isinstance(value, tuple):
            plain = [self._plain(each) for each in value]
            # Members come in the order of a Java hash map.
            return sorted(plain, key=lambda each: str(each.get("member_id", "")) if isinstance(each, dict) else "")
        return bytes(value) if isinstance(value, memoryview) else value

    def _label(self, member_id):
        return self._labels.setdefault(member_id, f"id {len(self._labels)}")


class Actor:
    """A client of the coordinator. It remembers its id and generation."""

    def __init__(self, script, name, instance_id=None, *, session_ms=30_000, rebalance_ms=30_000, offers=RANGE):
        self.script = script
        self.name = name
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.offers = offers
        self.member_id = ""
        self.generation = -1

    def _send(self, what, request, version):
        response = self.script.coordinator.send(self.name, request, version)
        self.script.note(self.name, what, response)
        return response

    def _late(self, what):
        response = self.script.coordinator.late(self.name)
        self.script.note(self.name, f"late {what}", response)
        return response

    def join(self, *, version=9, group=None, protocol_type="consumer"):
        """Send one JoinGroup."""
        request = JoinGroupRequest(
            group_id=self.script.group if group is None else group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=protocol_type,
            protocols=tuple(JoinGroupRequestProtocol(name, metadata) for name, metadata in self.offers),
        )
        return self._took(self._send("join", request, version))

    def joined(self):
        return self._took(self._late("join"))

    def _took(self, response):
        if response is not None and response.error_code in (0, 79):
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def enter(self, **options):
        """Join as a newcomer does: send JoinGroup, and again with the id from the answer."""
        if self.instance_id is None:
            assert self.join(**options).error_code == 79
        return self.join(**options)

    def sync(self, *actors, group=None, generation=None, **more):
        """Send SyncGroup. A leader assigns to each of `actors` the actor's name."""
        given = tuple(SyncGroupRequestAssignment(each.member_id, each.name.encode()) for each in actors)
        request = SyncGroupRequest(
            group_id=self.script.group if group is None else group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=more.get("protocol_type", "consumer"),
            protocol_name=more.get("protocol_name", self.offers[0][0]),
            assignments=given,
        )
        return self._send("sync", request, 5)

    def synced(self):
        return self._late("sync")

    def beat(self, *, generation=None, instance_id="own", group=None):
        request = HeartbeatRequest(
            group_id=self.script.group if group is None else group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id if instance_id == "own" else instance_id,
        )
        return self._send("beat", request, 4).error_code

    def leave(self, *, member_id="own", instance_id="own", group=None):
        who = MemberIdentity(
            member_id=self.member_id if member_id == "own" else member_id,
            group_instance_id=self.instance_id if instance_id == "own" else instance_id,
        )
        request = LeaveGroupRequest(group_id=self.script.group if group is None else group, members=(who,))
        response = self._send("leave", request, 5)
        return first_error_code(response)

    def commit(self, offset=1, *, generation=None, member_id="own", instance_id="own", metadata="", version=9):
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=self.script.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id if member_id == "own" else member_id,
            group_instance_id=self.instance_id if instance_id == "own" else instance_id,
            topics=(OffsetCommitRequestTopic(name=self.script.topic, partitions=(partition,)),),
        )
        return self._send("commit", request, version).topics[0].partitions[0].error_code

    def simple_commit(self, offset=1, **more):
        return self.commit(offset, generation=-1, member_id="", instance_id=None, **more)

    def committed(self, *, everything=False):
        topics = (OffsetFetchRequestTopic(name=self.script.topic, partition_indexes=(0,)),)
        asked = OffsetFetchRequestGroup(group_id=self.script.group, topics=None if everything else topics)
        return self._send("committed", OffsetFetchRequest(groups=(asked,), require_stable=True), 9)

    def describe(self, *, group=None, version=6):
        asked = self.script.group if group is None else group
        return self._send("describe", DescribeGroupsRequest(groups=(asked,)), version).groups[0]


# The beginning of several scripts.


def stable(script, *actors, leader=None):
    """Bring all actors into one stable generation; the first leads."""
    first = leader or actors[0]
    assert first.enter().error_code == 0
    for each in actors:
        if each is not first:
            assert each.enter() is None
    if len(actors) > 1:
        assert first.beat() == 27
        assert first.join().error_code == 0
        for each in actors:
            if each is not first:
                assert each.joined().error_code == 0
    assert bytes(first.sync(*actors).assignment) == first.name.encode()
    for each in actors:
        if each is not first:
            assert bytes(each.sync().assignment) == each.name.encode()


# The scripts.


def a_first_member_gets_its_id_then_leads(s):
    a = s.actor("a")
    assert a.join().error_code == 79
    assert a.commit(generation=0) == 25
    answer = a.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, a.member_id)
    assert a.beat() == 0  # CompletingRebalance
    assert a.commit() == 27
    assert bytes(a.sync(a).assignment) == b"a"
    assert bytes(a.sync().assignment) == b"a"  # again: what is stored
    assert a.commit() == 0
    assert a.beat() == 0


def an_old_version_needs_no_second_join(s):
    a = s.actor("a")
    assert a.join(version=3).error_code == 0
    assert a.generation == 1


def a_second_member_makes_the_first_rejoin(s):
    a, b = s.actor("a"), s.actor("b")
    stable(s, a, b)
    assert (a.generation, b.generation) == (2, 2)
    assert b.beat() == 0
    assert a.commit() == 0


def commits_in_each_state(s):
    a, b = s.actor("a"), s.actor("b")
    assert a.simple_commit(5) == 0
    assert a.committed().groups[0].topics[0].partitions[0].committed_offset == 5
    stable(s, a)
    assert (a.commit(6), a.commit(generation=0), a.simple_commit()) == (0, 22, 25)
    assert a.commit(generation=-1) == 22
    assert a.commit(member_id="stranger") == 25
    assert a.commit(instance_id="nobody") == 25
    assert b.enter() is None
    # PreparingRebalance: the generation is still a's.
    assert (a.commit(7), a.commit(generation=0), a.simple_commit(), a.beat()) == (0, 22, 25, 27)
    old = a.generation
    assert a.join().error_code == 0
    assert b.joined().error_code == 0
    assert (a.commit(), a.commit(generation=old), b.commit(), a.simple_commit()) == (27, 22, 27, 25)
    a.sync(a, b)
    assert (a.commit(8), b.commit(9)) == (0, 0)
    assert a.leave() == 0
    assert a.commit() == 25
    b.committed()
    b.committed(everything=True)


def commits_to_a_group_that_nobody_knows(s):
    a = s.actor("a")
    assert a.commit(generation=3, member_id="m", version=9) == 69
    assert a.commit(generation=3, member_id="m", version=8) == 22
    a.committed()
    a.committed(everything=True)
    assert a.simple_commit(3) == 0
    assert a.commit(generation=3, member_id="m") == 25


def a_commit_carries_so_much_text(s):
    a = s.actor("a")
    assert (a.simple_commit(metadata="ä" * 4096), a.simple_commit(metadata="x" * 4097)) == (0, 12)
    a.committed()


def strangers(s):
    a, b = s.actor("a"), s.actor("b")
    b.member_id = "nobody"
    assert (b.beat(generation=1), b.leave(), b.sync(generation=1).error_code, b.join().error_code) == (25, 25, 25, 25)
    stable(s, a)
    assert (b.beat(generation=1), b.leave(), b.sync(generation=1).error_code, b.join().error_code) == (25, 25, 25, 25)
    assert (a.beat(generation=0), a.sync(generation=0).error_code) == (22, 22)
    assert a.beat(instance_id="nobody") == 25


def groups_without_a_name(s):
    a = s.actor("a")
    assert a.join(group="").error_code == 24
    assert a.sync(group="", generation=1).error_code == 24
    assert a.beat(group="", generation=1) == 24
    assert a.leave(group="", member_id="x") == 24


def sessions_have_bounds(s):
    for session_ms in (99, 1_800_001):
        assert s.actor("a", session_ms=session_ms).join().error_code == 26


def nothing_in_common(s):
    a, b = s.actor("a"), s.actor("b", offers=(("sticky", reads("orders")),))
    stable(s, a)
    assert b.join().error_code == 23
    assert s.actor("c").join(protocol_type="connect").error_code == 23
    assert s.actor("d", offers=()).join().error_code == 23
    assert a.sync(a, protocol_name="sticky").error_code == 23
    assert a.sync(a, protocol_type="connect").error_code == 23


def the_assignor_that_all_have_wins(s):
    a = s.actor("a", offers=(("range", reads("a")), ("roundrobin", reads("b"))))
    b = s.actor("b", offers=(("roundrobin", reads("c")),))
    assert a.enter().protocol_name == "range"
    assert b.enter() is None
    assert a.join().protocol_name == "roundrobin"
    assert b.joined().protocol_name == "roundrobin"


def a_follower_that_rejoins_unchanged_disturbs_nobody(s):
    a, b = s.actor("a"), s.actor("b")
    stable(s, a, b)
    assert b.join().generation_id == 2
    assert a.beat() == 0
    b.offers = (("range", reads("payments")),)
    assert b.join() is None
    assert a.beat() == 27


def a_leader_that_rejoins_always_rebalances(s):
    a, b = s.actor("a"), s.actor("b")
    stable(s, a, b)
    assert a.join() is None
    assert b.beat() == 27
    assert b.join().generation_id == 3
    assert a.joined().leader == a.member_id


def a_join_again_while_the_assignment_is_awaited(s):
    a, b = s.actor("a"), s.actor("b")
    stable(s, a)
    assert b.enter() is None
    a.join()
    b.joined()
    assert b.join().generation_id == 2  # unchanged: the same answer again
    assert a.join().generation_id == 2
    waiting = s.actor("b's other connection")
    waiting.member_id, waiting.generation = b.member_id, b.generation
    assert waiting.sync() is None
    b.offers = (("range", reads("payments")),)
    assert b.join() is None
    assert waiting.synced().error_code == 27
    assert a.beat() == 27
    assert a.sync(a, b).error_code == 27
    assert a.join().generation_id == 3


def a_parked_sync_is_answered_with_the_leaders(s):
    a, b = s.actor("a"), s.actor("b")
    assert a.enter().error_code == 0
    assert b.enter() is None
    a.join()
    b.joined()
    assert b.sync() is None
    a.sync(a)  # nothing for b
    assert bytes(b.synced().assignment) == b""


def leaving(s):
    a, b, c = s.actor("a"), s.actor("b"), s.actor("c")
    stable(s, a, b)
    assert b.leave() == 0
    assert b.leave() == 25
    assert b.beat() == 25
    assert a.beat() == 27
    assert a.join().generation_id == 3
    assert a.leave() == 0  # in CompletingRebalance, and the last one
    assert a.simple_commit() == 0
    assert c.enter().generation_id == 5


def a_member_that_leaves_completes_the_join(s):
    a, b, c = s.actor("a"), s.actor("b"), s.actor("c")
    stable(s, a, b)
    assert c.enter() is None
    assert a.join() is None
    assert b.leave() == 0
    assert c.joined().error_code == 0
    assert a.joined().generation_id == 3


def a_pending_id_holds_the_join_up_until_it_lapses(s):
    a, b, c = s.actor("a"), s.actor("b"), s.actor("c", session_ms=1_500)
    stable(s, a)
    assert c.join().error_code == 79
    assert b.enter() is None
    assert a.join() is None
    s.pass_ms(1_700)
    assert a.joined().generation_id == 2
    assert b.joined().generation_id == 2
    assert c.join().error_code == 25


def a_pending_id_may_leave(s):
    a, c = s.actor("a"), s.actor("c")
    stable(s, a)
    assert c.join().error_code == 79
    assert a.join() is None
    assert c.leave() == 0
    assert a.joined().generation_id == 2


def a_pending_id_takes_no_name(s):
    a, c = s.actor("a", "one"), s.actor("c")
    stable(s, a)
    assert c.join().error_code == 79
    for name in ("one", "two"):
        c.instance_id = name
        assert c.join().error_code == -1
    c.instance_id = None
    assert c.join() is None
    assert a.beat() == 27
    assert a.join().generation_id == 2
    assert c.joined().error_code == 0


def a_pending_id_allows_simple_commits(s):
    a = s.actor("a")
    assert a.join().error_code == 79
    assert a.simple_commit() == 0
    assert a.beat(generation=0) == 25


def silence_ends_a_membership(s):
    a, b = s.actor("a"), s.actor("b", session_ms=1_500)
    stable(s, a, b)
    s.pass_ms(1_800)
    assert (b.beat(), a.beat()) == (25, 27)
    assert a.join().generation_id == 3


def heartbeats_and_commits_prolong_a_session(s):
    a, b = s.actor("a"), s.actor("b", session_ms=1_500)
    stable(s, a, b)
    for each in (b.beat, b.commit, b.beat):
        s.pass_ms(900)
        assert each() == 0
    assert a.beat() == 0


def who_does_not_rejoin_in_time_is_removed(s):
    a, b = s.actor("a", rebalance_ms=1_500), s.actor("b", rebalance_ms=1_500)
    stable(s, a)
    assert b.enter() is None
    assert a.beat() == 27
    s.pass_ms(1_800)
    assert b.joined().leader == b.member_id
    assert (a.beat(), a.commit(), a.join().error_code) == (25, 25, 25)


def who_does_not_sync_in_time_is_removed(s):
    a, b = s.actor("a", rebalance_ms=1_500), s.actor("b", rebalance_ms=1_500)
    stable(s, a)
    assert b.enter() is None
    a.join()
    b.joined()
    assert b.sync() is None
    s.pass_ms(1_800)
    assert b.synced().error_code == 27
    assert a.beat() == 25
    assert b.join().generation_id == 3


def a_parked_member_needs_no_heartbeat(s):
    a, b = s.actor("a"), s.actor("b", session_ms=1_000)
    stable(s, a)
    assert b.enter() is None
    s.pass_ms(1_500)
    a.join()
    b.joined()
    assert b.sync() is None
    s.pass_ms(1_500)
    a.sync(a, b)
    assert bytes(b.synced().assignment) == b"b"
    assert b.beat() == 0


# Static members.


def a_static_follower_comes_back_unnoticed(s):
    a, b = s.actor("a", "one"), s.actor("b", "two")
    stable(s, a, b)
    again = s.actor("b again", "two")
    answer = again.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, a.member_id)
    assert answer.member_id != b.member_id
    assert bytes(again.sync().assignment) == b"b"
    assert (b.beat(), b.beat(instance_id=None), a.beat(), again.beat()) == (82, 25, 0, 0)
    assert (b.commit(), b.commit(instance_id=None), again.commit()) == (82, 25, 0)
    assert (b.sync().error_code, b.join().error_code, b.leave()) == (82, 82, 82)


def a_static_leader_comes_back_and_skips_the_assignment(s):
    a, b = s.actor("a", "one"), s.actor("b", "two")
    stable(s, a, b)
    again = s.actor("a again", "one")
    answer = again.join()
    assert (answer.leader, answer.skip_assignment) == (again.member_id, True)
    assert len(answer.members) == 2
    assert bytes(again.sync().assignment) == b"a"
    older = s.actor("a once more", "one")
    answer = older.join(version=8)
    assert (answer.leader, answer.members) == (again.member_id, ())


def a_static_member_comes_back_with_other_wishes(s):
    a, b = s.actor("a", "one"), s.actor("b", "two")
    stable(s, a, b)
    again = s.actor("b again", "two", offers=(("range", reads("payments")),))
    assert again.join().error_code == 0  # the same assignor: no rebalance (KIP-345 leaves the rest to the leader)
    assert a.beat() == 0


def a_static_member_comes_back_during_a_rebalance(s):
    a, b, c = s.actor("a", "one"), s.actor("b", "two"), s.actor("c")
    stable(s, a, b)
    assert c.enter() is None
    assert b.join() is None
    again = s.actor("b again", "two")
    assert again.join() is None
    assert b.joined().error_code == 82
    assert a.join().generation_id == 3
    assert again.joined().generation_id == 3
    assert c.joined().generation_id == 3
    assert again.sync() is None
    third = s.actor("b once more", "two")
    assert third.join() is None
    assert again.synced().error_code == 82
    assert a.beat() == 27


def a_name_that_is_taken_over_before_its_first_round_waits_for_longer_than_a_session(s):
    a, b = s.actor("a", "one"), s.actor("b", "two", session_ms=1_000)
    stable(s, a)
    assert b.join() is None
    again = s.actor("b again", "two", session_ms=1_000)
    assert again.join() is None
    assert b.joined().error_code == 82
    s.pass_ms(1_500)
    assert a.join().error_code == 0
    assert again.joined().error_code == 0


def a_newcomer_with_a_name_waits_for_longer_than_a_session(s):
    a, b = s.actor("a", "one"), s.actor("b", "two", session_ms=1_000)
    stable(s, a)
    assert b.join() is None
    s.pass_ms(1_500)
    assert a.join().error_code == 0
    assert b.joined().error_code == 0


def static_members_keep_their_place_when_they_miss_a_join(s):
    a, b = s.actor("a", "one", rebalance_ms=1_500), s.actor("b", "two", rebalance_ms=1_500)
    c = s.actor("c", rebalance_ms=1_500)
    stable(s, a, b)
    assert c.enter() is None
    assert a.join() is None
    s.pass_ms(1_800)
    assert len(a.joined().members) == 3
    assert c.joined().generation_id == 3
    assert (b.beat(), b.commit()) == (22, 22)


def static_members_that_do_not_sync_are_removed(s):
    a, b = s.actor("a", "one", rebalance_ms=1_500), s.actor("b", "two", rebalance_ms=1_500)
    assert a.join().error_code == 0
    assert b.join() is None
    a.join()
    b.joined()
    a.sync(a, b)
    s.pass_ms(1_800)
    assert (a.beat(), b.beat()) == (27, 25)


def names_are_removed_by_an_administrator(s):
    a, b, admin = s.actor("a", "one"), s.actor("b", "two"), s.actor("admin")
    stable(s, a, b)
    assert admin.leave(member_id="", instance_id="nobody") == 25
    assert admin.leave(member_id="", instance_id="two") == 0
    assert (a.beat(), b.beat()) == (27, 25)
    assert admin.leave(member_id="stranger", instance_id="one") == 82
    assert admin.leave(member_id=a.member_id, instance_id="two") == 25


def a_static_member_with_its_id_joins_as_any_other(s):
    a, b = s.actor("a", "one"), s.actor("b", "two")
    stable(s, a, b)
    assert b.join().generation_id == 2
    assert a.beat() == 0
    assert a.join() is None
    assert b.beat() == 27


def a_name_that_nobody_has_with_an_id(s):
    a, b = s.actor("a"), s.actor("b", "two")
    stable(s, a)
    b.member_id = a.member_id
    assert b.join().error_code == 25


def the_name_of_a_member_that_fell_silent_is_free(s):
    a, b = s.actor("a"), s.actor("b", "two", session_ms=1_500)
    stable(s, a, b)
    s.pass_ms(1_800)
    assert a.beat() == 27
    again = s.actor("b again", "two")
    assert again.join() is None
    assert a.join().generation_id == 3
    assert again.joined().generation_id == 3


def what_a_group_tells_of_itself(s):
    a, b, anybody = s.actor("a", "one"), s.actor("b"), s.actor("anybody")
    assert anybody.describe().error_code == 69
    assert (anybody.describe(version=5).error_code, anybody.describe(version=5).group_state) == (0, "Dead")
    stable(s, a, b)
    assert [bytes(each.member_assignment) for each in anybody.describe().members if each.group_instance_id] == [b"a"]
    assert s.actor("c").enter() is None
    assert anybody.describe().group_state == "PreparingRebalance"
    assert b.leave() == 0
    assert a.join().error_code == 0
    assert anybody.describe().group_state == "CompletingRebalance"


def nobody_joins_and_the_round_goes_on(s):
    a, b = s.actor("a", "one", rebalance_ms=1_000), s.actor("b", "two", rebalance_ms=1_000)
    stable(s, a, b)
    admin = s.actor("admin")
    assert admin.leave(member_id="", instance_id="two") == 0
    s.pass_ms(2_500)
    assert a.beat() == 27
    assert a.join().generation_id == 3


SCRIPTS = [
    each
    for each in list(globals().values())
    if callable(each) and getattr(each, "__code__", None) is not None and each.__code__.co_varnames[:1] == ("s",)
]
