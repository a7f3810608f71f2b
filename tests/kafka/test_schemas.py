"""Records with a schema, decoded while the loop runs on, whatever the registry does."""

from __future__ import annotations

import asyncio
import json

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer, AvroDeserializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer, AsyncJSONSerializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufDeserializer, AsyncProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from aiogroup import ConfigError, Record, RecordDeserializationError, TopicPartition
from aiogroup.schemas import Decoder, RegistryUnavailableError

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
JSON = '{"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
PROTOBUF = {"use.deprecated.format": False}
TP = TopicPartition("orders", 0)


@pytest.fixture
def registry(unique_name):
    """A registry in memory, of this test alone."""
    return AsyncSchemaRegistryClient.new_client({"url": f"mock://{unique_name('registry')}"})


def protobuf_order():
    """The class that protoc would make of `message Order { int32 id = 1; }`."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def record_of(value, headers=(), key=None):
    return Record(TP, 7, 1_700_000_000_000, 0, key, value, headers)


def whose(field=MessageField.VALUE, headers=None):
    return SerializationContext("orders", field, [] if headers is None else headers)


async def test_avro(registry):
    written = await (await AsyncAvroSerializer(registry, AVRO))({"id": 3}, whose())
    assert await Decoder(await AsyncAvroDeserializer(registry))(record_of(written)) == {"id": 3}


async def test_json_schema(registry):
    written = await (await AsyncJSONSerializer(JSON, registry))({"id": 3}, whose())
    assert await Decoder(await AsyncJSONDeserializer(JSON, schema_registry_client=registry))(record_of(written)) == {
        "id": 3
    }


async def test_protobuf(registry):
    order = protobuf_order()
    written = await (await AsyncProtobufSerializer(order, registry, PROTOBUF))(order(id=3), whose())
    decoder = Decoder(await AsyncProtobufDeserializer(order, PROTOBUF, registry))
    assert (await decoder(record_of(written))).id == 3


async def test_a_schema_that_only_the_headers_name(registry):
    headers, long = [], {"id": 2**30, "name": "of more than five bytes"}
    schema = AVRO.replace("}]}", '}, {"name": "name", "type": "string"}]}')
    serializer = await AsyncAvroSerializer(registry, schema, conf={"schema.id.serializer": header_schema_id_serializer})
    written = await serializer(long, whose(headers=headers))
    decoder = Decoder(await AsyncAvroDeserializer(registry))
    assert await decoder(record_of(written, headers)) == long
    with pytest.raises(RecordDeserializationError):
        await decoder(record_of(written))


async def test_a_deserializer_sees_the_place_of_what_it_reads():
    seen = []

    async def deserializer(data, context):
        seen.append((data, context.topic, context.field, context.headers))

    record = record_of(b"value", [("tenant", b"7")], b"key")
    await Decoder(deserializer)(record)
    await Decoder(deserializer, "key")(record)
    assert seen == [
        (b"value", "orders", MessageField.VALUE, [("tenant", b"7")]),
        (b"key", "orders", MessageField.KEY, [("tenant", b"7")]),
    ]
    assert await Decoder(deserializer)(record_of(None)) is None
    assert len(seen) == 2


@pytest.mark.parametrize(
    "value", [b"", b"no Avro", b"\0\0\0\0\x09abcd", b"\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
)
async def test_what_is_no_avro_is_the_records_fault(registry, value):
    await registry.register_schema("orders-value", Schema(AVRO, "AVRO"))
    record = record_of(value, [("tenant", b"7")], b"key")
    with pytest.raises(RecordDeserializationError) as raised:
        await Decoder(await AsyncAvroDeserializer(registry))(record)
    error = raised.value
    assert (error.tp, error.offset, error.key, error.value) == (TP, 7, b"key", value)
    assert (error.headers, error.timestamp) == (record.headers, record.timestamp)
    assert str(error.__cause__) not in str(error)


@pytest.mark.parametrize("deserializer", ["not awaited", "not asynchronous", "nothing"])
async def test_what_cannot_be_awaited_is_refused(registry, deserializer):
    if deserializer == "not asynchronous":
        given = AvroDeserializer(SchemaRegistryClient.new_client({"url": "mock://not-asynchronous"}))
    else:
        given = AsyncAvroDeserializer(registry) if deserializer == "not awaited" else None
    with pytest.raises(ConfigError, match="await AsyncAvroDeserializer"):
        Decoder(given)
    if deserializer == "not awaited":
        given.close()


async def test_a_subclass_of_what_cannot_be_awaited_is_refused():
    class Ours(AvroDeserializer):
        pass

    with pytest.raises(ConfigError, match="Ours cannot be awaited"):
        Decoder(Ours(SchemaRegistryClient.new_client({"url": "mock://not-asynchronous"})))


async def test_a_plain_function_is_a_mistake_of_the_program_and_not_the_records_fault():
    with pytest.raises(ConfigError, match="returned a dict, which cannot be awaited"):
        await Decoder(lambda data, context: json.loads(data))(record_of(b"{}"))


async def test_what_a_deserializer_of_the_consumer_has_replaced_is_no_fault_of_the_record(registry):
    deserializer = await AsyncAvroDeserializer(registry)
    with pytest.raises(ConfigError, match=r"value is a dict.*without value_deserializer"):
        await Decoder(deserializer)(record_of({"id": 3}))
    with pytest.raises(ConfigError, match=r"key is a str.*without key_deserializer"):
        await Decoder(deserializer, "key")(record_of(b"", key="3"))


async def test_a_record_that_is_tried_again_while_an_outage_is_handled_is_judged_by_its_own_error(registry):
    decoder = Decoder(await AsyncAvroDeserializer(registry))
    try:
        await asyncio.open_connection("127.0.0.1", 1)
    except ConnectionError:
        with pytest.raises(RecordDeserializationError):
            await decoder(record_of(b"no Avro"))


async def test_an_error_that_is_its_own_cause_does_not_hold_the_loop():
    async def deserializer(data, context):
        try:
            return json.loads(data)
        except ValueError as error:
            raise error from error

    with pytest.raises(RecordDeserializationError):
        await Decoder(deserializer)(record_of(b"no JSON"))


def test_the_field_is_one_of_two():
    with pytest.raises(ConfigError, match="field='headers'"):
        Decoder(lambda data, context: None, "headers")


class Registry:
    """An HTTP server in the test's own event loop: whoever blocks that never gets an answer."""

    def __init__(self, status=200, body=None, *, is_silent=False):
        body = {"schema": AVRO} if body is None else body
        self.answer = status, body if isinstance(body, bytes) else json.dumps(body).encode()
        self.is_silent = is_silent
        self.asked = []

    async def __aenter__(self):
        self.server, self.client, self.open = await asyncio.start_server(self.serve, "127.0.0.1", 0), None, []
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await self.client.__aexit__()
        for writer in self.open:
            writer.close()
            await writer.wait_closed()

    async def serve(self, reader, writer):
        self.open.append(writer)
        while line := await reader.readline():
            self.asked.append(line.split()[1].decode().partition("?")[0])
            while (await reader.readline()).strip():
                pass
            if not self.is_silent:
                status, body = self.answer
                writer.write(
                    b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                    % (status, len(body), body)
                )

    async def decoder(self, **settings):
        port = self.server.sockets[0].getsockname()[1]
        conf = {"url": f"http://127.0.0.1:{port}", "max.retries": 0}
        self.client = AsyncSchemaRegistryClient(conf)
        by_topic = {"subject.name.strategy.type": "TOPIC"}
        return Decoder(await AsyncAvroDeserializer(self.client, conf=by_topic), **settings)


WRITTEN = b"\0\0\0\0\x01\x06"
"""The order 3."""


async def test_the_first_record_of_a_schema_asks_the_registry_and_the_loop_runs_on():
    async with Registry() as registry, asyncio.timeout(10):
        decoder = await registry.decoder()
        for _ in range(3):
            assert await decoder(record_of(WRITTEN)) == {"id": 3}
        assert registry.asked == ["/schemas/ids/1"]


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, {"error_code": 50001, "message": "x"}), (401, {"error_code": 401, "message": "x"}), (404, "no registry"),
     (404, {"error_code": 404, "message": "HTTP 404 Not Found"}), (404, {"status": 404, "title": "Not Found"}),
     (403, {"message": "Forbidden"}), (403, {"error_code": "denied", "message": "x"}), (200, b"<html>log in</html>"),
     (200, b""), (200, b"null"), (204, b"")],
)  # fmt: skip
async def test_an_outage_of_the_registry_is_not_the_records_fault(status, body):
    async with Registry(status, body) as registry:
        decoder = await registry.decoder()
        with pytest.raises(RegistryUnavailableError, match="orders-0 at offset 7") as raised:
            await decoder(record_of(WRITTEN))
        assert raised.value.retriable
        registry.answer = 200, json.dumps({"schema": AVRO}).encode()
        assert await decoder(record_of(WRITTEN)) == {"id": 3}


async def test_a_schema_that_the_registry_does_not_know_is_the_records_fault():
    async with Registry(404, {"error_code": 40403, "message": "Schema 1 not found"}) as registry:
        with pytest.raises(RecordDeserializationError):
            await (await registry.decoder())(record_of(WRITTEN))


async def test_a_registry_that_says_nothing_is_not_waited_for_for_ever():
    async with Registry(is_silent=True) as registry:
        with pytest.raises(RegistryUnavailableError, match="TimeoutError: no answer in time; timeout_ms is 100"):
            await (await registry.decoder(timeout_ms=100))(record_of(WRITTEN))


async def test_a_registry_that_cannot_be_reached_is_an_outage():
    async with Registry() as registry:
        decoder = await registry.decoder()
        registry.server.close()
        with pytest.raises(RegistryUnavailableError, match="ConnectError"):
            await decoder(record_of(WRITTEN))
