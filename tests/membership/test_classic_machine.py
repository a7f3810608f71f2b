"""Random facts, in any order, late ones too: never an illegal move, never a dead end."""

from __future__ import annotations

import dataclasses

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiogroup._core.membership import facts as f
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from tests.support.coordinator import COOPERATIVE, ORDERS, SETTINGS, Member, apis, joined, rejoin_wanted, synced
from tests.support.effort import examples

GENERATIONS = st.integers(-1, 4)
IDS = st.sampled_from(["", "m1", "m2"])
# 82 and the other fatal codes have tests of their own: here a member that failed would only stand still.
JOIN_CODES = st.sampled_from([0, 0, 0, 14, 15, 16, 25, 27, 79, -1, 13, 22])
SYNC_CODES = st.sampled_from([0, 0, 0, 14, 15, 16, 22, 25, 27, -1])
BEAT_CODES = st.sampled_from([0, 14, 15, 16, 22, 25, 27, -1])
COMMIT_CODES = st.sampled_from([22, 25, 27, 69])
TOPICS = st.sampled_from([ORDERS, frozenset(), frozenset({"payments"}), frozenset({"orders", "payments"})])
BLOBS = st.sampled_from([None, None, b"", b"\x00\x01\xff"])
ASKING = dataclasses.replace(COOPERATIVE, expansion_timeout_ms=60_000)


class MembershipUnderFaults(RuleBasedStateMachine):
    @initialize(instance_id=st.sampled_from([None, "pod-1"]), kind=st.sampled_from([SETTINGS, COOPERATIVE, ASKING]))
    def begin(self, instance_id, kind):
        self.member = Member(instance_id, topics=frozenset(), settings=kind)
        self.selves = [self.member.identity]

    def who(self, pick):
        self.selves.append(self.member.identity)
        return self.selves[-1 - pick % len(self.selves)]

    @rule()
    def poll(self):
        asked = self.member.poll()
        of_join = [each for each in asked if isinstance(each, ApiVersionsRequest | JoinGroupRequest | SyncGroupRequest)]
        assert len(of_join) <= 1
        for each in asked:
            if isinstance(each, LeaveGroupRequest):
                assert not self.member.identity.is_static
                assert each.members[0].member_id

    @rule(duration_ms=st.integers(0, 2_000))
    def pass_time(self, duration_ms):
        self.member.pass_ms(duration_ms)

    @rule(topics=TOPICS)
    def subscribe(self, topics):
        self.member.report(f.SubscriptionChanged(topics, "subscribe"))

    @rule(
        fact=st.sampled_from(
            [rejoin_wanted("metadata"), f.RecordsWanted(), f.PollIntervalPassed(), f.CoordinatorGone()]
        )
    )
    def something_else(self, fact):
        self.member.report(fact)

    @rule()
    def stop(self):
        self.member.report(f.LeaveWanted("stop"))

    @precondition(lambda self: self.member.pending)
    @rule(pick=st.integers(0, 5), code=JOIN_CODES, blob=BLOBS, lost=st.booleans(), leads=st.booleans())
    def answer_what_is_pending(self, pick, code, blob, lost, leads):
        member = self.member
        asked, who = member.pending.pop(pick % len(member.pending))
        match asked:
            case ApiVersionsRequest() | JoinGroupRequest() | SyncGroupRequest() if lost:
                member.report(f.RequestLost(who, "closed"))
            case ApiVersionsRequest():
                member.report(f.ApisAnswered(who, apis(is_draft=leads)))
            case JoinGroupRequest():
                leader = None if leads else "another"
                member.report(f.JoinAnswered(who, joined("m1", 3, error_code=code, leader=leader)))
            case SyncGroupRequest():
                code = code if code not in (79, 13) else 0
                member.report(f.SyncAnswered(who, synced(0, error_code=code, assignment=blob)))
            case _:
                member.do(asked)

    @rule(pick=st.integers(0, 9), code=JOIN_CODES, generation=GENERATIONS, member_id=IDS)
    def join_answered_out_of_turn(self, pick, code, generation, member_id):
        self.member.report(f.JoinAnswered(self.who(pick), joined(member_id, generation, error_code=code)))

    @rule(pick=st.integers(0, 9), code=SYNC_CODES, blob=BLOBS)
    def sync_answered_out_of_turn(self, pick, code, blob):
        self.member.report(f.SyncAnswered(self.who(pick), synced(0, error_code=code, assignment=blob)))

    @rule(pick=st.integers(0, 9), is_draft=st.booleans())
    def apis_answered_out_of_turn(self, pick, is_draft):
        self.member.report(f.ApisAnswered(self.who(pick), apis(is_draft=is_draft)))

    @rule(pick=st.integers(0, 9))
    def request_lost(self, pick):
        self.member.report(f.RequestLost(self.who(pick), "closed"))

    @rule(pick=st.integers(0, 9), code=BEAT_CODES)
    def heartbeat_answered(self, pick, code):
        self.member.report(f.HeartbeatAnswered(self.who(pick), code))

    @rule(pick=st.integers(0, 9), code=COMMIT_CODES)
    def commit_refused(self, pick, code):
        self.member.report(f.CommitAnswered(self.who(pick), code))

    @rule(generation=GENERATIONS)
    def done_out_of_turn(self, generation):
        self.member.report(f.AssignmentComputed(generation, {}))
        self.member.report(f.Adopted(generation))

    @invariant()
    def what_it_says_of_itself_fits(self):
        machine = self.member.machine
        assert self.member.state != "failed"
        if machine.may_heartbeat:
            assert machine.identity.is_member
        if machine.claim >= 0:
            assert self.member.is_cooperative
            assert self.member.holds
            assert machine.state in ("joining", "syncing")
        if machine.may_deliver:
            assert self.member.holds or machine.state in ("preparing", "syncing", "adopting")
        if machine.state in ("joining", "parked", "left", "unjoined"):
            assert machine.identity.generation == -1
        if not machine.is_rebalancing:
            assert machine.identity.is_member
            assert machine.topics

    def teardown(self):
        if hasattr(self, "member"):
            self.member.recover()
            assert self.member.state == "stable"
            assert self.member.identity.is_member


MembershipUnderFaults.TestCase.settings = settings(
    max_examples=examples(10), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMembershipUnderFaults = MembershipUnderFaults.TestCase
