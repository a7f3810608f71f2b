"""How a consumer ends: in order, and never later than its time-out, whatever the brokers do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from aiogroup._core.changes import Change, Waiter
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import repr_of
from aiogroup._runtime.delivery.readers import readers
from aiogroup._runtime.departure import Leaver
from aiogroup._runtime.engine import Engine
from aiogroup._runtime.loop.clock import now_ms
from aiogroup._runtime.loop.stages import Stages
from aiogroup.structs import TopicPartition

__all__ = ["Shutdown", "StopReport"]


@dataclass(frozen=True, slots=True)
class StopReport:
    """What `stop` could not do. If everything was done it is empty: `is_clean`.

    `not_committed` holds processed offsets that are not committed (with auto-commit off: those for which the
    application's own commits failed). `in_hand` holds how many records of each partition the application had not
    processed. The records of both are delivered again. `problems` gives the reasons, and the errors that no call raises
    any more, for example of the last callback.
    """

    not_committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    in_hand: Mapping[TopicPartition, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.not_committed or self.in_hand or self.problems)


SAY_SO: Final = (
    "these records come again. If they are processed, say so before stop(): ask for the next record, or await "
    "consumer.commit(); with auto_ack=False record.ack()"
)


CANCELLED: Final = "stop() was cancelled: what was not committed, and what was in hand, is not known"


class Shutdown:
    """Made by the task that stops the consumer, and run in a task of its own, so that it ends however often that one is
    cancelled.

    `has_failed`: an error of the application is under way, so it knows why records are in hand.
    """

    def __init__(
        self, engine: Engine, timeout: int, *, drain: bool, leave_group: bool | None, has_failed: bool
    ) -> None:
        self._engine = engine
        self._stages = Stages(timeout)
        self._drain = drain
        self._leave_group = leave_group
        self._has_failed = has_failed
        self._who = readers()

    async def run(self) -> StopReport:
        engine, stages = self._engine, self._stages
        group: Leaver = engine.group
        engine.requests.stop()
        not_committed: dict[TopicPartition, int] = {}
        in_hand: dict[TopicPartition, int] = {}
        set_aside = engine.assignment.blocks.set_aside
        try:
            with engine.stopping.draining(waits=self._drain):
                await stages.run("hand-over", self._wait_for_hand_over(), stages.timeout // 2)
                await group.come_to_rest(stages)
            group.end_tasks()
            in_hand, set_aside = engine.delivery.in_hand(), engine.assignment.blocks.set_aside
            not_committed = await group.leave(stages, leave_group=self._leave_group)
        except asyncio.CancelledError:  # with all tasks of the loop, as at the end of `asyncio.run`
            stages.problems.append(CANCELLED)
        finally:
            await stages.close(engine.close())
        not_raised = (f"not raised any more: {repr_of(error)}" for error in engine.inbox.take_rest())
        problems = (*stages.problems, *not_raised)
        report = StopReport(not_committed, in_hand, problems)
        comes_again = engine.config.group_id is not None and not self._has_failed
        if left := {tp: in_hand[tp] for tp in in_hand.keys() - set_aside} if comes_again else {}:
            engine.emit(events.RecordsLeftInHand(tuple(sorted(left)), sum(left.values()), SAY_SO))
        if not_committed or problems:
            engine.emit(events.StopIncomplete(tuple(sorted(not_committed)), problems))
        engine.emit(events.ConsumerStopped(report.is_clean, now_ms() - stages.started_at_ms))
        return report

    async def _wait_for_hand_over(self) -> None:
        """Let the application's tasks finish the records that they hold; the task that stops the consumer cannot
        process any.
        """
        changes = self._engine.changes

        def wake(_: object) -> None:
            changes.tell(Change.HAND)  # a task that has ended holds nothing

        while self._drain and (holders := self._engine.requests.holders.elsewhere(self._who)):
            for each in holders:
                each.add_done_callback(wake)
            try:
                await changes[Waiter.LEAVING].wait()
            finally:
                for each in holders:
                    each.remove_done_callback(wake)
