"""The fetchers: every broker's partitions are kept buffered, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from aiogroup._core.changes import Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.asking.broker_fetch import BY_NAME, AfterSeek, BrokerFetch, Brokers, Denied
from aiogroup._core.fetching.asking.budget import FetchBudget
from aiogroup._core.fetching.asking.planner import Planner
from aiogroup._core.fetching.asking.sessions import request_for
from aiogroup._core.fetching.assignment import Assignment, LaneTable
from aiogroup._core.fetching.lane import Lane
from aiogroup._core.fetching.records.decode import DecodeSettings, PassedOver
from aiogroup._core.fetching.target import UNKNOWN
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.counts import FETCH_FAILED, Failures
from aiogroup._core.telemetry.events import Emit
from aiogroup._runtime.fetching.acks import acknowledging
from aiogroup._runtime.fetching.lane_rules import LaneRules
from aiogroup._runtime.fetching.sender import Sender
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import COMMIT, HEARTBEAT, METADATA, Link
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, named
from aiogroup.structs import TopicPartition

__all__ = ["Fetchers"]

M = TypeVar("M", bound=BrokerFetch)
AGAIN_MS: Final = 1_000
"""How often fresh metadata are asked for while a broker is silent."""
OVERDUE_MS: Final = 3_000
AFTER_SEEK: Final = " after a seek"
ELECTION_MS: Final = 5_000
"""A partition that has had no leader for longer is told of: no election takes so long."""
NO_LEADER: Final = "no broker leads these partitions"
CONNECT_AGAIN_MS: Final = 10_000
"""How long a node may deny that it is the leader, after it was connected again for that, until it is once more."""


class Fetchers:
    """Starts and ends one sender per broker that leads, or is preferred for, one of the lanes."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        emit: Emit,
        failures: Failures,
        supervisor: Supervisor,
        inbox: Inbox,
        refresher: Refresher,
        lanes: LaneTable[Lane],
        rules: LaneRules,
    ) -> None:
        self._config = config
        self._link = link
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._emit = emit
        self._failures = failures
        self._supervisor = supervisor
        self._inbox = inbox
        self._refresher = refresher
        self._rules = rules
        self._lanes = lanes
        self._channel = rules.channel
        self._planner = Planner(lanes, config)
        self._senders: dict[int, Sender[BrokerFetch]] = {}
        self._after_seek: dict[int, Sender[AfterSeek]] = {}
        self._patience_ms = config.fetch_max_wait_ms + OVERDUE_MS
        self._no_leader_since_ms: int | None = None
        self._told_leaderless_at_ms = 0
        self._denied_at_ms: dict[TopicPartition, int] = {}  # when a leader denied it first
        settings = DecodeSettings(
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            lane=rules.lane,
            max_batch_bytes=config.max_batch_bytes,
        )
        budget = FetchBudget(lanes, config.lane_buffer_bytes(rules.lane), config.max_partition_fetch_bytes)
        self._brokers = Brokers(self._planner, budget, config, settings, acknowledging(delivery), now_ms())

    def read_up_to(self, ends: Mapping[TopicPartition, int]) -> list[PassedOver]:
        """From now on fetch nothing of these partitions once all before these offsets is buffered. The mapping may be
        changed; a seek takes a change up.

        Returns:
            A list that gets each batch that is passed over. It must be emptied again and again.
        """
        noted: list[PassedOver] = []
        self._brokers.ends = ends
        self._brokers.settings = replace(self._brokers.settings, passed_over=noted)
        return noted

    async def run(self) -> None:
        """Keep one sender running for each broker that is needed, and have those go on that wait."""
        has_changed, bell = True, self._changes[Waiter.FETCHERS]
        try:
            while True:
                now, seen_count = now_ms(), bell.pulses_count
                self._brokers.look(self._link.cluster, now)
                self._follow_plan(now)
                if has_changed:
                    self._wake_senders()
                    self._follow_seeks(now)
                if self._is_any_silent(now) and now >= self._refresher.asked_at_ms + AGAIN_MS:
                    self._refresher.want()
                # A sender that is woken or ended may free memory, or find that a lane has moved to another broker.
                has_changed = await bell.wait(self._look_at_ms(now), since=seen_count)
        finally:
            for sender in [*self._senders.values(), *self._after_seek.values()]:
                sender.end()
            self._senders.clear()
            self._after_seek.clear()

    def _follow_plan(self, now: int) -> None:
        nodes = set(self._planner.nodes)
        if UNKNOWN in nodes:
            if self._no_leader_since_ms is None:
                self._no_leader_since_ms = now
            self._ask_for_leaders(now)
        elif self._no_leader_since_ms is not None:
            self._no_leader_since_ms = None
            self._failures.end(FETCH_FAILED, -1, why=NO_LEADER)
        nodes.discard(UNKNOWN)
        for node_id in self._senders.keys() - nodes:
            self._senders.pop(node_id).end()
            self._failures.end(FETCH_FAILED, node_id)
        for node_id in nodes - self._senders.keys():
            self._senders[node_id] = sender = self._sender(BrokerFetch(node_id, self._brokers, now), self._channel)
            sender.start()

    def _ask_for_leaders(self, now: int) -> None:
        """While an election may go on, ask as often as metadata may be asked for. After that ask once a second, and
        emit an event each time.
        """
        leaderless = self.leaderless(now)
        if leaderless and now < self._told_leaderless_at_ms + AGAIN_MS:
            return
        self._refresher.want()
        if leaderless:
            self._told_leaderless_at_ms = now
            self._emit(events.FetchFailed(-1, None, None, f"{NO_LEADER}: {named(leaderless)}"))

    def _wake_senders(self) -> None:
        """Something has changed, so a request may be due to a broker that has none."""
        for node_id, sender in [*self._senders.items()]:
            sender.wake()
            if sender.machine.is_under_way:  # the one that has waited longest comes first
                self._senders[node_id] = self._senders.pop(node_id)

    def _sender(self, machine: M, channel: str) -> Sender[M]:
        return Sender(
            machine,
            channel,
            config=self._config,
            link=self._link,
            delivery=self._delivery,
            changes=self._changes,
            emit=self._emit,
            failures=self._failures,
            supervisor=self._supervisor,
            inbox=self._inbox,
            refresher=self._refresher,
            rules=self._rules,
            on_denied=self._on_denied,
            planned_at_ms=self._planned_at_ms,
        )

    def _planned_at_ms(self) -> int | None:
        return self._planner.wake_at_ms

    def _follow_seeks(self, now: int) -> None:
        """Fetch moved partitions at once: a request that waits at the broker for other records must not delay them."""
        for node_id in [*self._after_seek]:
            if not self._planner.moved(node_id):
                self._after_seek.pop(node_id).end()
        if not self._lanes.tally.moved:
            return
        self._delivery.supply.want_drained()  # a lane that was moved may be left out, as its buffer is full
        for node_id, sender in self._senders.items():
            if sender.machine.asked_at_ms is not None and self._planner.moved(node_id):
                after = self._after_seek.get(node_id)
                if after is None:
                    machine = AfterSeek(node_id, self._brokers, now)
                    after = self._after_seek[node_id] = self._sender(machine, self._channel + AFTER_SEEK)
                after.machine.hurry()
                after.wake()

    def _is_any_silent(self, now: int) -> bool:
        """Whether a fetch is long overdue: its broker may have frozen and lost its leadership, which fresh metadata
        tell. Waiting for the time-out would take much longer.
        """
        since_ms = now - self._patience_ms
        return any((each.machine.asked_at_ms or now) < since_ms for each in self._senders.values())

    def _look_at_ms(self, now: int) -> int:
        """When the plan changes by time alone, or a broker would be silent: nobody tells of these."""
        if self._no_leader_since_ms is not None or self._is_any_silent(now):
            again_at_ms = self._refresher.asked_at_ms + AGAIN_MS
            return again_at_ms if again_at_ms > now else now + AGAIN_MS
        asked_at_ms = (each.machine.asked_at_ms or now for each in self._senders.values())
        silent_at_ms = min(asked_at_ms, default=now) + self._patience_ms + 1
        planned_at_ms = self._planner.wake_at_ms
        return silent_at_ms if planned_at_ms is None else min(silent_at_ms, planned_at_ms)

    def note_assignment(self) -> None:
        """Partitions came or went: count the silence of brokers from now on."""
        self._brokers.answered_at_ms = now_ms()

    def unanswered_ms(self, now: int, *, lacks_positions: bool) -> int:
        """For how long no broker has answered a fetch although records are wanted; 0 if none are wanted. Those of
        partitions that lack their position are, too.
        """
        no_leader_since_ms = self._no_leader_since_ms if self._planner.leaderless else None  # else the topic is missing
        since_ms = [no_leader_since_ms, *(each.machine.tried_since_ms for each in self._senders.values())]
        tried_since_ms = min((each for each in since_ms if each is not None), default=None)
        if tried_since_ms is None and not lacks_positions:
            return 0
        return now - max(tried_since_ms or 0, self._brokers.answered_at_ms)

    def unanswered(self, since_ms: int) -> list[TopicPartition]:
        """The partitions whose broker owes an answer to a fetch since that instant or longer."""
        unanswered: list[TopicPartition] = []
        for node_id, sender in self._senders.items():
            tried_since_ms = sender.machine.tried_since_ms
            if tried_since_ms is not None and tried_since_ms <= since_ms:
                unanswered += self._planner.broker(node_id).partitions
        return sorted(unanswered)

    def leaderless(self, now: int) -> list[TopicPartition]:
        """The partitions without a leader, once there have been some for longer than an election takes."""
        since_ms = self._no_leader_since_ms
        return [] if since_ms is None or now - since_ms < ELECTION_MS else self._planner.leaderless

    def heard_at_ms(self, lane: Lane) -> int | None:
        return self._planner.heard_at_ms(lane)

    def answered_at_ms(self, lane: Lane) -> int | None:
        return self._planner.answered_at_ms(lane)

    def end_sessions(self) -> None:
        """Close the brokers' fetch sessions (KAFKA-7109). Call this once no fetcher runs.

        A broker has room for a thousand sessions, and keeps an unused one for at least two minutes. This is best
        effort: nobody waits for an answer, and a session whose first answer has not arrived cannot be closed. A session
        belongs to no connection. One on which no fetch waits is best: a broker usually still reads what was written
        behind a fetch before the connection was closed, but not if the connection breaks while it sends a long answer.
        """
        link = self._link
        for node_id, session in self._planner.sessions.items():
            connection, last = link.opened(node_id, METADATA, COMMIT, HEARTBEAT, self._channel), session.end()
            if connection is not None and last is not None:
                with suppress(AiogroupError):
                    request = request_for(last, self._config, max_bytes=0, max_wait_ms=0)
                    connection.write(request, at_most=None if last.has_ids else BY_NAME)

    def _on_denied(self, node_id: int, denied: Denied) -> None:
        """If fresh metadata still call this node the leader, another one may answer here: a name or an address that was
        used again leads there, and so does the connection as long as it is open. Connect again.
        """
        tp, now = denied.lane.tp, now_ms()
        if denied.is_first:
            self._denied_at_ms[tp] = now
        elif self._refresher.asked_at_ms > self._denied_at_ms.get(tp, now):
            link = self._link
            if link.let_go(node_id, self._channel):  # else another request is under way there, and is refused, too
                self._denied_at_ms[tp] = now + CONNECT_AGAIN_MS
                link.let_go(node_id, self._channel + AFTER_SEEK)
                link.let_go(node_id, METADATA)
