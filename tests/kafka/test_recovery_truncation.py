"""A log that was cut off, and grew again, under two lanes (KIP-333, point 9; KIP-320)."""

from __future__ import annotations

import pytest

from aiogroup import Consumer
from aiogroup._core.telemetry.events import LogTruncated
from tests.support.kafka import QUICK, Ears
from tests.support.reading import fill
from tests.support.recovery import MANUAL, MODE, Reading
from tests.support.unclean import Shaky

OLD, LOST, NEW = ([b"%s %d" % (name, number) for number in range(count)] for name, count in
                  ((b"old", 5), (b"lost", 5), (b"new", 9)))  # fmt: skip


class Values(Reading):
    """What was given, by value."""

    def __init__(self):
        super().__init__()
        self.values = []

    def take(self, batch):
        super().take(batch)
        self.values += [record.value for record in batch.all()]


@pytest.fixture
async def shaky(cluster_3, unique_name):
    """Five records that both replicas have, and five that only the leader has."""
    made = Shaky(cluster_3, unique_name("shaky"))
    await made.make()
    await fill(cluster_3.bootstrap_servers, made.tp, OLD, acks="all")
    await made.leave_follower_behind()
    await fill(cluster_3.bootstrap_servers, made.tp, LOST, acks="all")
    return made


@pytest.fixture
def group(unique_name):
    return unique_name("group")


async def truncate(shaky):
    await shaky.lose_leader()
    assert await fill(shaky.cluster.bootstrap_servers, shaky.tp, NEW, acks="all") == 14


def member(shaky, group, ears, **settings):
    given = {**QUICK, "session_timeout_ms": 6_000, "metadata_max_age_ms": 1_000, **settings}
    servers = shaky.cluster.bootstrap_servers
    return Consumer(shaky.topic, bootstrap_servers=servers, group_id=group, observers=[ears], **given)


async def test_9_a_truncation_that_grew_again_is_seen_by_the_next_owner_who_reads_what_came_instead(shaky, group):
    ears, reading = Ears(), Values()
    async with member(shaky, group, ears, **MANUAL) as consumer:
        await consumer.commit({shaky.tp: 2})
    async with member(shaky, group, ears, **MODE, **MANUAL) as consumer:
        assert consumer.lanes()[shaky.tp].ranges == ((2, 10),)
        reading.take(await consumer.poll(5_000, 2))
        assert reading.values == OLD[2:4]
        await consumer.commit()
    await truncate(shaky)
    async with member(shaky, group, ears, **MODE) as consumer:
        assert consumer.lanes()[shaky.tp].ranges == ((4, 5), (5, 14))
        assert await consumer.position(shaky.tp) == 14
        await reading.until(consumer, lambda: len(reading.values) >= 12)
        assert reading.values == OLD[2:] + NEW
    (told,) = ears.heard(LogTruncated)
    assert (told.position, told.diverging_offset, told.records_count) == (10, 5, 5)


async def test_9_a_truncation_below_the_live_lane_is_seen_while_both_lanes_read(shaky, group):
    ears, reading = Ears(), Values()
    async with member(shaky, group, ears, **MANUAL) as consumer:
        await consumer.commit({shaky.tp: 2})
    async with member(shaky, group, ears, **MODE) as consumer:
        reading.take(await consumer.poll(5_000, 2))
        assert reading.values == OLD[2:4]
        await truncate(shaky)
        await reading.until(consumer, lambda: set(reading.values) >= {*OLD[2:], *NEW}, within_s=40)
        assert ears.heard(LogTruncated)
        assert not consumer.child_consumer_is_alive() or consumer.lanes()[shaky.tp].ranges[-1][1] <= 5
