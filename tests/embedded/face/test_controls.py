"""Calls that change the cluster: topics created (again), damaged batches, elections, moves, expelled members."""

from __future__ import annotations

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from aiogroup import Consumer, CorruptRecordError
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from aiogroup.embedded import Broker, BrokerRefusal, damaged, reading, stable


@pytest.fixture
def broker():
    with Broker(nodes=3, seed=1) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


def consumer_of(broker, **settings):
    chosen = {"group_id": "billing", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, **settings}
    return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False, **chosen)


async def described(broker, name):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        (topic,) = await admin.describe_topics([name])
        return topic
    finally:
        await admin.close()


async def test_topics_as_an_administrator_changes_them(broker):
    broker.produce("orders", b"old")
    broker.add_partitions("orders", 2)
    assert len((await described(broker, "orders"))["partitions"]) == 4
    broker.produce("orders", b"new", partition=3)
    broker.remake_topic("orders")
    assert len((await described(broker, "orders"))["partitions"]) == 4
    assert broker.records("orders") == []
    broker.delete_topic("orders")
    assert (await described(broker, "orders"))["error_code"] == 3
    broker.create_topic("logs", 1, replication_factor=2, config={"cleanup.policy": "compact"}, retention_ms=5)
    assert len((await described(broker, "logs"))["partitions"][0]["replicas"]) == 2


def test_records_go_in_turn_to_the_partitions_of_a_topic_with_fewer_than_before(broker):
    broker.produce_many("orders", [b"1"])
    broker.delete_topic("orders")
    broker.create_topic("orders")
    assert broker.produce_many("orders", [b"2"]) == [(0, 0)]


async def test_a_remade_topic_is_empty(broker):
    async with consumer_of(broker, metadata_max_age_ms=100) as consumer:
        broker.produce("orders", b"old")
        assert bytes((await anext(consumer)).value) == b"old"
        broker.remake_topic("orders")
        broker.produce("orders", b"new")
        assert bytes((await anext(consumer)).value) == b"new"


async def test_a_batch_that_no_client_can_read(broker):
    broker.produce("orders", b"1")
    assert broker.append("orders", 0, damaged(crc=True)) == 1
    broker.produce("orders", b"2")
    async with consumer_of(broker) as consumer:
        assert bytes((await anext(consumer)).value) == b"1"
        with pytest.raises(CorruptRecordError):
            await anext(consumer)
        await consumer.skip()
        assert bytes((await anext(consumer)).value) == b"2"


async def test_an_expelled_member_comes_back_and_the_other_one_works_on(broker):
    async with consumer_of(broker, client_id="one"), consumer_of(broker, client_id="two"):
        await broker.until(stable("billing", members=2))
        before = broker.group("billing")
        broker.expel("billing", before.members[1])
        assert before.members[1].member_id not in {each.member_id for each in broker.group("billing").members}
        await broker.until(stable("billing", members=2))
        after = broker.group("billing")
    assert after.generation > before.generation
    assert after.members[0].member_id == before.members[0].member_id


async def test_a_rebalance_on_request(broker):
    async with consumer_of(broker):
        await broker.until(stable("billing", members=1))
        broker.rebalance("billing")
        assert broker.group("billing").state == "PreparingRebalance"
        await broker.until(stable("billing", members=1))
        assert broker.group("billing").generation == 2


async def test_leaders_and_coordinators_that_move(broker):
    async with consumer_of(broker) as consumer:
        await broker.until(stable("billing", members=1))
        await broker.until(reading("orders"))
        broker.move_leader("orders", 0, 3)
        broker.move_coordinator("billing", 2, loading_ms=100)
        assert (broker.group("billing").coordinator, broker.group("billing").is_loading) == (2, True)
        broker.produce("orders", b"1")
        assert bytes((await anext(consumer)).value) == b"1"
        await broker.until(stable("billing", members=1))
        await consumer.commit()
        assert broker.committed("billing")["orders", 0] == 1
        assert broker.group("billing").generation == 1


async def test_pause_and_disconnect(broker):
    async with consumer_of(broker, request_timeout_ms=5_000) as consumer:
        await broker.until(reading("orders"))
        broker.pause()
        assert all(each.is_paused for each in broker.nodes)
        broker.produce("orders", b"1")
        broker.resume()
        assert bytes((await anext(consumer)).value) == b"1"
        broker.disconnect()
        broker.produce("orders", b"2")
        assert bytes((await anext(consumer)).value) == b"2"


def test_compaction_and_retention_happen_on_request(broker):
    broker.create_topic("table", cleanup_policy="compact")
    for value in (b"1", b"2", b"3"):
        broker.produce("table", value, key=b"k")
    assert broker.compact("table") == 2, "each record is a batch of its own here"
    assert [each.value for each in broker.records("table")] == [b"3"]
    broker.create_topic("short", retention_ms=1_000)
    broker.produce("short", b"old", timestamp_ms=1)
    broker.produce("short", b"new")
    broker.expire("short")
    assert [each.value for each in broker.records("short")] == [b"new"]
    broker.expire("short", to_offset=2)
    assert broker.records("short") == []


def test_calls_that_make_no_sense_are_refused(broker):
    broker.nodes[2].stop()
    for act, why in [
        (lambda: broker.add_partitions("bills"), "no topic bills: make it"),
        (lambda: broker.add_partitions("orders", 0), "0 partitions cannot be added"),
        (lambda: broker.remake_topic("bills"), "no topic bills"),
        (lambda: broker.append("orders", 0, b"short"), "5 bytes are no record batch"),
        (lambda: broker.truncate("orders", 7, 0), "orders has 2 partitions, and none with the number 7"),
        (lambda: broker.truncate("orders", 0, 0), "orders-0 ends with 0: nothing is lost"),
        (lambda: broker.move_leader("orders", 0, 9), "node 9 has no replica of orders-0"),
        (lambda: broker.move_leader("orders", 0, 3), "node 3 is down"),
        (lambda: broker.move_leader("orders", 0, 1), "node 1 leads orders-0 already"),
        (lambda: broker.move_coordinator("billing", 9), "there is no node 9: there are 1, 2, 3"),
        (lambda: broker.move_coordinator("billing", 3), "node 3 is down"),
        (lambda: broker.lose_commits("billing"), "billing has committed nothing"),
        (lambda: broker.lose_commits("billing", 0), "at least one commit"),
        (lambda: broker.expel("billing", "m"), "there is no group billing"),
        (lambda: broker.rebalance("billing"), "there is no group billing"),
        (lambda: broker.compact("orders"), "orders is not compacted"),
        (lambda: broker.expire("orders", to_offset=1), "orders-0 ends with 0, before 1"),
        (lambda: broker.disconnect(9), "there is no node 9"),
        (lambda: broker.create_topic("orders"), "there already"),
        (lambda: broker.produce("orders", "text"), "a value is bytes, not str: encode it"),
        (lambda: broker.produce("orders", b"v", key="k"), "a key is bytes, not str"),
        (lambda: broker.produce("orders", b"v", headers=["name"]), "pairs of a name and bytes, and 'name' is none"),
        (lambda: broker.produce("orders", b"v", headers={"name": "v"}), "a header's value is bytes"),
        (lambda: broker.produce_many("orders", b"abc"), "an iterable of values"),
        (lambda: broker.produce_many("orders", ["abc"]), "a value is bytes"),
        (lambda: broker.append("orders", 0, "abc"), "a batch is bytes"),
        (lambda: broker.delay("Fetch", ms=-1), "ms=-1"),
        (lambda: broker.throttle("Fetch", ms=-1), "ms=-1"),
        (lambda: broker.hold("Fetch", until=lambda: True), "until= is an event"),
        (lambda: broker.rewrite("Fetch", None), "a function of the exchange, not None"),
        (lambda: broker.error("Fetch", 1, when=5), "a function of the exchange, not 5"),
        (lambda: broker.error("Fetch", 1, partition=-1), "counted from 0"),
        (lambda: broker.truncate("orders", 0, -1), "to_offset=-1: it is at least 0"),
        (lambda: broker.delay("Fetch", ms="5"), "ms='5': a whole number, not str"),
        (lambda: broker.delay("Fetch", ms=5, times="2"), "times='2': a whole number"),
        (lambda: broker.delay(4711, ms=5), "no API 4711: one of"),
        (lambda: broker.delay(None, ms=5), "no API None: one of"),
        (lambda: broker.error("ConsumerGroupHeartbeat", 25), "no API 'ConsumerGroupHeartbeat': one of"),
        (lambda: broker.error("Fetch", 1, times="2"), "times='2': a whole number"),
        (lambda: broker.error("Fetch", 1, partition="0"), "partition='0': a whole number"),
        (lambda: broker.produce("orders", b"v", partition="0"), "partition='0': a whole number"),
        (lambda: broker.produce("orders", b"v", timestamp_ms=1.5), "timestamp_ms=1.5: a whole number, not float"),
        (lambda: broker.produce_many("orders", [b"v"], timestamp_ms="1"), "timestamp_ms='1': a whole number"),
        (lambda: broker.create_topic("bills", "4"), "partitions='4': a whole number"),
        (lambda: broker.create_topic("bills", 1, "1"), "replication_factor='1': a whole number"),
        (lambda: broker.add_partitions("orders", True), "count=True: a whole number, not bool"),
        (lambda: broker.move_coordinator("billing", 1, -1), "loading_ms=-1"),
        (lambda: broker.wait(True), "True cannot be waited for"),
        (lambda: broker.group(None), "a group is named by its id, a text, and not by None"),
        (lambda: broker.committed(None), "not by None"),
        (lambda: broker.lag(7), "not by 7"),
        (lambda: broker.move_coordinator(None, 1), "not by None"),
        (lambda: broker.lose_commits(None), "not by None"),
        (lambda: broker.expel(None, "m"), "not by None"),
        (lambda: broker.rebalance(None), "not by None"),
        (lambda: broker.wait(stable(None)), "not by None"),
        (lambda: broker.restore(None), "what snapshot"),
        (lambda: broker.truncate("orders", 0, 0.0), "to_offset=0.0: a whole number, not float"),
        (lambda: broker.truncate("orders", 0, "0"), "to_offset='0': a whole number"),
        (lambda: broker.expire("orders", to_offset=0.0), "to_offset=0.0: a whole number, not float"),
        (lambda: broker.expire("orders", to_offset=-1), "to_offset=-1: it is at least 0"),
        (lambda: broker.lose_commits("billing", "1"), "last='1': a whole number"),
        (lambda: broker.move_coordinator("billing", 1, "5"), "loading_ms='5': a whole number"),
        (lambda: broker.move_transactions("mine", 1, -5), "loading_ms=-5: it is at least 0"),
        (lambda: broker.move_transactions("mine", 1, "5"), "loading_ms='5': a whole number"),
        (lambda: broker.move_transactions(None, 1), "a transactional id is a text, and None is none"),
        (lambda: broker.wait(print, timeout_s="1"), "timeout_s='1': a number of seconds"),
        (lambda: broker.wait(print, timeout_s=-1), "timeout_s=-1: a number of seconds"),
        (lambda: broker.produce("orders", b"v", headers=5), "pairs of a name and bytes, and 5 is none"),
        (lambda: broker.produce("orders", b"v", timestamp_ms=2**63), "timestamp_ms=9223372036854775808: it is at most"),
        (lambda: broker.produce("orders", b"v", timestamp_ms=-2), "timestamp_ms=-2: it is at least 0"),
        (lambda: broker.produce_many("orders", None), "an iterable of values"),
        (lambda: broker.create_topic("bills", 0), "0 partitions"),
        (lambda: broker.create_topic("bills", replication_factor=4), "replication factor 4 with 3 nodes: Broker"),
    ]:
        with pytest.raises(BrokerRefusal, match=why):
            act()
    for settings in [
        {"seed": "x"},
        {"seed": 1.5},
        {"nodes": "3"},
        {"nodes": 2.5},
        {"nodes": 0},
        {"port": "9092"},
        {"port": 70_000},
        {"failover_ms": -1},
        {"failover_ms": "1"},
        {"max_bytes": "1"},
    ]:
        with pytest.raises(BrokerRefusal, match=f"{next(iter(settings.values()))}.*(nodes|port|whole number|below 0)"):
            Broker(**settings)
    for versions in ({"JoinGroup": 3}, {"JoinGroup": (3,)}, {"JoinGroup": ("0", "3")}, [("JoinGroup", 0, 3)]):
        with pytest.raises(BrokerRefusal, match="the lowest and the highest version by name"):
            Broker(api_versions=versions)
    assert broker.produce("orders", b"v", headers={"name": b"1"}) == 0
    assert broker.records("orders")[0].headers == (("name", b"1"),)


def test_an_api_has_a_name_a_class_and_a_number(broker):
    for api in ("Metadata", MetadataRequest, 3):
        with broker.drop(api) as rule, broker.error(api, "LEADER_NOT_AVAILABLE"):
            assert rule.used_count == broker.count(api) == len(broker.requests(api)) == 0


def test_the_log_tail_of_a_broker(broker):
    broker.nodes[1].pause()
    broker.nodes[2].kill()
    tail = broker.log_tail(5)
    assert [line for line in tail.splitlines() if line.startswith("---")] == [
        "--- node 1 (running)",
        "--- node 2 (paused)",
        "--- node 3 (down)",
    ]
