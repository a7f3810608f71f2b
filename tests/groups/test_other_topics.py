"""A member with other topics than before: nothing stays unread, and the group rebalances once at most."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from aiogroup import Consumer, ConsumerStoppedError, TopicPartition
from aiogroup.embedded import Broker, run_virtual

LONG_S = 200


def member(broker, name, *topics, **settings):
    return Consumer(
        *topics,
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        member_name=name,
        session_timeout_ms=60_000,
        **settings,
    )


async def read(consumer):
    with suppress(ConsumerStoppedError):
        async for _ in consumer:
            pass


async def come_back(broker, *topics, first=("t",), others=(("t",),), leads=False, **settings):
    """`b` stops and comes back with these topics. Returns the members, and how many generations began by that."""
    broker.create_topic("t", partitions=4)
    broker.create_topic("u", partitions=2)
    create = asyncio.get_running_loop().create_task
    former = member(broker, "b", *first, **settings)
    consumers = [member(broker, f"a{number}", *each, **settings) for number, each in enumerate(others)]
    tasks = []
    for each in [former, *consumers] if leads else [*consumers, former]:
        await each.start()
        tasks.append(create(read(each)))
    await asyncio.sleep(LONG_S)
    before = broker.group("g").generation
    await former.stop()
    back = member(broker, "b", *topics, **settings)
    await back.start()
    tasks.append(create(read(back)))
    await asyncio.sleep(LONG_S)
    held = [{(tp.topic, tp.partition) for tp in each.assignment()} for each in [*consumers, back]]
    count = broker.group("g").generation - before
    for each in [*consumers, back]:
        await each.stop(leave_group=True)
    await asyncio.gather(*tasks)
    return held, count


T, U = {("t", number) for number in range(4)}, {("u", number) for number in range(2)}


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("topics", [("u",), ("t", "u")])
def test_what_it_reads_no_more_goes_to_others_and_what_only_it_reads_comes(topics, leads, assignor):
    async def script():
        async with Broker() as broker:
            (others, its), count = await come_back(
                broker, *topics, leads=leads, partition_assignment_strategy=[assignor]
            )
            assert (others | its, others & its) == (T | U, set())
            assert others <= T
            assert its >= U
            assert its <= (U if topics == ("u",) else T | U)
            assert 1 <= count <= 2  # a cooperative group may need another one, to hand over

    run_virtual(script())


@pytest.mark.parametrize("topics", [("t",), ("t", "u"), ("t", "missing")])
def test_who_comes_back_causes_no_round_where_nothing_is_unread(topics):
    """With its former topics; with one that another member reads anyway; with one that does not exist."""

    async def script():
        async with Broker(auto_create_topics=False) as broker:
            (_, _, its), count = await come_back(broker, *topics, others=[("t",), ("u",)])
            assert count == 0
            assert its < T

    run_virtual(script())


@pytest.mark.parametrize("topics", [("u",), ("t", "u")])
def test_the_draft_has_its_topics_wait_for_the_next_round(topics):
    async def script():
        async with Broker(static_membership="draft") as broker:
            (_, its), count = await come_back(broker, *topics, registration_timeout_ms=900_000)
            assert count == 0
            assert its < T

    run_virtual(script())


@pytest.mark.parametrize("group_id", ["g", None])
@pytest.mark.parametrize("call", ["assign", "subscribe"])
def test_the_first_record_of_a_new_topic_waits_for_no_back_off(group_id, call):
    async def script():
        async with Broker() as broker:
            broker.create_topic("t")
            broker.produce_many("t", [b"x"])
            settings = {"retry_backoff_ms": 10_000, "retry_backoff_max_ms": 10_000, "auto_offset_reset": "earliest"}
            async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group_id, **settings) as consumer:
                if call == "assign":
                    consumer.assign([TopicPartition("t", 0)])
                else:
                    consumer.subscribe(["t"])
                return await consumer.getmany(timeout_ms=900)  # the metadata are asked for each second

    assert run_virtual(script()).count == 1
