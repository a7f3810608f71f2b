"""The counterparts of the membership machine: a coordinator for one member, and a stand-in for the runtime."""

from __future__ import annotations

import dataclasses

from aiokafka.structs import TopicPartition

from aiogroup._core.membership import facts as f
from aiogroup._core.membership.classic.machine import ClassicMembership
from aiogroup._core.membership.classic.requests import write_assignment
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.member import MemberObserver
from aiogroup._core.membership.settings import GroupSettings
from aiogroup._core.membership.states import MOVES
from aiogroup._core.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, rebalance_timeout_ms=300_000, retry_backoff_ms=100, retry_backoff_max_ms=1_000
)
COOPERATIVE = dataclasses.replace(SETTINGS, is_cooperative=True)
ORDERS = frozenset({"orders"})

ANSWERED = (ApiVersionsRequest, JoinGroupRequest, SyncGroupRequest, f.HandOver, f.ComputeAssignment, f.Adopt)


def rejoin_wanted(text):
    return f.RejoinWanted(f.Why(f.Reason.OTHER, text))


def joined(member_id="m1", generation=1, *, error_code=0, leader=None, skip_assignment=False, protocol="range", **more):
    """An answer to JoinGroup. The member leads unless `leader` names another one."""
    leader = member_id if leader is None else leader
    members = (JoinGroupResponseMember(member_id, None, b""),) if leader == member_id and not error_code else ()
    return JoinGroupResponse(
        error_code=error_code,
        generation_id=generation,
        protocol_type=more.get("protocol_type", "consumer"),
        protocol_name=protocol,
        leader=leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def synced(*partitions, error_code=0, assignment=None, protocol="range"):
    """An answer to SyncGroup that gives `partitions` of the topic orders."""
    blob = write_assignment(TopicPartition("orders", number) for number in partitions)
    return SyncGroupResponse(
        error_code=error_code,
        protocol_type="consumer",
        protocol_name=protocol,
        assignment=blob if assignment is None else assignment,
    )


def apis(*, is_draft=False, join_group=9):
    """An answer to ApiVersions by a coordinator that serves Kafka's form of static membership, or the draft's."""
    features = (FinalizedFeatureKey("static.membership.draft", 41, 41),) if is_draft else ()
    return ApiVersionsResponse(
        api_keys=(ApiVersion(JoinGroupRequest.API_KEY, 0, join_group),), finalized_features=features
    )


class Offered:
    def of(self, topics, claim):
        return [("range", ",".join(sorted(topics)).encode()), ("roundrobin", b"")]


class Member(MemberObserver):
    """A membership with its runtime: keeps what the membership asked for, and answers as the test says."""

    def __init__(self, instance_id=None, *, topics=ORDERS, settings=SETTINGS, serves=None):
        self.now_ms = 0
        self.serves = serves or apis()  # the coordinator's answer to ApiVersions
        self.is_cooperative = settings.is_cooperative
        self.holds = False  # the runtime has partitions of a generation that it still counts as owned
        self.moves = []
        self.machine = ClassicMembership(
            Identity("billing", instance_id),
            settings,
            Offered(),
            self,
        )
        self.sent = []
        self.effects = []
        self.wake_at_ms = None
        self.asked_as = None
        self.keeps = False
        self.pending = []  # (what was asked for, our identity then): not answered yet
        if topics:
            self.report(f.SubscriptionChanged(topics, "subscribe"))

    def on_move(self, old, new, why):
        assert new in MOVES[old]
        assert why
        self.moves.append((old, new))

    @property
    def state(self):
        return self.machine.state.value

    @property
    def identity(self):
        return self.machine.identity

    def report(self, fact):
        match fact:
            case f.HandedOver():
                self.holds = self.holds and self.keeps and self.identity.is_member
            case f.Adopted():
                self.holds = self.holds or self.state == "adopting"
            case f.PollIntervalPassed() | f.LeaveWanted():
                self.holds = False
        self.machine.handle(fact, self.now_ms)

    def poll(self):
        """Poll. Returns requests and effects in one list."""
        step = self.machine.poll(self.now_ms)
        self.wake_at_ms = step.wake_at_ms
        self.sent += step.requests
        self.effects += step.effects
        for request in step.requests:
            if not isinstance(request, LeaveGroupRequest):
                self.asked_as = self.identity
        asked = [*step.requests, *step.effects]
        for effect in step.effects:
            if isinstance(effect, f.HandOver):
                self.keeps = effect.keeps
            elif isinstance(effect, f.Fail):
                self.holds = False
        self.pending += [(each, self.identity) for each in asked if isinstance(each, ANSWERED)]
        return asked

    def ask(self, kind):
        """Poll, and return the only request or effect of this kind."""
        asked = [each for each in self.poll() if isinstance(each, kind)]
        assert len(asked) == 1, f"{kind} expected in state {self.state}, asked for {asked}"
        return asked[0]

    def pass_ms(self, duration_ms):
        self.now_ms += duration_ms

    # The ways of an honest run.

    def to_joining(self):
        self.ask(f.HandOver)
        self.report(f.HandedOver())
        return self.ask_to_join()

    def ask_to_join(self):
        """Get to JoinGroup. Before it, a static member asks for the coordinator's form of static membership."""
        asked = self.ask(ApiVersionsRequest | JoinGroupRequest)
        if isinstance(asked, JoinGroupRequest):
            return asked
        self.report(f.ApisAnswered(self.asked_as, self.serves))
        return self.ask(JoinGroupRequest)

    def answer_join(self, response, identity=None):
        self.report(f.JoinAnswered(identity or self.asked_as, response))

    def answer_sync(self, response, identity=None):
        self.report(f.SyncAnswered(identity or self.asked_as, response))

    def to_syncing(self, member_id="m1", generation=1, *, leader="another"):
        self.to_joining()
        self.answer_join(joined(member_id, generation, leader=leader))
        if leader == member_id:
            self.ask(f.ComputeAssignment)
            self.report(f.AssignmentComputed(generation, {member_id: write_assignment([TopicPartition("orders", 0)])}))
        return self.ask(SyncGroupRequest)

    def to_adopting(self, member_id="m1", generation=1, *, leader="another"):
        self.to_syncing(member_id, generation, leader=leader)
        self.answer_sync(synced(0, 1))
        return self.ask(f.Adopt)

    def to_stable(self, member_id="m1", generation=1, *, leader="another"):
        adopt = self.to_adopting(member_id, generation, leader=leader)
        self.report(f.Adopted(generation))
        assert self.state == "stable"
        assert self.poll() == []
        return adopt

    def settle_pending(self):
        """Settle what was asked for before the faults ended: requests time out, effects are done."""
        pending, self.pending = self.pending, []
        for asked, identity in pending:
            if isinstance(asked, ApiVersionsRequest | JoinGroupRequest | SyncGroupRequest):
                self.report(f.RequestLost(identity, "timed out"))
            else:
                self.do(asked)

    def do(self, effect):
        match effect:
            case f.HandOver():
                self.report(f.HandedOver())
            case f.ComputeAssignment():
                self.report(f.AssignmentComputed(effect.generation, {}))
            case f.Adopt():
                self.report(f.Adopted(effect.generation))

    def recover(self):
        """Let the faults end and the application do its part. Afterwards the member is stable, or has failed."""
        self.settle_pending()
        self.report(f.RecordsWanted())
        self.report(f.SubscriptionChanged(ORDERS, "subscribe"))
        self.serve()

    def serve(self, step_count=30):
        """Answer everything without errors until nothing more is asked for."""
        generation = max(100, self.identity.generation)
        for _ in range(step_count):
            asked = self.poll()
            self.pending.clear()
            for each in asked:
                generation += 1
                match each:
                    case ApiVersionsRequest():
                        self.report(f.ApisAnswered(self.asked_as, self.serves))
                    case JoinGroupRequest() if not each.member_id and not self.identity.is_static:
                        self.answer_join(joined("m-new", -1, error_code=79))
                    case JoinGroupRequest():
                        self.answer_join(joined(each.member_id or "m-new", generation))
                    case SyncGroupRequest():
                        self.answer_sync(synced(0))
                    case _:
                        self.do(each)
            if not asked:
                if self.wake_at_ms is None:
                    return
                self.now_ms = max(self.now_ms, self.wake_at_ms)
        raise AssertionError(f"not settled after {step_count} steps: {self.state}, {self.identity}")
