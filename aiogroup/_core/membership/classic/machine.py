"""The classic group protocol as one pure machine: facts in, steps out (AbstractCoordinator.java)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from aiogroup._core.cluster import Cluster
from aiogroup._core.membership import facts as f
from aiogroup._core.membership.classic.forms import Forms
from aiogroup._core.membership.classic.leadership import Leadership
from aiogroup._core.membership.classic.requests import join_request, leave_request, sync_request
from aiogroup._core.membership.identity import NO_GENERATION, Identity, NewMemberId
from aiogroup._core.membership.member import MemberObserver
from aiogroup._core.membership.remedies import FATAL_TO_HEARTBEATS, Remedy, Rpc, failure_of, mismatch_of, remedy_for
from aiogroup._core.membership.settings import GroupSettings, session_of
from aiogroup._core.membership.states import ENDS, HEARTBEATING, MOVES, MemberState
from aiogroup._core.protocol.consumer_protocol import read_assignment
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import LeaveGroupRequest
from aiogroup._core.values import dataclass
from aiogroup.config import backoff_ms
from aiogroup.errors import AiogroupError, ProtocolError

__all__ = ["Backoff", "ClassicMembership", "JoinOffers"]

GROUP_REBALANCES: Final = "the group rebalances"
GENERATION_ENDED: Final = f.Why(f.Reason.MEMBERSHIP, "the generation ended")
_STABLE: Final = MemberState.STABLE  # a module constant: looking it up on the enum each time would cost more


class JoinOffers(Protocol):
    """The assignors and subscriptions that the member offers the group in JoinGroup."""

    def of(self, topics: frozenset[str], claim: int) -> Sequence[tuple[str, bytes]]:
        """Pairs of assignor name and subscription bytes, the preferred first; `claim` as in `ClassicMembership`."""
        ...


class Backoff:
    """How long to wait before a request is tried again: twice as long after each failure, until one succeeds."""

    def __init__(self, first_ms: int, most_ms: int) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self.failures_count = 0
        self.until_ms = 0

    def on_failure(self, now_ms: int, *, waits: bool) -> None:
        self.failures_count += 1
        if waits:
            self.until_ms = now_ms + backoff_ms(self.failures_count, self._first_ms, self._most_ms)

    def on_success(self) -> None:
        self.failures_count = 0


class _Calls:
    """When the coordinator last said that the group rebalances."""

    at_ms: int | None = None


class _Fit:
    """Why an assignment may not be that of our subscription."""

    came_back = False
    """Under a static name: the coordinator may answer with the round of the member's former self."""
    is_asked = False
    """The round under way was asked for, since the assignment did not fit."""


@dataclass(frozen=True, slots=True)
class _Round:
    """What JoinGroup's answer decided, and the leader's assignments by member id, once they are computed."""

    generation: int
    assignor: str
    assignments: Mapping[str, bytes]


class ClassicMembership:
    """A `Membership` by JoinGroup and SyncGroup, in whose rounds one member leads and assigns the partitions."""

    def __init__(
        self,
        identity: Identity,
        settings: GroupSettings,
        offers: JoinOffers,
        observer: MemberObserver | None = None,
    ) -> None:
        self.state = MemberState.LEFT
        self.identity = identity
        self.topics: frozenset[str] = frozenset()
        self.claim = NO_GENERATION
        """The generation under which a cooperative member keeps partitions while it joins; -1 when it keeps none."""
        self.rejoin_why: f.Why | None = None
        self.failure: AiogroupError | None = None
        self.leadership = Leadership()
        self.forms = Forms(settings)
        self.farewells: f.Outbox[LeaveGroupRequest] = f.Outbox()
        self._settings = settings
        self._offers = offers
        self._observer = observer or MemberObserver()
        self._why_joining = ""
        self._keeps = False  # the hand-over under way gives up only the topics that are not subscribed to any more
        self._asked = False  # the request or effect of this state was asked for and is not answered yet
        self._calls = _Calls()
        self._fit = _Fit()
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._rejoin_since_ms: int | None = None  # when the fact came in that `rejoin_why` is about
        self._rejoin_at_ms: int | None = None  # the group rebalances, and this member delays its rejoin until then
        self._new_member_id = NewMemberId()
        self._effects: f.Outbox[f.Effect] = f.Outbox()
        self._round = _Round(NO_GENERATION, "", {})

    # The two methods of every machine.

    def handle(self, fact: f.Fact, now_ms: int) -> None:  # noqa: C901 (every fact comes in here)
        match fact:
            case f.SubscriptionChanged():
                self._on_subscription(fact)
            case f.RejoinWanted():
                self.rejoin_why = self.rejoin_why or fact.why
            case f.HandedOver():
                self._on_handed_over()
            case f.ApisAnswered():
                if self.state is MemberState.JOINING and fact.identity == self.identity:
                    self.forms.on_answer(fact.response)
                    self._asked = False
            case f.JoinAnswered():
                self._on_join(fact, now_ms)
            case f.AssignmentComputed():
                if self.state is MemberState.SYNCING and fact.generation == self.identity.generation:
                    self._round = replace(self._round, assignments=fact.assignments)
                    self.leadership.on_withheld(fact.withheld, now_ms + self._settings.rebalance_timeout_ms)
                    self._asked = False
            case f.SyncAnswered():
                self._on_sync(fact, now_ms)
            case f.RequestLost():
                self._on_request_lost(fact, now_ms)
            case f.RequestDropped():
                self._asked = False
            case f.Adopted():
                if self.state is MemberState.ADOPTING and fact.generation == self._round.generation:
                    self._move(MemberState.STABLE, f"adopted generation {fact.generation}")
            case f.HeartbeatAnswered() | f.CommitAnswered() if fact.error_code == ErrorCode.FENCED_INSTANCE_ID:
                self._on_fenced(fact.identity)
            case f.HeartbeatAnswered():
                self._on_news(Rpc.HEARTBEAT, fact, now_ms)
            case f.CommitAnswered():
                self._on_news(Rpc.OFFSET_COMMIT, fact, now_ms)
            case f.CoordinatorGone():
                self._new_member_id.on_coordinator_doubtful()
                self.forms.on_coordinator_gone()
            case _:
                self._on_application(fact)
        if self.rejoin_why is None:
            self._rejoin_since_ms = None
        elif self._rejoin_since_ms is None:
            self._rejoin_since_ms = now_ms

    def poll(self, now_ms: int) -> f.Step:
        effects: tuple[f.Effect, ...] = self._effects.take()
        requests: tuple[f.Request, ...] = self.farewells.take()
        if self._asked or self.state in ENDS:
            return f.Step(requests, effects)
        if self.state in (MemberState.UNJOINED, MemberState.JOINING) and not self.topics:
            if self.claim >= 0:
                return f.Step(requests, (*effects, self._give_up(f.Why(f.Reason.SUBSCRIPTION, "unsubscribed"))))
            self._on_unsubscribed()
            return f.Step((*requests, *self.farewells.take()), effects)
        if now_ms < self._backoff.until_ms:
            return f.Step(requests, effects, wake_at_ms=self._backoff.until_ms)
        if self._rejoin_at_ms is not None and now_ms >= self._rejoin_at_ms:
            self._rejoin_at_ms = None
            held_back = f"{GROUP_REBALANCES}, held back for {self.forms.of(self.identity).rejoin_delay_ms} ms"
            self._want_round(f.Reason.GROUP, held_back)
        match self.state:
            case MemberState.UNJOINED if self.topics:
                effects += (self._prepare(self.rejoin_why or f.Why(f.Reason.JOINING, "joining")),)
            case MemberState.STABLE if self.rejoin_why is not None or not self.identity.is_member:
                effects += (self._prepare(self.rejoin_why or GENERATION_ENDED),)
            case MemberState.JOINING:
                requests += (self.forms.question(self.identity) or self._join(),)
                self._asked = True
            case MemberState.SYNCING:
                requests += (sync_request(self.identity, self._round.assignor, self._round.assignments),)
                self._asked = True
        if self.state is not MemberState.STABLE or self._rejoin_at_ms is not None:
            return f.Step(requests, effects, wake_at_ms=self._rejoin_at_ms)
        return f.Step(requests, effects + self._check_withheld(now_ms), wake_at_ms=self.leadership.check_at_ms)

    def _join(self) -> JoinGroupRequest:
        offers = self._offers.of(self.topics, self.claim)
        form, settings = self.forms.of(self.identity), self._settings
        return join_request(self.identity, form, settings.rebalance_timeout_ms, offers, self._why_joining)

    def _check_withheld(self, now_ms: int) -> tuple[f.Effect, ...]:
        """Partitions that the leader withheld stay unread if their owner never asks for the round that gives them away.

        It may take the rebalance time-out to give them up. If none of the members claims them then, nobody else asks.
        """
        if (at_ms := self.leadership.check_at_ms) is None or now_ms < at_ms:
            return ()
        return (f.CheckWithheld(self.leadership.take_check(now_ms + self._settings.rebalance_timeout_ms)),)

    # Questions.

    @property
    def called_at_ms(self) -> int | None:
        return self._calls.at_ms

    @property
    def topics_led(self) -> frozenset[str]:
        return self.leadership.topics

    def why_stale(self, cluster: Cluster) -> str | None:
        return self.leadership.why_stale(cluster)

    @property
    def session(self) -> tuple[str, int]:
        return session_of(self._settings, self.identity)

    @property
    def farewell(self) -> LeaveGroupRequest | None:
        return self.leave_request("max_poll_interval_ms passed", even_static=self._settings.leave_on_poll_interval)

    @property
    def may_heartbeat(self) -> bool:
        return self.state in HEARTBEATING and self.identity.is_member

    @property
    def heartbeats_as(self) -> Identity | None:
        """As `Member.heartbeats_as`.

        A cooperative member keeps its partitions while it joins, and then sends heartbeats under the generation of its
        claim. Their answers decide nothing about the join. They show whether the coordinator still counts this member:
        JoinGroup itself may rightly stay unanswered for minutes, and records flow meanwhile.
        """
        if self.may_heartbeat:
            return self.identity
        if self.state is MemberState.JOINING and self.claim >= 0 and self.identity.member_id:
            return self.identity.in_generation(self.identity.member_id, self.claim)
        return None

    @property
    def is_rebalancing(self) -> bool:
        return self.state is not MemberState.STABLE or self.rejoin_why is not None or not self.identity.is_member

    @property
    def may_deliver(self) -> bool:
        """As `Membership.may_deliver`: a cooperative member delivers during a rebalance too."""
        if self.state is _STABLE and self.rejoin_why is None and self.identity.is_member:
            return True  # mostly, and asked for several times for each record: see `is_rebalancing`
        return self._settings.is_cooperative and (self.may_heartbeat or self.claim >= 0)

    @property
    def awaits_round(self) -> bool:
        return self.state in (MemberState.JOINING, MemberState.SYNCING)

    @property
    def commits_as(self) -> Identity | None:
        """As `Membership.commits_as`. While the coordinator waits for others to join it takes commits under the former
        generation (GroupCoordinator.doCommitOffsets: PreparingRebalance). It may have begun the next one by now: then
        it refuses, and the commit is sent again after the round.
        """
        if self.state is MemberState.SYNCING:
            return None
        return self.heartbeats_as if self.state is MemberState.JOINING else self.identity

    # Moves.

    def _move(self, new: MemberState, why: str) -> None:
        old = self.state
        assert new in MOVES[old], f"illegal move {old} -> {new} ({why})"
        self.state = new
        self._asked = False
        self._observer.on_move(old, new, why)

    def _want_round(self, reason: f.Reason, text: str) -> None:
        """The first reason stays until the round begins."""
        self.rejoin_why = self.rejoin_why or f.Why(reason, text)

    def _prepare(self, why: f.Why, *, keeps: bool = True) -> f.HandOver:
        self.rejoin_why = self.rejoin_why or why
        self._rejoin_at_ms = None
        self._keeps = keeps and self._settings.is_cooperative and self.identity.is_member
        self._move(MemberState.PREPARING, why.text)
        return f.HandOver(why, self._keeps, self._rejoin_since_ms)

    def _give_up(self, why: f.Why) -> f.HandOver:
        """Go back from JOINING and hand everything over; the coordinator may still accept a last commit of it."""
        self.identity = self.identity.in_generation(self.identity.member_id, self.claim)
        self.claim = NO_GENERATION
        return self._prepare(why, keeps=False)

    def _fall_back(self, why: str, *, is_lost: bool) -> None:
        """Go back to JOINING, or to the hand-over when another member may own the kept partitions already."""
        if is_lost and self.claim >= 0:
            self.claim = NO_GENERATION
            self._effects.append(self._prepare(f.Why(f.Reason.MEMBERSHIP, why)))
        elif self.state is MemberState.SYNCING:
            self._move(MemberState.JOINING, why)

    def _end(self, new: MemberState, why: str, identity: Identity) -> None:
        """Move into a state without a generation: what was asked for before does not count any more."""
        self.identity = identity
        self.rejoin_why = self._rejoin_at_ms = None
        self.leadership.is_leader, self.claim = False, NO_GENERATION
        self._effects.clear()
        self._move(new, why)

    def _fail(self, error: AiogroupError) -> None:
        if self.state is not MemberState.FAILED:
            self._end(MemberState.FAILED, str(error), self.identity.without_generation())
            self.failure = error
            self._effects.append(f.Fail(error))

    # Facts of the application.

    def _on_application(self, fact: f.Fact) -> None:
        match fact:
            case f.PollIntervalPassed() if self.state not in ENDS:
                if (farewell := self.farewell) is not None and fact.left_as != self.identity.member_id:
                    self.farewells.append(farewell)
                self._end(MemberState.PARKED, "max_poll_interval_ms passed", self.identity.set_aside())
            case f.RecordsWanted() if self.state is MemberState.PARKED:
                self._effects.append(self._prepare(f.Why(f.Reason.ASKED_AGAIN, "records are asked for again")))
            case f.LeaveWanted() if self.state is not MemberState.LEFT:
                self._end(MemberState.LEFT, fact.why, self.identity.forgotten())
            case f.NameNotCarried():
                self.identity = self.identity.without_name()
                if self.state in (MemberState.JOINING, MemberState.SYNCING):  # the request under way has the name in it
                    self._join_again("the coordinator knows no static members", 0, backoff=False)
            case f.Failed():
                self._fail(fact.error)

    def _on_subscription(self, fact: f.SubscriptionChanged) -> None:
        if fact.topics == self.topics and self.state is not MemberState.LEFT:
            return
        self.topics = fact.topics
        if self.state is not MemberState.LEFT:
            self._want_round(f.Reason.SUBSCRIPTION, fact.why)
        elif fact.topics:
            self._move(MemberState.UNJOINED, fact.why)

    def _on_handed_over(self) -> None:
        if self.state is not MemberState.PREPARING:
            return
        if not self.topics:
            self._on_unsubscribed()
            return
        if self._keeps and not self.identity.is_member:
            # The generation ended after this hand-over had counted its partitions as kept.
            self._keeps = False
            self._effects.append(f.HandOver(GENERATION_ENDED, False, self._rejoin_since_ms))
            return
        self.claim = self.identity.generation if self._keeps else NO_GENERATION
        # No commit is under way. From here on no answer about the old generation may touch the join: a commit that is
        # refused now would change the identity, and the answer to JoinGroup would then match no identity.
        self.identity = self.identity.without_generation()
        self._why_joining = "handed over" if self.rejoin_why is None else self.rejoin_why.text
        self._move(MemberState.JOINING, self._why_joining)
        self.rejoin_why = None

    def _on_unsubscribed(self) -> None:
        if (request := self.leave_request("unsubscribed")) is not None:
            self.farewells.append(request)
        self._end(MemberState.LEFT, "unsubscribed", self.identity.set_aside())

    def leave_request(self, why: str, *, even_static: bool = False) -> LeaveGroupRequest | None:
        return leave_request(self.identity, why, even_static=even_static)

    # Answers.

    def _on_join(self, fact: f.JoinAnswered, now_ms: int) -> None:
        if self.state is not MemberState.JOINING or fact.identity != self.identity:
            return
        self._asked, answer = False, fact.response
        remedy = remedy_for(Rpc.JOIN_GROUP, answer.error_code)
        if remedy is Remedy.TAKE_MEMBER_ID and answer.member_id and not self.identity.member_id:
            self.identity = self.identity.with_member_id(answer.member_id)
            return
        if remedy is not Remedy.PROCEED:
            self._mend(remedy, Rpc.JOIN_GROUP, answer.error_code, now_ms)
            return
        offered = [name for name, _ in self._offers.of(self.topics, self.claim)]
        mismatch = mismatch_of(self.identity, answer.protocol_type, answer.protocol_name, offered)
        if mismatch is not None:
            self._fail(mismatch)
            return
        self._fit.came_back = self._fit.came_back or not self.identity.member_id
        self._new_member_id.on_joined(self.identity.member_id, answer.member_id)
        self.identity = self.identity.in_generation(answer.member_id, answer.generation_id)
        if 0 <= self.claim < answer.generation_id - 1:
            # A static member stays in the group while its session lasts, and rounds are held without it. Another member
            # may have owned its partitions in one of them, and may have committed further offsets.
            self._join_again("a round was held without this member", now_ms, backoff=False, is_lost=True)
            return
        # The others see the claim in this round. In a later round a claim of an older generation would be ignored.
        self.claim = answer.generation_id if self.claim >= 0 else NO_GENERATION
        self._round = _Round(answer.generation_id, answer.protocol_name or "", {})
        self.leadership.is_leader = answer.leader == answer.member_id
        self._move(MemberState.SYNCING, f"joined generation {answer.generation_id}")
        if self.leadership.is_leader:
            members = tuple((each.member_id, each.group_instance_id, bytes(each.metadata)) for each in answer.members)
            only_watch = answer.skip_assignment  # KIP-814: a static leader that came back must not assign again
            self._effects.append(f.ComputeAssignment(answer.generation_id, self._round.assignor, members, only_watch))
            self._asked = True

    def _on_sync(self, fact: f.SyncAnswered, now_ms: int) -> None:
        if self.state is not MemberState.SYNCING or fact.identity != self.identity:
            return
        self._asked, answer = False, fact.response
        remedy = remedy_for(Rpc.SYNC_GROUP, answer.error_code)
        if remedy is not Remedy.PROCEED:
            self._mend(remedy, Rpc.SYNC_GROUP, answer.error_code, now_ms)
            return
        assignor = self._round.assignor
        name = assignor if answer.protocol_name is None else answer.protocol_name
        mismatch = mismatch_of(self.identity, answer.protocol_type, name, [assignor])
        if mismatch is not None:
            self._fail(mismatch)
            return
        self._new_member_id.start_over()
        try:
            partitions = read_assignment(bytes(answer.assignment))
        except ProtocolError as error:  # the leader's fault: the next round may have another leader
            self._join_again(f"unreadable assignment: {error}", now_ms, backoff=True)
            return
        # Not after JoinGroup already: rounds that fail at SyncGroup each time would never wait longer.
        self._backoff.on_success()
        self.claim = NO_GENERATION
        generation = self._round.generation
        self._move(MemberState.ADOPTING, f"synced generation {generation}")
        self._effects.append(f.Adopt(generation, partitions, self.leadership.is_leader))
        self._check_fit(frozenset(tp.topic for tp in partitions))

    def _check_fit(self, assigned: frozenset[str]) -> None:
        """Ask for another round if the assignment is not that of our subscription.

        The coordinator answers a static member that comes back with the assignment of its former self, also if its
        topics are others now (KIP-345). What is assigned to it and not subscribed to is read by nobody, nor is a topic
        that no other member subscribes to. An assignment that does not fit after a round that was asked for is the
        leader's fault, and one more would not mend it.
        """
        came_back, self._fit.came_back = self._fit.came_back and self.identity.is_static, False
        asked, self._fit.is_asked = self._fit.is_asked, False
        if not self.forms.of(self.identity).keeps_former_assignment or self.rejoin_why is not None:
            return
        if stray := assigned - self.topics:
            self._fit.is_asked = True
            if not asked:
                self._want_round(f.Reason.MEMBERSHIP, f"assigned, but not subscribed to: {', '.join(sorted(stray))}")
        elif came_back and not self.leadership.is_leader and self.topics - assigned:
            self._effects.append(f.CheckUnread(self.topics - assigned))

    def _on_request_lost(self, fact: f.RequestLost, now_ms: int) -> None:
        if self.state not in (MemberState.JOINING, MemberState.SYNCING) or fact.identity != self.identity:
            return
        may_be_in = self.state is MemberState.JOINING and self.claim >= 0
        self._join_again(fact.why, now_ms, backoff=True)
        if may_be_in:
            # The round may have begun with this member in it. The others then know that round, and in the next one the
            # claim would look older than theirs and be ignored: the kept partitions would have two owners.
            self._effects.append(self._give_up(f.Why(f.Reason.MEMBERSHIP, fact.why)))

    def _on_news(self, rpc: Rpc, fact: f.HeartbeatAnswered | f.CommitAnswered, now_ms: int) -> None:
        """An answer to a heartbeat or a commit says that something is wrong with this generation."""
        if fact.identity != self.identity or not self.may_heartbeat:
            return
        why = f"{rpc.name}: {lookup(fact.error_code).name}"
        remedy = remedy_for(rpc, fact.error_code)
        if remedy is Remedy.REJOIN:
            self._calls.at_ms = now_ms
        match remedy:
            case Remedy.REJOIN if rpc is Rpc.HEARTBEAT and self.state in (MemberState.ADOPTING, MemberState.STABLE):
                self._on_group_rebalances(now_ms)
            case Remedy.REJOIN if self.state is MemberState.STABLE:
                self._want_round(f.Reason.MEMBERSHIP, why)
            case Remedy.NEXT_GENERATION:
                self._lose_generation(self.identity.without_generation(), why)
            case Remedy.FORGET_MEMBER:
                self._lose_generation(self._removed(why), why)
            case remedy if rpc is Rpc.HEARTBEAT and remedy in FATAL_TO_HEARTBEATS:
                self._refuse(remedy, fact.error_code)
            case _:
                pass  # the coordinator moved, or is not ready: the task that asked looks it up and asks again

    def _on_group_rebalances(self, now_ms: int) -> None:
        delay_ms = self.forms.of(self.identity).rejoin_delay_ms
        if not delay_ms:
            self._want_round(f.Reason.GROUP, GROUP_REBALANCES)
        elif self._rejoin_at_ms is None:
            self._rejoin_at_ms = now_ms + delay_ms

    def _on_fenced(self, sent_by: Identity) -> None:
        """Another member has the static name. An answer that is about a member id given up before changes nothing.

        The generation does not count. The coordinator compares the name and the id before it looks at the generation
        (GroupCoordinator.validateCurrentMember), and an id that has lost its name never gets it back.
        """
        if sent_by.member_id == self.identity.member_id and not self._new_member_id.may_be_forgotten:
            self._refuse(Remedy.FENCED, ErrorCode.FENCED_INSTANCE_ID)

    def _lose_generation(self, identity: Identity, why: str) -> None:
        self.identity = identity
        self._want_round(f.Reason.MEMBERSHIP, why)
        self._fall_back(why, is_lost=True)

    def _removed(self, why: str) -> Identity:
        self._observer.on_removed(self.identity.member_id, why)
        return self.identity.forgotten()

    def _mend(self, remedy: Remedy, rpc: Rpc, code: int, now_ms: int) -> None:
        """Go back to JOINING as the remedy says, or to the hand-over when kept partitions must be given up first."""
        why = f"{rpc.name}: {lookup(code).name}"
        if remedy is Remedy.FENCED and self._new_member_id.may_be_forgotten:
            remedy = Remedy.FORGET_MEMBER
        match remedy:
            case Remedy.FENCED | Remedy.NOT_AUTHORIZED | Remedy.INCONSISTENT | Remedy.FATAL:
                self._refuse(remedy, code)
            case Remedy.FORGET_MEMBER:
                self._new_member_id.start_over()
                self.identity, failed_before = self._removed(why), self._backoff.failures_count > 0
                self._join_again(why, now_ms, backoff=rpc is Rpc.JOIN_GROUP and failed_before, is_lost=True)
            case Remedy.NEXT_GENERATION:
                self._join_again(why, now_ms, backoff=False, is_lost=True)
            case Remedy.REJOIN if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._join_again(why, now_ms, backoff=False)
            case _:
                self._join_again(why, now_ms, backoff=True)

    def _join_again(self, why: str, now_ms: int, *, backoff: bool, is_lost: bool = False) -> None:
        self._asked = False
        self.identity = self.identity.without_generation()
        self._backoff.on_failure(now_ms, waits=backoff)
        if backoff:
            self._new_member_id.on_coordinator_doubtful()
        self._fall_back(why, is_lost=is_lost)

    def _refuse(self, remedy: Remedy, code: int) -> None:
        offered = [name for name, _ in self._offers.of(self.topics, self.claim)]
        session = self.forms.of(self.identity).announced_session
        self._fail(failure_of(remedy, code, self.identity, session, offered))
