"""What those who are in no group are told by a group's coordinator, on the embedded broker."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer

from aiogroup import GroupAuthorizationError, KafkaTimeoutError, TopicPartition
from aiogroup._core.offsets.commit_plan import Committed
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._runtime.net.group_link import from_outside
from aiogroup.config import ConsumerConfig

pytestmark = pytest.mark.virtual_time

TPS = [TopicPartition("orders", number) for number in range(3)]


@pytest.fixture
def broker(virtual_broker):
    virtual_broker.create_topic("orders", 3)
    return virtual_broker


@pytest.fixture
async def config(broker):
    """Of the group `billing`, which has committed 4 with a note in orders-0, and 0 in orders-1."""
    servers = broker.bootstrap_servers
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id="billing", enable_auto_commit=False) as consumer:
        consumer.assign(TPS)
        await consumer.commit({TPS[0]: (4, "note"), TPS[1]: (0, "")})
    return ConsumerConfig.of(
        bootstrap_servers=servers, group_id="billing", retry_backoff_ms=10, default_api_timeout_ms=5_000
    )


async def committed(config, tps=None):
    async with from_outside(config) as groups:
        found, refused = await groups.committed("billing", tps)
    return {tp: each.offset for tp, each in found.items()}, refused


async def test_what_is_committed_of_some_partitions_and_of_all(config):
    async with from_outside(config) as groups:
        assert await groups.committed("billing", [TPS[0], TPS[2]]) == ({TPS[0]: Committed(4, "note")}, {})
        assert await groups.committed("billing") == ({TPS[0]: Committed(4, "note"), TPS[1]: Committed(0)}, {})
        assert await groups.committed("nobody", TPS) == ({}, {})


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"])
async def test_while_the_coordinator_moves_it_is_looked_up_again(broker, config, code):
    with broker.error("OffsetFetch", code, times=2) as refused:
        assert await committed(config, TPS) == ({TPS[0]: 4, TPS[1]: 0}, {})
    assert refused.used_count == 2


async def test_while_a_transaction_is_about_to_commit_the_offset_is_asked_for_again(broker, config):
    with broker.error("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", topic="orders", partition=1, times=2) as refused:
        assert await committed(config, TPS) == ({TPS[0]: 4, TPS[1]: 0}, {})
    assert refused.used_count == 2


async def test_a_refused_partition_does_not_hide_the_others(broker, config):
    broker.error("OffsetFetch", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=1)
    assert await committed(config, TPS) == ({TPS[0]: 4}, {TPS[1]: ErrorCode.TOPIC_AUTHORIZATION_FAILED})


async def test_who_may_not_learns_what_to_grant(broker, config):
    broker.error("OffsetFetch", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(GroupAuthorizationError, match="'billing': grant DESCRIBE on the group"):
        await committed(config, TPS)


async def test_it_ends_in_its_time(broker, config):
    broker.error("OffsetFetch", "NOT_COORDINATOR", times=None)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", "default_api_timeout_ms": 200}
    with pytest.raises(KafkaTimeoutError, match=r"^group 'billing': not done within default_api_timeout_ms=200$"):
        await asyncio.wait_for(committed(ConsumerConfig.of(**settings), TPS), 5)
