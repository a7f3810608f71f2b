"""`async with consumer.paused():` against a broker that counts, too: the membership stays, and the group goes on."""

from __future__ import annotations

import pytest

from aiogroup._core.telemetry import events
from tests.support.kafka import Ears, eventually

LIMIT_MS = 1_500
SHORT = {"session_timeout_ms": LIMIT_MS, "max_poll_interval_ms": LIMIT_MS}


async def test_an_outage_longer_than_the_poll_interval_ends_nothing(make_place):
    place, ears = make_place(2), Ears()
    await place.produce(range(3))
    async with place.consumer(observers=[ears], **SHORT) as consumer:
        rounds_count = len(ears.heard(events.RebalanceStarted))
        assert (await consumer.getone()).offset == 0
        async with consumer.paused():
            await eventually(lambda: consumer.health().since_ms > 2 * LIMIT_MS)
            assert consumer.health().status == "paused"
            assert (await consumer.committed(place.tp())) in (None, 0)
        assert (await consumer.getone()).offset == 1
        assert len(ears.heard(events.RebalanceStarted)) == rounds_count
        assert not ears.heard(events.PollIntervalWarning)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_newcomer_does_not_wait_for_the_end_of_an_outage(make_place, strategy):
    place, ears = make_place(2), Ears()
    settings = {"partition_assignment_strategy": [strategy]}
    for partition in range(2):
        await place.produce(range(2), partition)
    async with place.consumer(observers=[ears], **settings) as consumer:
        assert (await consumer.getmany(timeout_ms=10_000)).count
        async with consumer.paused(), place.consumer(**settings) as other:
            await eventually(lambda: len(other.assignment()) == len(consumer.assignment()) == 1)
            assert consumer.paused() == consumer.assignment()
            assert (await other.getone()).offset == 0, "what was in hand of it comes again"
            await eventually(lambda: ears.heard(events.PartitionsRevoked))
            assert not ears.heard(events.RebalanceWaitingForApplication)
