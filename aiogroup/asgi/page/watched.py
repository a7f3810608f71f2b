"""One loop of a service as its page shows it: what it remembers, and what it looks up when somebody asks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from aiogroup._core.telemetry.event import Event
from aiogroup._core.telemetry.inside import PartitionInside
from aiogroup._runtime.inside import Inside
from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup.asgi.page.journal import Journal, LagSample, fitting, plain, shown
from aiogroup.asgi.page.members import Members
from aiogroup.asgi.page.timeline import Timeline
from aiogroup.asgi.supervised import SupervisedLoop
from aiogroup.consumer import Consumer
from aiogroup.structs import TopicPartition

__all__ = ["Watched"]

T = TypeVar("T")
STEP_MS: Final = 2
STEP_COUNT: Final = 16
"""After this many partitions the clock is checked: the event loop is shared."""
PARTITIONS_CHARS: Final = 300_000
MEMBERS_CHARS: Final = 100_000
REBALANCES_CHARS: Final = 150_000
"""How many characters of the document these may have, in all loops of a service together."""


class Watched:
    """The loop `name`, one of `loops_count`, whose events it hears and whose partitions it counts."""

    def __init__(self, name: str, journal: Journal, loops_count: int) -> None:
        self.name = name
        self.members = Members(MEMBERS_CHARS // loops_count)
        self._partitions_chars = PARTITIONS_CHARS // loops_count
        self._rebalances_chars = REBALANCES_CHARS // loops_count
        self._journal = journal
        self._timeline = Timeline()
        self._per_second: dict[TopicPartition, float] = {}
        self._passed: dict[TopicPartition, int] = {}
        self._passed_at_ms: int | None = None

    def follow(self, consumer: Consumer) -> Ear:
        """Another consumer of this loop begins; hear its events. What is returned takes those of the service."""
        self._timeline.begin_anew()
        ear = Ear(self._journal, self._timeline, self.name, consumer)
        consumer.observe(ear)
        return ear

    # Once a second.

    async def sample(self, inside: Inside | None) -> None:
        """Count how far the partitions have come since the last sample."""
        now, before, began_at_ms = now_ms(), self._passed, self._passed_at_ms
        passed: dict[TopicPartition, int] = {}
        lag, catch_up, is_known, moved_count = 0, None, inside is not None, 0
        seconds = 0.0 if began_at_ms is None else (now - began_at_ms) / 1_000
        per_second: dict[TopicPartition, float] = {}
        async for each in in_steps(() if inside is None else inside.figures()):
            is_known = is_known and each.lag is not None
            lag += each.lag or 0
            if each.catch_up is not None:
                catch_up = (catch_up or 0) + each.catch_up
            if each.passed is None:
                continue
            tp = TopicPartition(each.topic, each.partition)
            passed[tp] = each.passed
            if tp in before and seconds > 0:
                count = max(0, each.passed - before[tp])  # a seek backwards is no rate
                moved_count += count
                per_second[tp] = round(count / seconds, 1)
        self._passed, self._passed_at_ms, self._per_second = passed, now, per_second
        rate = round(moved_count / seconds, 1) if seconds > 0 and inside is not None else None
        sample = LagSample(self._journal.instant_ms(now), lag if is_known else None, rate, catch_up)
        self._journal.sample(self.name, sample)

    # When somebody asks.

    async def details(self, loop: SupervisedLoop) -> str:
        """All that is known of it, as the text of a JSON object; what does not fit is left out."""
        consumer, known = loop.consumer, loop.details()
        known["why"], known["missing_topics"] = plain(known["why"]), plain(known["missing_topics"])
        if (latest := loop.latest) is not None:
            known |= self._identity(latest)
        inside = None if consumer is None else consumer.inside()
        known["deadlines"] = [
            {"name": each.name, "setting": each.setting, "limit_ms": each.limit_ms, "used_ms": each.used_ms}
            for each in (() if inside is None else inside.deadlines())
        ]
        if inside is not None and inside.member is not None:
            known["member_id"], known["generation"] = inside.member
        known["members_error"], known["members_left_out_count"] = self.members.error, self.members.left_out_count
        rebalances = fitting(reversed(self._timeline.entries()), self._rebalances_chars)
        rows: list[str] = []
        chars, left_out_count = 0, 0
        async for each in in_steps(() if inside is None else inside.partitions()):
            if chars > self._partitions_chars:
                left_out_count += 1
                continue
            rows.append(json.dumps(self._row(each)))
            chars += len(rows[-1])
        known["partitions_left_out_count"] = left_out_count
        members = "null" if self.members.known is None else f"[{', '.join(self.members.known)}]"
        return (
            f'{json.dumps(known)[:-1]}, "rebalances": [{", ".join(reversed(rebalances))}], "members": {members}, '
            f'"partitions": [{", ".join(rows)}]}}'
        )

    def ask_members(self, consumer: Consumer) -> Callable[[], Awaitable[None]] | None:
        """What asks for the members of its group, if that is to be done now."""
        inside, group_id = consumer.inside(), consumer.config.group_id
        if inside is None or group_id is None or not self.members.is_due():
            return None
        return partial(self.members.ask, inside, consumer.config, group_id)

    def _identity(self, consumer: Consumer) -> dict[str, object]:
        config = consumer.config
        return {
            "group": config.group_id,
            "client_id": config.client_id,
            "static_name": config.instance_id,
            "subscription": plain(sorted(consumer.subscription())),
            "is_event_loop_shared": not config.heartbeat_thread,
        }

    def _row(self, each: PartitionInside) -> dict[str, object]:
        figures = each.figures
        return {
            "name": shown(each.tp),
            "topic": each.tp.topic,
            "partition": each.tp.partition,
            "position": each.position,
            "committed": figures.committed,
            "begin": each.begin,
            "end": figures.end,
            "lag": figures.lag,
            "catch_up_lag": figures.catch_up,
            "lag_age_ms": figures.age_ms,
            "per_second": self._per_second.get(each.tp),
            "held_count": each.held_count,
            "state": each.state,
            "withheld": each.withheld,
            "error": plain(each.error),
            "ranges": each.ranges,
            "range_per_second": each.range_per_second,
            "range_left_ms": each.range_left_ms,
        }


class Ear:
    """Hears what happens to one consumer of a loop."""

    def __init__(self, journal: Journal, timeline: Timeline, loop: str, consumer: Consumer) -> None:
        self._journal = journal
        self._timeline = timeline
        self._loop = loop
        self._whose = consumer.config.group_id, consumer.config.client_id

    def on_event(self, event: Event) -> None:
        self._timeline.on_event(event)
        self._journal.note(self._loop, *self._whose, event)


async def in_steps(values: Iterable[T]) -> AsyncIterator[T]:
    """The values; the event loop runs after each `STEP_MS`."""
    began_at_ms = now_ms()
    for number, value in enumerate(values):
        if not number % STEP_COUNT and now_ms() - began_at_ms >= STEP_MS:
            await sleep_ms(0)
            began_at_ms = now_ms()
        yield value
