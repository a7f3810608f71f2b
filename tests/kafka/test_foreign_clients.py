"""Other clients against the broker of the tests: aiokafka, and confluent-kafka's admin client, producers and consumers.

The same assertions hold on the embedded broker and on Kafka, so that each is judged by clients that know nothing of it.
"""

from __future__ import annotations

import asyncio
import time

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from confluent_kafka import admin as confluent_admin
from confluent_kafka.aio import AIOConsumer, AIOProducer

from aiogroup import Consumer
from tests.support.brokers import EmbeddedCluster
from tests.support.java_tools import CONSUMER, PRODUCER, VERIFIABLE_PRODUCER, run
from tests.support.kafka import eventually

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
COUNT = 50
VALUES = [b"%d" % number * 40 for number in range(COUNT)]
LIMIT_S = 30
OFFSETS = "__consumer_offsets"


@pytest.fixture
def servers(kafka_cluster):
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def topic(kafka_cluster, unique_name):
    name = unique_name("foreign")
    kafka_cluster.create_topic(name, 1)
    return name


# Each producer with each codec.


async def by_aiokafka(servers, topic, codec):
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type=codec, enable_idempotence=True) as producer:
        for value in VALUES:
            await producer.send(topic, value, partition=0, headers=[("h", b"v")])
        await producer.flush()


async def by_confluent(servers, topic, codec):
    def produce():
        settings = {"bootstrap.servers": servers, "compression.type": codec or "none", "enable.idempotence": True}
        producer = confluent_kafka.Producer(settings)
        for value in VALUES:
            producer.produce(topic, value, partition=0, headers=[("h", b"v")])
        assert producer.flush(LIMIT_S) == 0

    await asyncio.to_thread(produce)


async def by_confluents_aio(servers, topic, codec):
    producer = AIOProducer({"bootstrap.servers": servers, "compression.type": codec or "none"})
    try:
        futures = [await producer.produce(topic, value, partition=0) for value in VALUES]
        await producer.flush()
        places = [(await future).offset() for future in futures]
        assert places == list(range(COUNT))
    finally:
        await producer.close()


# Each reader gives the values of each topic, `count` in all, and commits what it has read.


async def with_aiogroup(servers, topics, group, count=COUNT):
    async with Consumer(
        *topics, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", metadata_max_age_ms=2_000
    ) as consumer:
        seen = by_topic((each.topic, each.value) for each in [await consumer.getone() for _ in range(count)])
        await consumer.commit()
        return seen


async def with_aiokafka(servers, topics, group, count=COUNT):
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(*topics, bootstrap_servers=servers, **settings) as consumer:
        seen = by_topic((each.topic, each.value) for each in [await consumer.getone() for _ in range(count)])
        await consumer.commit()
        return seen


def confluents(servers, group):
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def told(record):
    assert record is not None
    assert record.error() is None
    return record.topic(), record.value()


async def with_confluent(servers, topics, group, count=COUNT):
    def read():
        consumer = confluent_kafka.Consumer(confluents(servers, group))
        try:
            consumer.subscribe(topics)
            seen = by_topic([told(consumer.poll(LIMIT_S)) for _ in range(count)])
            consumer.commit(asynchronous=False)
            return seen
        finally:
            consumer.close()

    return await asyncio.to_thread(read)


async def with_confluents_aio(servers, topics, group, count=COUNT):
    consumer = AIOConsumer(confluents(servers, group))
    try:
        await consumer.subscribe(topics)
        seen = by_topic([told(await consumer.poll(LIMIT_S)) for _ in range(count)])
        await consumer.commit(asynchronous=False)
        return seen
    finally:
        await consumer.close()


def by_topic(records):
    found = {}
    for topic, value in records:
        found.setdefault(topic, []).append(value)
    return found


PRODUCERS = (by_aiokafka, by_confluent, by_confluents_aio)
READERS = (with_aiogroup, with_aiokafka, with_confluent, with_confluents_aio)


def codecs_in(cluster, topic):
    """How the stored batches are compressed; of a real broker nothing is looked at."""
    return {CODECS[each] for each in cluster.codecs(topic)} if isinstance(cluster, EmbeddedCluster) else None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("produce", PRODUCERS)
async def test_what_one_client_writes_another_reads(kafka_cluster, servers, topic, group, produce, codec):
    await produce(servers, topic, codec)
    assert codecs_in(kafka_cluster, topic) in ({codec}, None)
    for read in READERS:
        assert await read(servers, [topic], f"{group}-{read.__name__}") == {topic: VALUES}, read.__name__


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_a_topic_has_a_codec_of_its_own(kafka_cluster, servers, unique_name, group, wanted):
    """Then its broker compresses anew what came otherwise; a repetition by an idempotent producer is still one."""
    topic = unique_name("compressed")
    kafka_cluster.create_topic(topic, 1, config={"compression.type": wanted})
    for codec in CODECS:
        await by_aiokafka(servers, topic, codec)
    assert codecs_in(kafka_cluster, topic) in ({None if wanted == "uncompressed" else wanted}, None)
    assert await with_aiogroup(servers, [topic], group, len(CODECS) * COUNT) == {topic: len(CODECS) * VALUES}


# Java's.

JAVAS = [b"%d" % number for number in range(COUNT)]
"""What the verifiable producer writes; the console's writes the lines that it is given."""


class Java:
    """Kafka's own clients, as its tools."""

    def __init__(self, tools, cluster, directory):
        self._tools, self._cluster, self._directory = tools, cluster, directory

    async def by_console(self, topic, codec):
        options = ("--compression-codec", codec or "none")
        await self._run(PRODUCER, "--topic", topic, *options, given="".join(f"{each.decode()}\n" for each in JAVAS))

    async def by_verifiable(self, topic, codec):
        config = self._directory / "producer.properties"
        config.write_text(f"compression.type={codec or 'none'}\n")
        await self._run(
            VERIFIABLE_PRODUCER, "--topic", topic, "--max-messages", str(COUNT), "--command-config", str(config)
        )

    async def with_console(self, topics, group, count):
        which = ("--include", "|".join(topics), "--group", group, "--from-beginning")
        until = ("--max-messages", str(count), "--timeout-ms", str(LIMIT_S * 1_000))
        printed = await self._run(CONSUMER, *which, *until)
        return sorted(line.encode() for line in printed)

    async def _run(self, tool, *arguments, given=None):
        code, lines = await asyncio.to_thread(run, self._tools, self._cluster, tool, arguments, given)
        assert code == 0, lines
        return [line for line in lines if not line.startswith("!")]


@pytest.mark.parametrize("codec", CODECS)
async def test_java_and_the_others_read_each_other(
    java_tools, kafka_cluster, servers, unique_name, group, tmp_path, codec
):
    java = Java(java_tools, kafka_cluster, tmp_path)
    topics = [unique_name("foreign") for _ in range(5)]
    for each in topics:
        kafka_cluster.create_topic(each, 1)
    console, verifiable, *others = topics
    await java.by_console(console, codec)
    await java.by_verifiable(verifiable, codec)
    for produce, topic in zip(PRODUCERS, others, strict=True):
        await produce(servers, topic, codec)
    assert [codecs_in(kafka_cluster, each) for each in topics] in ([{codec}] * 5, [None] * 5)
    javas = {console: JAVAS, verifiable: JAVAS}
    for read in READERS:
        found = await read(servers, [*javas], f"{group}-{read.__name__}", 2 * COUNT)
        assert found == javas, read.__name__
    everything = sorted([*JAVAS, *JAVAS, *VALUES, *VALUES, *VALUES])
    assert await java.with_console(topics, f"{group}-java", len(everything)) == everything


@pytest.mark.parametrize("read", [with_confluent, with_confluents_aio])
async def test_what_each_consumer_reads_and_commits(servers, topic, group, read):
    for codec in ("gzip", "zstd"):
        await by_aiokafka(servers, topic, codec)
    assert await read(servers, [topic], group) == {topic: VALUES}
    # The next consumer of the group, whichever it is, goes on behind what the first committed.
    assert await with_aiogroup(servers, [topic], group) == {topic: VALUES}
    async with AIOKafkaConsumer(bootstrap_servers=servers, group_id=group) as consumer:
        assert await consumer.committed(TopicPartition(topic, 0)) == 2 * COUNT


# aiokafka's admin client.


@pytest.fixture
async def aiokafkas(servers):
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    yield admin
    await admin.close()


async def test_aiokafka_administers_topics(aiokafkas, servers, unique_name):
    name = unique_name("administered")
    made = await aiokafkas.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "5000"})])
    assert [(each[0], each[1]) for each in made.topic_errors] == [(name, 0)]
    with pytest.raises(TopicAlreadyExistsError):
        raise_first(await aiokafkas.create_topics([NewTopic(name, 2, 1)]))

    # A broker answers for its controller, and learns a moment later what the answer said.
    async def listed():
        return name in await aiokafkas.list_topics()

    assert await eventually(listed)
    await aiokafkas.create_partitions({name: NewPartitions(3)})
    with pytest.raises(InvalidPartitionsError):
        raise_first(await aiokafkas.create_partitions({name: NewPartitions(2)}))

    async def partitions():
        (told,) = await aiokafkas.describe_topics([name])
        found = sorted(each["partition"] for each in told["partitions"])
        return found if len(found) == 3 else None

    assert await eventually(partitions) == [0, 1, 2]
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"flush.ms": "7"})
    await aiokafkas.alter_configs([resource])

    async def settings():
        asked = ConfigResource(ConfigResourceType.TOPIC, name, configs=dict.fromkeys(("flush.ms", "retention.ms")))
        ((told,),) = [each.resources for each in await aiokafkas.describe_configs([asked])]
        values = {each[0]: each[1] for each in told[4]}
        return values if values["flush.ms"] == "7" else None

    assert await eventually(settings) == {"flush.ms": "7", "retention.ms": "604800000"}
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for _ in range(3):
            await producer.send_and_wait(name, b"v", partition=1)
    place = TopicPartition(name, 1)
    assert await aiokafkas.delete_records({place: RecordsToDelete(before_offset=2)}) == {place: 2}
    await aiokafkas.delete_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        raise_first(await aiokafkas.delete_topics([name]))


def raise_first(response):
    """What an answer of aiokafka says of the first topic, as an error."""
    from aiokafka.errors import for_code

    first = (getattr(response, "topic_errors", None) or getattr(response, "topic_error_codes", None))[0]
    raise for_code(first[1])


async def test_aiokafka_administers_groups(aiokafkas, servers, topic, group):
    await by_aiokafka(servers, topic, None)
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=group, client_id="mine") as consumer:
        await consumer.seek_to_beginning()
        await consumer.getone()
        await consumer.commit()
        (described,) = [each for answer in await aiokafkas.describe_consumer_groups([group]) for each in answer.groups]
        assert (described[1], described[2], described[3]) == (group, "Stable", "consumer")
        assert [member[1] for member in described[5]] == ["mine"]
    assert (group, "consumer") in await aiokafkas.list_consumer_groups()
    offsets = await aiokafkas.list_consumer_group_offsets(group)
    assert {place: each.offset for place, each in offsets.items()} == {TopicPartition(topic, 0): 1}
    assert len((await aiokafkas.describe_cluster())["brokers"]) == 1


# confluent-kafka's admin client, which is librdkafka's.


@pytest.fixture
def confluents_admin(servers):
    return confluent_admin.AdminClient({"bootstrap.servers": servers})


def results(futures):
    return {name: future.result(LIMIT_S) for name, future in futures.items()}


def refusals(futures):
    return {name: future.exception(LIMIT_S).args[0].name() for name, future in futures.items()}


async def test_the_topic_of_the_groups_offsets_is_an_internal_one(confluents_admin, servers, topic, unique_name):
    async with Consumer(topic, bootstrap_servers=servers, group_id=unique_name("group")) as consumer:
        await consumer.getmany(timeout_ms=0)
        await eventually(lambda: OFFSETS in confluents_admin.list_topics(timeout=LIMIT_S).topics)
        described = results(confluents_admin.describe_topics(confluent_kafka.TopicCollection([OFFSETS, topic])))
        assert {name: each.is_internal for name, each in described.items()} == {OFFSETS: True, topic: False}


async def test_confluents_admin_client_administers_topics(confluents_admin, servers, unique_name):
    admin, name = confluents_admin, unique_name("administered")
    topic = confluent_admin.NewTopic(name, 2, 1, config={"retention.ms": "86400000"})
    assert results(admin.create_topics([topic])) == {name: None}
    assert refusals(admin.create_topics([topic])) == {name: "TOPIC_ALREADY_EXISTS"}
    assert results(admin.create_partitions([confluent_admin.NewPartitions(name, 3)])) == {name: None}
    assert refusals(admin.create_partitions([confluent_admin.NewPartitions(name, 2)])) == {name: "INVALID_PARTITIONS"}

    def described():
        (future,) = admin.describe_topics(confluent_kafka.TopicCollection([name])).values()
        told = None if future.exception(LIMIT_S) else future.result()
        return told if told is not None and len(told.partitions) == 3 else None

    told = await eventually(described)
    assert (told.name, told.is_internal) == (name, False)
    resource = confluent_admin.ConfigResource(confluent_admin.ResourceType.TOPIC, name)
    (before,) = results(admin.describe_configs([resource])).values()
    assert (before["retention.ms"].value, before["retention.ms"].source) == ("86400000", 1)
    assert (before["flush.messages"].is_default, before["flush.messages"].is_read_only) == (True, False)
    add = confluent_admin.ConfigEntry(
        "cleanup.policy", "compact", incremental_operation=confluent_admin.AlterConfigOpType.APPEND
    )
    resource.add_incremental_config(add)
    assert list(results(admin.incremental_alter_configs([resource])).values()) == [None]
    wrong = confluent_admin.ConfigResource(confluent_admin.ResourceType.TOPIC, name, set_config={"retention.ms": "x"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        assert list(refusals(admin.alter_configs([wrong])).values()) == ["INVALID_CONFIG"]
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    begin_ms = int(time.time() * 1000)  # older records could be deleted meanwhile, by the topic's retention
    for number in range(4):
        producer.produce(name, b"v", key=b"k", partition=0, timestamp=begin_ms + number)
    assert producer.flush(LIMIT_S) == 0
    place = confluent_kafka.TopicPartition(name, 0, 1)
    (deleted,) = results(admin.delete_records([place])).values()
    assert deleted.low_watermark == 1
    specs = {
        confluent_admin.OffsetSpec.earliest(): 1,
        confluent_admin.OffsetSpec.latest(): 4,
        confluent_admin.OffsetSpec.for_timestamp(begin_ms + 2): 2,
        confluent_admin.OffsetSpec.max_timestamp(): 3,
    }
    for spec, offset in specs.items():
        (told,) = results(admin.list_offsets({place: spec})).values()
        assert told.offset == offset
    assert results(admin.delete_topics([name])) == {name: None}
    assert refusals(admin.delete_topics([name])) == {name: "UNKNOWN_TOPIC_OR_PART"}


async def test_confluents_admin_client_administers_groups(confluents_admin, servers, topic, group):
    admin = confluents_admin
    await by_aiokafka(servers, topic, None)
    place = confluent_kafka.TopicPartition(topic, 0)
    consumer = confluent_kafka.Consumer({**confluents(servers, group), "client.id": "mine"})
    consumer.subscribe([topic])
    assert (await asyncio.to_thread(consumer.poll, LIMIT_S)).value() == VALUES[0]
    await asyncio.to_thread(lambda: consumer.commit(asynchronous=False))
    (described,) = results(admin.describe_consumer_groups([group])).values()
    assert (described.state.name, described.members[0].client_id) == ("STABLE", "mine")
    assert described.members[0].assignment.topic_partitions == [place]
    assert refusals(admin.delete_consumer_groups([group])) == {group: "NON_EMPTY_GROUP"}
    await asyncio.to_thread(consumer.close)
    listed = admin.list_consumer_groups().result(LIMIT_S)
    assert [each.state.name for each in listed.valid if each.group_id == group] == ["EMPTY"]
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    (told,) = results(admin.list_consumer_group_offsets([asked])).values()
    assert [(each.topic, each.partition, each.offset) for each in told.topic_partitions] == [(topic, 0, 1)]
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0, 7)])
    (told,) = results(admin.alter_consumer_group_offsets([wanted])).values()
    assert [each.error for each in told.topic_partitions] == [None]
    assert results(admin.delete_consumer_groups([group])) == {group: None}
    assert refusals(admin.delete_consumer_groups([group])) == {group: "GROUP_ID_NOT_FOUND"}


def test_confluents_admin_client_looks_at_the_cluster(confluents_admin, topic):
    admin = confluents_admin
    told = admin.describe_cluster(include_authorized_operations=True).result(LIMIT_S)
    assert [each.id for each in told.nodes] == [1]
    assert told.cluster_id == admin.list_topics(timeout=LIMIT_S).cluster_id
    node = confluent_admin.ConfigResource(confluent_admin.ResourceType.BROKER, "1")
    (settings,) = results(admin.describe_configs([node])).values()
    assert settings["num.partitions"].value == "1"
    assert settings["message.max.bytes"].is_read_only is False
    place = confluent_kafka.TopicPartition(topic, 0)
    elected = admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [place]).result(LIMIT_S)
    assert [error.name() for error in elected.values()] == ["ELECTION_NOT_NEEDED"]
