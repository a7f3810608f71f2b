"""Members of one group, by scripted requests. The test moves the clock. All live processes act at each instant that the
test names, and every few seconds in between.
"""

from __future__ import annotations

import json
import re

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup._core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiogroup.embedded.machine.logs.batches import records_of
from aiogroup.embedded.machine.observers import Observer
from tests.support.embedded_clients import Machine

GROUP = "billing"
SESSION_MS = 10_000
HEARTBEAT_MS = 2_500
REBALANCE_MS = 60_000


def ms(instant):
    """An instant as milliseconds: `0:14` is fourteen minutes; `0:24:59.999` has seconds."""
    if isinstance(instant, int):
        return instant
    hours, minutes, seconds = re.fullmatch(r"(\d+):(\d\d)(?::(\d\d\.\d{3}))?", instant).groups()
    return int(hours) * 3_600_000 + int(minutes) * 60_000 + round(float(seconds or 0) * 1_000)


class Scene(Observer):
    """A cluster in the draft's mode and the processes of one group. `generations` are (instant, number, names)."""

    def __init__(self, *, nodes=2, began_ms=0, **options):
        self.machine = Machine(nodes=nodes, static_membership="draft", **options)
        self.cluster = self.machine.cluster
        self.cluster.observers.all.append(self)
        self.machine.do(lambda cluster, now_ms: cluster.topics.create("orders", 4, now_ms))
        self.began_ms = began_ms
        self.processes = []
        self.generations = []

    def on_generation(self, group, now_ms):
        names = tuple(sorted(each.instance_id or "-" for each in group.members))
        self.generations.append((now_ms - self.began_ms, group.generation, names))

    # Questions.

    @property
    def now_ms(self):
        """The time since the scene began."""
        return self.machine.now_ms - self.began_ms

    @property
    def group(self):
        return self.cluster.coordinators.seat_of(GROUP).coordinator.groups[GROUP]

    @property
    def state(self):
        return self.group.state.value

    @property
    def names(self):
        return tuple(sorted(each.instance_id or "-" for each in self.group.members))

    @property
    def values(self):
        """The group's values in the map's topic, first to last: decoded, or None for a tombstone."""
        partition = self.cluster.topics.get("static_member_map").partitions[0]
        records = [each for batch in partition.log.batches() for each in records_of(batch)]
        return [each.value and json.loads(each.value) for each in records if each.key == GROUP.encode()]

    @property
    def node_id(self):
        return self.cluster.coordinators.seat_of(GROUP).node_id

    # What happens.

    def process(self, name=None, **settings):
        made = Process(self, name, **settings)
        self.processes.append(made)
        return made

    def begin(self):
        """Let the scene's clock count from 0 from now on."""
        self.generations.clear()
        self.began_ms = self.machine.now_ms

    def at(self, instant):
        """Let time pass until `instant`. All processes act, also each time something happens by time."""
        until_ms = self.began_ms + ms(instant)
        assert until_ms >= self.machine.now_ms
        while self.machine.now_ms < until_ms:
            next_at_ms = min(until_ms, self.machine.now_ms + HEARTBEAT_MS, self.cluster.next_at_ms or until_ms)
            self.machine.pass_ms(next_at_ms - self.machine.now_ms)
            self.act()

    def pass_ms(self, duration_ms):
        self.at(self.now_ms + duration_ms)

    def act(self):
        """Let all processes send heartbeats and act on the answers, until nothing changes any more."""
        moves = True
        while moves:
            moves = [each for each in self.processes if each.beat_if_member()]
            while [each for each in self.processes if each.act()]:
                moves = True

    def move(self, loading_ms=0):
        """Let another node coordinate the group."""
        to = self.node_id % len(self.cluster.nodes) + 1
        self.machine.do(lambda cluster, now_ms: cluster.coordinators.move(GROUP, to, loading_ms, now_ms))
        self.act()

    def rebalance(self):
        self.machine.do(lambda cluster, now_ms: cluster.coordinators.rebalance(GROUP, now_ms))
        self.act()

    def of(self, *names, **settings):
        """Make a stable group of these names; the first one leads."""
        made = [self.process(name, **settings) for name in names]
        for each in made:
            each.join()
            self.act()
            self.pass_ms(HEARTBEAT_MS)
        assert self.state == "Stable"
        self.begin()
        return made


class Process:
    """One process of the application, with or without a name. It acts as a client does, or as the test says."""

    def __init__(
        self,
        scene,
        name=None,
        *,
        registration_ms=None,
        expansion_ms=None,
        session_ms=SESSION_MS,
        join_version=9,
        protocols=("range",),
        subscription=b"orders",
    ):
        self.scene = scene
        self.name = name
        self.registration_ms, self.expansion_ms, self.session_ms = registration_ms, expansion_ms, session_ms
        self.rebalance_ms = REBALANCE_MS
        self.join_version = join_version
        self.protocols, self.subscription = protocols, subscription
        self.member_id, self.generation, self.share = "", -1, None
        self.lives = True
        self.failed = None
        """The error that ended it."""
        self.joined = self.synced = None
        """The last answers."""
        self._client = None
        self._others = {}
        self._waits_for = None

    # Called by the test.

    def die(self):
        """Let the process die: it sends nothing any more."""
        self.lives = False

    def again(self, name="", **settings):
        """Start the process again: it joins under its name, without an id."""
        self.die()
        former = {
            "registration_ms": self.registration_ms,
            "expansion_ms": self.expansion_ms,
            "session_ms": self.session_ms,
            "protocols": self.protocols,
            "subscription": self.subscription,
        }
        made = self.scene.process(self.name if name == "" else name, **{**former, **settings})
        made.join()
        self.scene.act()
        return made

    def join(self, *, member_id=None):
        protocols = tuple(JoinGroupRequestProtocol(each, self.subscription) for each in self.protocols)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self._name,
            protocol_type="consumer",
            protocols=protocols,
            registration_timeout_ms=self.registration_ms,
            expansion_timeout_ms=self.expansion_ms,
        )
        self._send(request, self.join_version)

    def sync(self, assignments=()):
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._name,
            protocol_type="consumer",
            protocol_name=self.joined.protocol_name,
            assignments=tuple(SyncGroupRequestAssignment(*each) for each in assignments),
        )
        self._send(request)

    def beat(self):
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, group_instance_id=self._name
        )
        return self._ask(request).error_code

    def commit(self, offset=1, *, version=9, **more):
        topic = OffsetCommitRequestTopic(name="orders", partitions=(OffsetCommitRequestPartition(0, offset),))
        mine = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self._name,
        }
        request = OffsetCommitRequest(group_id=GROUP, topics=(topic,), **{**mine, **more})
        return self._ask(request, version).topics[0].partitions[0].error_code

    def leave(self, *, name=None, member_id=None):
        who = MemberIdentity(
            member_id=self.member_id if member_id is None else member_id, group_instance_id=name or self._name
        )
        code = self._ask(LeaveGroupRequest(group_id=GROUP, members=(who,))).members[0].error_code
        self.scene.act()
        return code

    @property
    def is_parked(self):
        return self._waits_for is JoinGroupRequest and not self._client.has_answer

    @property
    def _name(self):
        return self.name if self.join_version >= 5 else None

    def _connection(self, *, is_free=True):
        if self._client is None or self._client.node_id != self.scene.node_id or (is_free and self._waits_for):
            self._client = self.scene.machine.client(self.scene.node_id)
            self._client.node_id = self.scene.node_id
            self._waits_for = None
        return self._client

    def _ask(self, request, version=None):
        """Send a request on a connection where no request waits."""
        node_id = self.scene.node_id
        if node_id not in self._others:
            self._others[node_id] = self.scene.machine.client(node_id)
        return self._others[node_id].ask(request, version)

    def _send(self, request, version=None):
        client = self._connection()
        self._waits_for = type(request)
        client.send(request, version)

    # As a client does.

    def beat_if_member(self):
        """Send a heartbeat. Returns whether the answer calls for an action."""
        if not self.lives or self._waits_for is not None or self.generation < 0:
            return False
        code = self.beat()
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif code:
            self._mend(code)
        return bool(code)

    def act(self):
        """Take an answer that has come. Returns whether there was one."""
        if not self.lives or self._waits_for is None or not self._client.has_answer:
            return False
        asked, self._waits_for = self._waits_for, None
        answer = self._client.answer()
        if answer.error_code:
            self._mend(answer.error_code, answer)
        elif asked is JoinGroupRequest:
            self.joined = answer
            self.member_id, self.generation = answer.member_id, answer.generation_id
            ids = [each.member_id for each in answer.members]
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            self.sync([(each, str(place).encode()) for place, each in enumerate(ids)] if leads else ())
        else:
            self.synced, self.share = answer, bytes(answer.assignment)
        return True

    def _mend(self, code, answer=None):
        match code:
            case ErrorCode.FENCED_INSTANCE_ID:
                self.failed = ErrorCode.FENCED_INSTANCE_ID
                self.die()
                return
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id, self.generation = "", -1
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.NOT_COORDINATOR:
                pass
            case _:
                raise AssertionError(f"{self.name or self.member_id}: {ErrorCode(code).name}")
        self.join()
