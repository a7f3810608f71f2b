"""Faults aimed at moments of the protocol: what chance hits once in a thousand seeds, these hit in most."""

from __future__ import annotations

import contextlib

from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.offset_commit import OffsetCommitRequest
from aiogroup._core.protocol.messages.sync_group import SyncGroupRequest
from aiogroup.errors import AiogroupError


class Aims:
    """Of a world."""

    def _overtake(self):
        """The member asks for a round when this is on its way: the round passes it, or waits for it."""
        if (member := self._member()) is not None:
            request = self.rng.choice((OffsetCommitRequest, HeartbeatRequest))
            self._hold(member, request, lambda: self._ask_for_round(member))

    def _late(self):
        """Somebody else asks for a round, and this comes late in it."""
        if (member := self._member()) is not None:
            request = self.rng.choice((JoinGroupRequest, SyncGroupRequest, OffsetCommitRequest, HeartbeatRequest))
            self._hold(member, request, lambda: None)
            self._ask_for_round(self._member())

    def _hold(self, member, request, then):
        is_up, late_ms = self.rng.random() < 0.7, self.rng.choice((300, 800, 1_200))
        member.tell(f"next {request.__name__}: {'it' if is_up else 'its answer'} is late by {late_ms} ms")
        self.network.hold(member.process, request.API_KEY, late_ms, then, is_up=is_up)

    def _outlive(self):
        """A commit is on its way when its member is cut off, for longer than a session; then the member comes back."""
        committing = [each for each in self.alive if each.is_running and each.style in ("batches", "lanes")]
        member = self.rng.choice(committing) if committing else self._member()
        if member is not None and max(self.network.blocked_until.values(), default=0) < self.loop.time():
            duration_ms = self.settings["session_timeout_ms"] + self.rng.choice((500, 2_000, 4_000))
            self.network.hold(
                member.process, OffsetCommitRequest.API_KEY, 50, lambda: self._cut_off(member, duration_ms), is_up=True
            )

    def _cut_off(self, member, duration_ms):
        member.tell(f"is cut off for {duration_ms} ms")
        self.network.block_nodes(member.process, [node.node_id for node in self.brokers.cluster.nodes], duration_ms)
        self.network.cut_all(client=member.process)

    def _mute(self):
        """What a member says to the coordinator is lost, so the group goes on without it; it goes on fetching."""
        others_are_heard = max(self.network.lost.values(), default=0) < self.loop.time()
        if len(self.alive) > 1 and others_are_heard and (member := self._member()) is not None:
            duration_ms = self.rng.choice((3, 4)) * self.settings["session_timeout_ms"]
            member.tell(f"is not heard by the coordinator for {duration_ms} ms")
            self.network.lose(member.process, (HeartbeatRequest, OffsetCommitRequest), duration_ms)

    def _leave_out(self):
        """An application is busy for longer than the group waits; a static member is kept all the same."""
        if (member := self._member()) is not None:
            member.busy_ms = self.rng.choice((4_000, 6_000))
            member.on_busy = lambda: self._ask_for_round(self._member())

    def _take_name(self):
        """Two processes have one name, and both are well."""
        if (member := self._member()) is not None and member.instance_id is not None:
            self.shared_names.add(member.instance_id)
            self.add_member(member.instance_id)

    def _ask_for_round(self, member):
        if member is None or not member.is_running or member.process.is_halted or member.is_stopping:
            return
        member.tell("asks for a round")
        task = self.loop.create_task(_asked(member.consumer), context=member.process.context.copy())
        self.track(task)


async def _asked(consumer):
    with contextlib.suppress(AiogroupError):
        await consumer.enforce_rebalance()
