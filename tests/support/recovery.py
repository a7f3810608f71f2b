"""What the tests of recovery on real Kafka share: a group that was left behind, and records by lane."""

from __future__ import annotations

from typing import Any

MODE: dict[str, Any] = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1}
MANUAL: dict[str, Any] = {"enable_auto_commit": False}


def lanes_of(records):
    """Offsets by lane, in the order of their delivery."""
    found = {}
    for record in records.all():
        found.setdefault(record.lane, []).append(record.offset)
    return found


async def leave_at(place, committed, end):
    """A fresh log of so many records, whose values are their offsets; the group has committed less, and is gone."""
    await place.produce(range(end))
    async with place.consumer(**MANUAL) as consumer:
        await consumer.commit({place.tp(): committed})
