"""Error codes that a test asks for, with a client: a refused request is not carried out, a denied one is."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from aiogroup import Consumer
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded import Broker, BrokerRefusal, committed, stable
from aiogroup.embedded.messages.ranges import RANGES


@pytest.fixture
def broker():
    with Broker(seed=1, nodes=2) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


async def test_a_commit_that_is_refused_is_sent_again(broker):
    broker.produce("orders", b"1")
    async with Consumer(
        "orders",
        group_id="billing",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        await broker.until(stable("billing", members=1))
        (member,) = broker.group("billing").members
        with broker.error("OffsetCommit", "NOT_COORDINATOR", group="billing", member=member, times=2) as refused:
            await anext(consumer)
            await consumer.commit()
        assert refused.used_count == 2
        await broker.until(committed("billing", "orders", 0, offset=1))
    assert [str(each) for each in broker.troubles] == []


@pytest.mark.parametrize("after", [False, True])
async def test_a_produce_that_fails_appends_nothing_unless_it_is_only_denied(broker, after):
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False)
    await producer.start()
    try:
        with broker.error("Produce", ErrorCode.INVALID_RECORD, topic="orders", partition=1, after=after) as failed:
            await producer.send_and_wait("orders", b"0", partition=0)
            with pytest.raises(KafkaError):
                await producer.send_and_wait("orders", b"1", partition=1)
            await producer.send_and_wait("orders", b"2", partition=1)
        assert failed.used_count == 1
    finally:
        await producer.stop()
    assert [each.value for each in broker.records("orders", 0)] == [b"0"]
    assert [each.value for each in broker.records("orders", 1)] == ([b"1", b"2"] if after else [b"2"])


def test_a_fault_that_could_never_match_is_refused(broker):
    for wanted, named in [
        ("Heartbeat has no topic: its codes are about group and member", {"api": "Heartbeat", "topic": "orders"}),
        ("Fetch has no group", {"api": "Fetch", "group": "billing"}),
        ("ApiVersions has no partition: it names nothing", {"api": "ApiVersions", "partition": 1}),
        ("FindCoordinator changes nothing", {"api": "FindCoordinator", "after": True}),
        ("EndTxn has no topic: it names nothing", {"api": "EndTxn", "topic": "orders"}),
        ("AddOffsetsToTxn has no topic or member", {"api": "AddOffsetsToTxn", "topic": "orders", "member": "m"}),
        ("DeleteGroups has no topic", {"api": "DeleteGroups", "topic": "orders"}),
        ("DescribeConfigs has no group", {"api": "DescribeConfigs", "group": "billing"}),
        ("ListTransactions changes nothing", {"api": "ListTransactions", "after": True}),
        ("did you mean 'Heartbeat'", {"api": "Hartbeat"}),
        ("times=0", {"api": "Fetch", "times": 0}),
        ("there is no node 3: there are 1, 2", {"api": "Fetch", "node": 3}),
        ("no error code 4711", {"api": "Fetch", "code": 4711}),
        ("did you mean NOT_COORDINATOR", {"api": "Fetch", "code": "NOT_CORDINATOR"}),
        ("NONE is no error", {"api": "Fetch", "code": 0}),
    ]:
        with pytest.raises(BrokerRefusal, match=wanted):
            broker.error(**{"code": ErrorCode.NOT_COORDINATOR, **named})


def test_every_served_api_says_what_its_error_codes_are_about(broker):
    for request in RANGES:
        broker.error(request, ErrorCode.NOT_COORDINATOR).remove()


async def test_the_predicate_of_an_error_may_remove_the_error(broker):
    def clear(_exchange):
        broker.clear()
        return True

    refused = broker.error("Metadata", ErrorCode.LEADER_NOT_AVAILABLE, topic="orders", when=clear)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait("orders", b"0", partition=0)
    await producer.stop()
    assert refused.used_count == 1
    assert broker.troubles == []


def test_a_handle_may_outlive_its_broker():
    with Broker() as broker:
        handle = broker.error("Fetch", 1)
    handle.remove()
    assert handle.used_count == 0
