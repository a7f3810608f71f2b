"""One commit as a machine: it waits for its turn or for a round, is written, answered, sent again, and done.

Whoever carries it out asks `poll` what it waits for, writes the `request` under the coordinator's lock, and gives
`handle` what came of it. What an error code means is said in `commit_request.py` and in the remedies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, auto
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from aiogroup._core.cluster import Cluster
from aiogroup._core.membership.facts import CommitAnswered
from aiogroup._core.membership.identity import Identity
from aiogroup._core.membership.member import Membership
from aiogroup._core.offsets.commit_errors import not_owned_error
from aiogroup._core.offsets.commit_order import Commit, CommitOrder
from aiogroup._core.offsets.commit_plan import CommitEntry
from aiogroup._core.offsets.commit_request import (
    AboutMembership,
    Again,
    Refused,
    codes_of,
    commit_request,
    refusal_of,
    verdict_of,
)
from aiogroup._core.offsets.committed_request import BY_NAME
from aiogroup._core.protocol.errors import lookup
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aiogroup._core.values import dataclass
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    ConnectionLostError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    named,
    of_all_attempts,
)
from aiogroup.structs import TopicPartition

__all__ = [
    "ABANDONED", "REFRESHED", "UNWRITTEN", "Answered", "CommitAttempt", "CommitState", "Commits", "CoordinatorMoved",
    "Failed", "MadeDurable", "Step",
]  # fmt: skip


class CommitState(IntEnum):  # an int, which is hashed without a call of Python code
    DUE = auto()
    """To be written as soon as a connection is open and the coordinator's lock is free."""
    WAITING_TURN = auto()
    """A later commit of each of its partitions is under way."""
    WAITING_ROUND = auto()
    """The group decides a round, or is about to. The rebalance does not wait for such a commit."""
    SENT = auto()
    STALE = auto()
    """The metadata are asked for again before it is sent again."""
    RESTING = auto()
    """The backoff before it is sent again."""
    DONE = auto()


# Facts.


@dataclass(frozen=True, slots=True)
class Looked:
    """Time has passed, or something has changed: `poll` looks at what the commit waits for."""


@dataclass(frozen=True, slots=True)
class Writable:
    """A connection is open and nobody else writes: it is written now, if it is still due."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The request was made, and could not be written."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer came. Whoever reports it has settled the delivery."""

    response: OffsetCommitResponse


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer: the connection was lost, time ran out, or there is no coordinator that could be asked."""

    error: AiogroupError


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The metadata were asked for again."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """No task is left that could carry the commit on."""


Fact: TypeAlias = Looked | Writable | Unwritten | Answered | Failed | Refreshed | Abandoned
LOOKED: Final = Looked()
WRITABLE: Final = Writable()
UNWRITTEN: Final = Unwritten()
REFRESHED: Final = Refreshed()
ABANDONED: Final = Abandoned()


# Effects.


@dataclass(frozen=True, slots=True)
class MadeDurable:
    """Offsets of so many partitions are committed, this long after they were due."""

    partitions_count: int
    latency_ms: int


@dataclass(frozen=True, slots=True)
class CoordinatorMoved:
    """It is to be looked for again."""

    why: str


Effect: TypeAlias = MadeDurable | CoordinatorMoved | CommitAnswered
"""`CommitAnswered` is the fact that the membership must learn."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to carry out, and what the commit waits for then: at most until `wake_at_ms`. Each effect is told once."""

    state: CommitState
    wake_at_ms: int
    effects: tuple[Effect, ...] = ()


class Owned(Protocol):
    """The partitions that are owned, as commits see them."""

    def name_topics(self, commit: Commit) -> None: ...
    def is_owned_since(self, tp: TopicPartition, ownership: int) -> bool: ...
    def note_durable(self, tp: TopicPartition, entry: CommitEntry) -> None: ...
    def shorter(self, tp: TopicPartition, entry: CommitEntry) -> CommitEntry | None: ...


class Metadata(Protocol):
    """Where the newest metadata are found."""

    @property
    def cluster(self) -> Cluster: ...


class Commits:
    """The commits of one consumer: those under way, and what decides whether one may be sent now."""

    def __init__(
        self,
        owned: Owned,
        membership: Membership,
        metadata: Metadata,
        backoff_ms: Callable[[int], int],
        *,
        is_member: bool,
    ) -> None:
        self.owned = owned
        self.membership = membership
        self.metadata = metadata
        self.backoff_ms = backoff_ms
        self.is_member = is_member
        """Commits that begin now are sent under the member's generation."""
        self.is_held_back = False
        """Commits that are not written yet wait: the member is about to join and keeps partitions (cooperative)."""
        self.is_stopping = False
        """Partitions that are given up from now on are given up because the consumer stops."""
        self.order = CommitOrder()
        self.under_way: set[CommitAttempt] = set()
        # What failed commits left pending (automatic ones aside), less what became durable later.
        self.failed: dict[TopicPartition, CommitEntry] = {}

    def begin_as(self, *, is_member: bool) -> None:
        """Commits that begin from now on are a member's, or those of partitions that the application assigned."""
        self.is_member = is_member

    def hold_back(self) -> None:
        """As `is_held_back`."""
        self.is_held_back = True

    def release(self) -> None:
        """Commits that were held back go on, unless the group decides a round now."""
        self.is_held_back = False

    def stop(self) -> None:
        """As `is_stopping`."""
        self.is_stopping = True

    @property
    def must_wait(self) -> bool:
        """The group decides a round, or is about to: the coordinator would refuse commits."""
        return self.is_held_back or self.membership.commits_as is None

    @property
    def identity(self) -> Identity:
        """Whom a commit that need not wait is sent as."""
        return self.membership.commits_as or self.membership.identity

    @property
    def is_busy(self) -> bool:
        """Whether a rebalance must wait for a commit. One that waits for a round does not count, unless it need not
        wait any more: then it is about to be sent.
        """
        return any(each.state is not CommitState.WAITING_ROUND or not self.must_wait for each in self.under_way)

    def not_durable(self) -> dict[TopicPartition, int]:
        """Offsets that the application's own commits could not make durable, of partitions that are still owned."""
        is_owned_since = self.owned.is_owned_since
        return {tp: each.offset for tp, each in self.failed.items() if is_owned_since(tp, each.ownership)}


class CommitAttempt:
    """One call of a commit, from its begin to its end. It ends at `until_ms` at the latest.

    With `error` the call raises when it is done. `commit` says what became of each partition.
    """

    __slots__ = (
        "_commits", "_committed", "_due_at_ms", "_effects", "_failures_count", "_last", "_refused", "_wake_at_ms",
        "began_at_ms", "commit", "error", "is_automatic", "state", "until_ms",
    )  # fmt: skip

    def __init__(
        self,
        commits: Commits,
        entries: Mapping[TopicPartition, CommitEntry],
        now_ms: int,
        timeout: int,
        *,
        automatic: bool = False,
    ) -> None:
        """An `automatic` commit that is covered by one under way is put before it, as if it had been called earlier."""
        self.state = CommitState.DUE
        self.error: AiogroupError | None = None
        self.is_automatic = automatic
        self.began_at_ms = self._due_at_ms = now_ms
        self.until_ms = self._wake_at_ms = now_ms + timeout
        self.commit = commits.order.begin(entries, automatic=automatic)
        self.commit.is_member = commits.is_member
        self._commits = commits
        self._committed: dict[TopicPartition, int] = {}
        self._effects: list[Effect] = []
        self._failures_count = 0
        self._last: AiogroupError | None = None  # why it was not done yet
        self._refused: AiogroupError | None = None
        commits.owned.name_topics(self.commit)
        commits.under_way.add(self)

    def handle(self, fact: Fact, now_ms: int) -> None:
        """Take a fact in. One that says nothing in this state, as an answer that comes too late, is ignored."""
        react = self.REACTIONS[self.state].get(type(fact))
        if react is not None:
            react(self, fact, now_ms)

    def poll(self, now_ms: int) -> Step:
        """What is to be done now."""
        self.handle(LOOKED, now_ms)
        effects, self._effects = tuple(self._effects), []
        return Step(self.state, self._wake_at_ms, effects)

    # For whoever writes it.

    def may_go_at_once(self, now_ms: int) -> bool:
        """Whether it may be written in the step in which it begins. A rebalance that is due may give partitions up
        before the next one: the application has just unsubscribed.
        """
        return self.until_ms > now_ms and not (self.commit.is_member and self._commits.membership.is_rebalancing)

    @property
    def at_most(self) -> int | None:
        """The newest version that can name all topics."""
        return None if self.commit.pending.keys() <= self.commit.topic_ids.keys() else BY_NAME

    def request(self) -> OffsetCommitRequest | None:
        """The request that is written now, under the identity of this moment; `None` if nothing may be sent now."""
        self.handle(WRITABLE, self._due_at_ms)
        return commit_request(self.commit, self.commit.sent_as) if self.state is CommitState.SENT else None

    @property
    def stale_topics(self) -> set[str]:
        """The topics whose metadata may be out of date, as the last answer said."""
        return {tp.topic for tp in self.commit.stale & self.commit.pending.keys()}

    # Reactions.

    def _look(self, _fact: Fact, now_ms: int) -> None:
        commit, commits = self.commit, self._commits
        self._drop_not_owned()
        self._wake_at_ms = self.until_ms
        if not commit.pending:
            self._end()
        elif self.until_ms <= now_ms:
            self._end(self._time_is_over(now_ms))
        elif commit.is_member and commits.must_wait:
            self._last = RebalanceInProgressError("the group is rebalancing; ask for records, then commit again")
            self.state = CommitState.WAITING_ROUND
        elif not commits.order.due(commit):
            self.state = CommitState.WAITING_TURN
        else:
            self._due_at_ms = now_ms
            self.state = CommitState.DUE

    def _look_after_rest(self, fact: Fact, now_ms: int) -> None:
        if now_ms >= self._wake_at_ms:
            self._look(fact, now_ms)

    def _write(self, _fact: Fact, _now_ms: int) -> None:
        commit, commits = self.commit, self._commits
        self._drop_not_owned()
        if commit.is_member and commits.must_wait:
            return
        commit.sent = commits.order.due(commit)
        if commit.sent:
            commit.sent_as = commits.identity
            self.state = CommitState.SENT

    def _take_back(self, _fact: Fact, _now_ms: int) -> None:
        self.state = CommitState.DUE

    def _take(self, fact: Answered, now_ms: int) -> None:
        commit, order = self.commit, self._commits.order
        answers = codes_of(fact.response, commit)
        about_request, about_metadata = order.too_long(commit, answers.values()) if any(answers.values()) else ((), ())
        durable_count, self._last = 0, None
        refused: list[AiogroupError] = []
        for tp, code in answers.items():
            entry = commit.pending.get(tp)
            if entry is None:
                continue
            if not code:
                self._note_durable(tp, entry)
                durable_count += 1
            elif code in about_request:
                self._send_again(tp, entry, code)
            elif code in about_metadata and (shorter := self._commits.owned.shorter(tp, entry)) is not None:
                self._send_again(tp, shorter, code)
            else:
                self._judge(tp, code, refused)
        if refused and self._refused is None:
            self._refused = refusal_of(refused)
        if durable_count:
            self._effects.append(MadeDurable(durable_count, now_ms - self._due_at_ms))
        if not commit.pending:
            self._end()
            return
        if self._last is None and (missing := commit.sent.keys() & commit.pending.keys() - answers.keys()):
            why = f"the answer lacks {named(missing)}"
            self._last = BrokerError(-1, "UNKNOWN_SERVER_ERROR", why, retriable=True)
        if self._last is None:
            self.state = CommitState.DUE  # the rest, which did not fit into the request or was not due
        else:
            self._rest(now_ms)

    def _fail(self, fact: Failed, now_ms: int) -> None:
        if not isinstance(fact.error, ConnectionLostError | KafkaTimeoutError):
            self._end(fact.error)
        elif not self.commit.pending:
            self._end()
        else:
            self._last = fact.error
            self._rest(now_ms)

    def _back_off(self, _fact: Fact, now_ms: int) -> None:
        self.commit.stale = set()
        self._wake_at_ms = min(now_ms + self._commits.backoff_ms(self._failures_count), self.until_ms)
        self.state = CommitState.RESTING

    def _abandon(self, _fact: Fact, _now_ms: int) -> None:
        self._end()

    # Parts of them.

    def _rest(self, now_ms: int) -> None:
        self._failures_count += 1
        if self.stale_topics:
            self._wake_at_ms = self.until_ms
            self.state = CommitState.STALE
        else:
            self._back_off(REFRESHED, now_ms)

    def _drop_not_owned(self) -> None:
        commit, commits = self.commit, self._commits
        if commit.topic_ids:
            cluster = commits.metadata.cluster
            for tp, topic_id in commit.topic_ids.items():
                if cluster.topic_id(tp.topic) not in (topic_id, None):
                    commit.gone.add(tp)
        is_lost = False
        if commit.is_member:
            # Without a generation the request would name no member, which a coordinator accepts while a group is empty.
            is_lost = not commits.must_wait and not commits.identity.is_member
        is_owned_since = commits.owned.is_owned_since
        for tp, entry in tuple(commit.pending.items()):
            is_left = commit.is_member and (is_lost or not is_owned_since(tp, entry.ownership))
            if is_left or tp in commit.gone:
                commit.not_owned.add(tp)
                del commit.pending[tp]

    def _note_durable(self, tp: TopicPartition, entry: CommitEntry) -> None:
        commits = self._commits
        commits.owned.note_durable(tp, entry)
        commits.failed.pop(tp, None)
        commits.order.acknowledge(self.commit, tp)
        del self.commit.pending[tp]
        self._committed[tp] = entry.offset

    def _send_again(self, tp: TopicPartition, entry: CommitEntry, code: int) -> None:
        """The coordinator may accept it in a shorter request, or with a shorter token."""
        row = lookup(code)
        self.commit.pending[tp] = entry
        self._last = BrokerError(code, row.name, row.message, retriable=True)

    def _judge(self, tp: TopicPartition, code: int, refused: list[AiogroupError]) -> None:
        commit = self.commit
        is_gone = self._commits.metadata.cluster.lacks(tp.topic)
        match verdict_of(code, tp, commit.sent_as.group_id, is_member=commit.is_member, is_gone=is_gone):
            case Again(error, coordinator_moved, metadata_is_stale):
                self._last = error
                if coordinator_moved:
                    self._effects.append(CoordinatorMoved(f"commit: {lookup(code).name}"))
                if metadata_is_stale:
                    commit.stale.add(tp)
            case AboutMembership(error, is_past):
                self._last = error
                self._effects.append(CommitAnswered(commit.sent_as, code))
                if is_past and self._commits.is_stopping:  # no later round can make it acceptable: none is waited for
                    commit.not_owned.add(tp)
                    del commit.pending[tp]
            case Refused(error):
                refused.append(error)
                del commit.pending[tp]
                commit.refused.add(tp)

    def _time_is_over(self, now_ms: int) -> AiogroupError:
        if self._last is None:
            return KafkaTimeoutError(
                f"offsets of {named(self.commit.pending)} were not committed in time; commit again"
            )
        return of_all_attempts(self._last, "the commit", self._failures_count, now_ms - self.began_at_ms)

    def _end(self, error: AiogroupError | None = None) -> None:
        commit, commits = self.commit, self._commits
        self.state = CommitState.DONE
        self.error = error or self._refused
        if self.error is None and commit.not_owned:
            self.error = commits.membership.failure or not_owned_error(
                commit.not_owned, self._committed, gone=commit.gone, is_stopping=commits.is_stopping
            )
        commits.order.end(commit)
        commits.under_way.discard(self)

    REACTIONS: ClassVar[Mapping[CommitState, Mapping[type, Callable[[CommitAttempt, Any, int], None]]]] = {
        CommitState.DUE: {Looked: _look, Writable: _write, Failed: _fail, Abandoned: _abandon},
        CommitState.WAITING_TURN: {Looked: _look, Abandoned: _abandon},
        CommitState.WAITING_ROUND: {Looked: _look, Abandoned: _abandon},
        CommitState.SENT: {Unwritten: _take_back, Answered: _take, Failed: _fail, Abandoned: _abandon},
        CommitState.STALE: {Refreshed: _back_off, Abandoned: _abandon},
        CommitState.RESTING: {Looked: _look_after_rest, Abandoned: _abandon},
        CommitState.DONE: {},
    }
    """What each fact does in each state. A fact that is not here says nothing there."""
