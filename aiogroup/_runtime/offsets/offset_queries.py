"""Answers the application's questions about offsets, from what is known locally or by asking leaders."""

from __future__ import annotations

from collections.abc import Mapping

from aiogroup._core.changes import Change, Changes, Waiter
from aiogroup._core.delivery.delivery import Delivery
from aiogroup._core.fetching.assignment import Assignment
from aiogroup._core.fetching.partition import Partition, PositionState
from aiogroup._runtime.inbox import Inbox
from aiogroup._runtime.loop.clock import Signal, now_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup._runtime.metadata.refresher import Refresher
from aiogroup._runtime.net.link import Link
from aiogroup._runtime.offsets.leader_offsets import LATEST, LeaderOffsets
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, ConsumerStoppedError, IllegalStateError, KafkaTimeoutError
from aiogroup.records import Lag, PartitionLag
from aiogroup.structs import OffsetAndTimestamp, TopicPartition

__all__ = ["OffsetQueries"]


class OffsetQueries:
    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        assignment: Assignment,
        delivery: Delivery,
        changes: Changes[Signal],
        supervisor: Supervisor,
        inbox: Inbox,
        refresher: Refresher,
        offsets: LeaderOffsets,
    ) -> None:
        self._config = config
        self._link = link
        self._assignment = assignment
        self._delivery = delivery
        self._changes = changes
        self._supervisor = supervisor
        self._inbox = inbox
        self._refresher = refresher
        self._offsets = offsets
        self._wanted_ends: list[TopicPartition] = []
        self._asked_ends: set[TopicPartition] = set()

    async def position(self, partition: Partition, until_ms: int | None = None) -> int:
        """The partition's position. Waits while it is looked up, but never for an assignment.

        Raises:
            IllegalStateError: the partition was revoked meanwhile.
            RecordError: the application must seek.
            KafkaTimeoutError: the position was not known at `until_ms`, or within `default_api_timeout_ms` without it.
            ConsumerStoppedError: the consumer was stopped meanwhile.
            AiogroupError: the consumer failed meanwhile.
        """
        if until_ms is None:
            until_ms = now_ms() + self._config.default_api_timeout_ms
        while True:
            self._delivery.settle()
            if partition.position is not None and partition.state is not PositionState.VALIDATING:
                return partition.position
            if partition.state is PositionState.STUCK and partition.error is not None:
                raise partition.error
            if not self.is_still(partition):
                raise IllegalStateError(f"{partition.tp} is not assigned any more")
            self._inbox.raise_fatal()
            if self._link.is_closed:
                raise ConsumerStoppedError(f"the consumer was stopped before the position of {partition.tp} was known")
            if now_ms() >= until_ms:
                raise KafkaTimeoutError(f"the position of {partition.tp} is not known yet")
            await self._changes[Waiter.REQUESTS].wait(until_ms)

    def is_still(self, partition: Partition) -> bool:
        """The partition's ownership has not ended."""
        return self._assignment.is_owned_since(partition.tp, partition.ownership)

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by timestamp, or by `EARLIEST` or `LATEST`, within `default_api_timeout_ms`.

        Raises:
            AiogroupError: the errors of `LeaderOffsets.list_offsets`.
        """
        if not wanted:
            return {}
        config = self._config
        until_ms = now_ms() + config.default_api_timeout_ms
        await self._refresher.require_partitions(wanted, until_ms)
        found = await self._offsets.list_offsets(wanted, until_ms, read_committed=config.read_committed)
        self._note_ends({tp: each for tp, each in found.items() if wanted[tp] == LATEST})
        return found

    async def lag(self) -> Lag:
        """Ask every leader now, one request each, all within `default_api_timeout_ms`."""
        until_ms = now_ms() + self._config.default_api_timeout_ms
        assignment = self._assignment
        ends = await self.list_offsets(dict.fromkeys(assignment.names, LATEST))
        answered_at_ms = now_ms()
        lags: dict[TopicPartition, int] = {}
        for tp, end in ends.items():
            partition = assignment.get(tp)
            if partition is not None:
                lags[tp] = max(0, end.offset - await self.position(partition, until_ms))
        age_ms = now_ms() - answered_at_ms
        pending = {each.tp: each.lanes.left_count or 0 for each in assignment if each.tp in lags}
        return Lag(
            sum(lags.values()),
            sum(pending.values()),
            {tp: PartitionLag(lag + pending.get(tp, 0), age_ms) for tp, lag in lags.items()},
        )

    def current_lag(self, partition: Partition) -> int | None:
        """The lag as far as it is known locally (KIP-695); an end that is not known is asked for in the background."""
        self._delivery.settle()
        lag = self.known_lag(partition)
        if lag is None:
            self.want_end(partition)
        return lag

    def known_lag(self, partition: Partition) -> int | None:
        """The lag of both lanes together, without asking for anything. The caller has settled the delivery."""
        lag = partition.lag(read_committed=self._config.read_committed)
        return None if lag is None else lag + (partition.lanes.left_count or 0)

    def want_end(self, partition: Partition) -> None:
        """Ask for an end offset in the background, in one request with the others wanted in this turn of the loop."""
        known = partition.log.last_offset(read_committed=self._config.read_committed) is not None
        if known or partition.tp in self._asked_ends:
            return
        self._asked_ends.add(partition.tp)
        if not self._wanted_ends:
            self._supervisor.spawn("end offsets", self._learn_ends)
        self._wanted_ends.append(partition.tp)

    async def _learn_ends(self) -> None:
        """Ask for the wanted end offsets. An end that no leader answers stays unknown; `current_lag` asks again."""
        wanted, self._wanted_ends = self._wanted_ends, []
        config = self._config
        until_ms = now_ms() + config.default_api_timeout_ms
        try:
            asked = dict.fromkeys(wanted, LATEST)
            await self._offsets.ask_leaders(asked, until_ms, self._note_ends, read_committed=config.read_committed)
        except AiogroupError:
            pass
        finally:
            self._asked_ends.difference_update(wanted)

    def _note_ends(self, found: Mapping[TopicPartition, OffsetAndTimestamp]) -> None:
        for tp, end in found.items():
            partition = self._assignment.get(tp)
            if partition is None:
                continue
            partition.log.hear_end(end.offset, now_ms(), read_committed=self._config.read_committed)
        self._delivery.look_again(Change.ANSWERED)
