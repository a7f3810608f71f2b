"""What the application may ask about offsets, answered from what is known or by asking leaders."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.structs import OffsetAndTimestamp, TopicPartition

from aiogroup.errors import AiogroupError, IllegalStateError, KafkaTimeoutError
from aiogroup.fetching.position import Partition, PositionState
from aiogroup.runtime.clock import now_ms
from aiogroup.runtime.context import Context
from aiogroup.runtime.refresher import LATEST, Refresher

__all__ = ["Enquiries"]


class Enquiries:
    def __init__(self, context: Context, refresher: Refresher) -> None:
        self._context = context
        self._refresher = refresher
        self._wanted_ends: set[TopicPartition] = set()

    async def position(self, partition: Partition, until_ms: int | None = None) -> int:
        """The partition's position; waits while it is looked up, never for an assignment.

        Raises:
            IllegalStateError: it was revoked meanwhile.
            RecordError: the application must seek.
            KafkaTimeoutError: not known until `until_ms`, without it in `default_api_timeout_ms`.
        """
        if until_ms is None:
            until_ms = now_ms() + self._context.config.default_api_timeout_ms
        while True:
            self._context.delivery.settle()
            if partition.position is not None and partition.state is not PositionState.VALIDATING:
                return partition.position
            if partition.state is PositionState.STUCK and partition.error is not None:
                raise partition.error
            if not self.is_still(partition):
                raise IllegalStateError(f"{partition.tp} is not assigned any more")
            if now_ms() >= until_ms:
                raise KafkaTimeoutError(f"the position of {partition.tp} is not known yet")
            await self._context.changed.wait(until_ms)

    def is_still(self, partition: Partition) -> bool:
        """The same ownership goes on."""
        return self._context.assignment.is_owned_since(partition.tp, partition.ownership)

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by timestamp or mark, within `default_api_timeout_ms`. Raises as Refresher.list_offsets."""
        if not wanted:
            return {}
        config = self._context.config
        until_ms = now_ms() + config.default_api_timeout_ms
        await self._refresher.require_partitions(wanted, until_ms)
        found = await self._refresher.list_offsets(wanted, until_ms, read_committed=config.read_committed)
        self._note_ends(wanted, found)
        return found

    async def lag(self) -> int:
        """Ask every leader now and add up, all within `default_api_timeout_ms`."""
        until_ms = now_ms() + self._context.config.default_api_timeout_ms
        assignment = self._context.assignment
        ends = await self.list_offsets(dict.fromkeys(assignment.names, LATEST))
        total = 0
        for tp, end in ends.items():
            partition = assignment.get(tp)
            if partition is not None:
                total += max(0, end.offset - await self.position(partition, until_ms))
        return total

    def want_end(self, partition: Partition) -> None:
        """Ask for an end offset in the background; a later `current_lag` knows it (KIP-695)."""
        known = partition.last_offset(read_committed=self._context.config.read_committed) is not None
        if known or partition.tp in self._wanted_ends:
            return
        self._wanted_ends.add(partition.tp)
        self._context.supervisor.spawn("end offset", self._learn_end, partition.tp)

    async def _learn_end(self, tp: TopicPartition) -> None:
        try:
            await self.list_offsets({tp: LATEST})
        except AiogroupError:
            pass  # still unknown; the next current_lag asks again
        finally:
            self._wanted_ends.discard(tp)

    def _note_ends(
        self, wanted: Mapping[TopicPartition, int], found: Mapping[TopicPartition, OffsetAndTimestamp]
    ) -> None:
        for tp, at in wanted.items():
            partition = self._context.assignment.get(tp)
            if at != LATEST or partition is None:
                continue
            if self._context.config.read_committed:
                partition.last_stable_offset = found[tp].offset
            else:
                partition.end_offset = found[tp].offset
