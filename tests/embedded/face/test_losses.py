"""Records and commits that are lost: a consumer does the same as after an unclean election of real nodes.
tests/kafka/test_truncation.py has the same tests on Kafka.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from aiogroup import Consumer, LogTruncationError, TopicPartition
from aiogroup._core.telemetry.events import LogTruncated
from aiogroup.embedded import Broker, caught_up, reading, stable
from tests.support.kafka import QUICK, Ears
from tests.support.reading import alone, read

OLD, LOST, NEW = ([b"%s %d" % (name, number) for number in range(count)] for name, count in
                  ((b"old", 5), (b"lost", 5), (b"new", 9)))  # fmt: skip
TP = TopicPartition("orders", 0)
AT_ONCE = {"request_timeout_ms": 10_000, "metadata_max_age_ms": 1_000}


@pytest.fixture(params=[1, 3], ids=["one-node", "three-nodes"])
def broker(request):
    with Broker(nodes=request.param, seed=1) as broker:
        broker.create_topic("orders")
        broker.produce_many("orders", OLD + LOST)
        yield broker


def truncate(broker):
    broker.truncate("orders", 0, 5)
    assert broker.produce_many("orders", NEW)[-1] == (0, 13)


def in_group(broker, group, ears, **settings):
    given = {**QUICK, **AT_ONCE, "session_timeout_ms": 6_000, **settings}
    return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id=group, observers=[ears], **given)


def values(records, first):
    assert [each.offset for each in records] == list(range(first, first + len(records)))
    return [bytes(each.value) for each in records]


def told(ears):
    return [
        (each.position, each.leader_epoch, each.diverging_offset, each.records_count)
        for each in ears.heard(LogTruncated)
    ]


async def test_a_truncated_log_is_noticed_by_who_reads_and_by_who_comes_back(broker):
    ears = defaultdict(Ears)
    for name in ("back", "told"):
        async with in_group(broker, name, ears[name], enable_auto_commit=False) as consumer:
            assert values(await read(consumer, 10), 0) == OLD + LOST
            await consumer.commit()
    alone_one = alone(broker.bootstrap_servers, auto_offset_reset="none", observers=[ears["alone"]], **AT_ONCE)
    alone_one.assign([TP])
    async with alone_one, in_group(broker, "reads", ears["reads"]) as reads:
        alone_one.seek(TP, 0)
        assert values(await read(alone_one, 10), 0) == OLD + LOST
        assert values(await read(reads, 10), 0) == OLD + LOST
        truncate(broker)
        assert values(await read(reads, 9), 5) == NEW
        with pytest.raises(LogTruncationError) as caught:
            await read(alone_one, 1)
        error = caught.value
        assert (error.tp, error.offset, error.diverging_offset) == (TP, 10, 5)
        alone_one.seek(error.tp, error.diverging_offset)
        assert values(await read(alone_one, 9), 5) == NEW
        await reads.commit()
    async with in_group(broker, "back", ears["back"], auto_offset_reset="latest") as back:
        assert await back.position(TP) == 5
        assert values(await read(back, 9), 5) == NEW
    async with in_group(broker, "told", ears["told"], auto_offset_reset="none") as consumer:
        with pytest.raises(LogTruncationError, match="read up to offset 10, but from offset 5 on"):
            await consumer.getone()
    assert {name: told(each) for name, each in ears.items()} == {name: [(10, 0, 5, 5)] for name in ears}
    async with in_group(broker, "reads", ears["again"]) as again:  # the same offsets, of other records
        assert await again.position(TP) == 14
    assert not told(ears["again"])
    assert broker.troubles == []


async def test_after_lost_commits_records_are_repeated_and_none_is_skipped(broker):
    ears, settings = Ears(), {"enable_auto_commit": False, "session_timeout_ms": 1_000}
    async with in_group(broker, "billing", ears, **settings) as consumer:
        seen = []
        for _ in range(3):
            seen.append(bytes((await anext(consumer)).value))
            await consumer.commit()
    assert broker.committed("billing")["orders", 0] == 3
    broker.lose_commits("billing", last=2)
    assert broker.committed("billing")["orders", 0] == 1
    # The member's departure is lost, too: a new member waits for its session to end.
    assert len(broker.group("billing").members) == 1
    async with in_group(broker, "billing", ears, **settings) as consumer:
        again = [bytes((await anext(consumer)).value) for _ in range(9)]
        await consumer.commit()
    assert seen == OLD[:3]
    assert again == (OLD + LOST)[1:]
    assert broker.lag("billing") == {TP: 0}


async def test_lost_commits_do_not_move_a_working_member(broker):
    ears = Ears()
    async with in_group(broker, "billing", ears, enable_auto_commit=False) as consumer:
        await broker.until(reading("orders"))
        assert values(await read(consumer, 10), 0) == OLD + LOST
        await consumer.commit()
        broker.lose_commits("billing")
        assert broker.committed("billing") == {}
        broker.produce_many("orders", NEW)
        assert values(await read(consumer, 9), 10) == NEW
        await broker.until(stable("billing", members=1))
        await consumer.commit()
        await broker.until(caught_up("billing"))
