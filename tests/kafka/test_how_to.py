"""The how-to pages in docs: their code runs, and what they promise holds."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
import yaml
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from aiogroup import (
    AuthenticationFailedError,
    ConnectionLostError,
    Consumer,
    ConsumerConfig,
    Event,
    FencedInstanceIdError,
)
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.events import RecordRedelivered
from aiogroup.admin import list_members
from aiogroup.schemas import RegistryUnavailableError
from tests.support.kafka import Ears, eventually

ROOT = Path(__file__).parents[2]
PAGES = {path.stem.removeprefix("how-to-"): path.read_text() for path in (ROOT / "docs").glob("how-to-*.md")}


def blocks(page):
    return re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)


def run(page):
    """The names that the page's blocks define."""
    names = {}
    for block in blocks(page):
        exec(compile(block, f"docs/how-to-{page}.md", "exec"), names)
    return names


def test_each_page_fits_a_screen_and_is_linked():
    index = (ROOT / "docs/index.md").read_text()
    assert len(PAGES) == 21
    for page, text in PAGES.items():
        read = [line for line in text.splitlines() if not line.startswith("|")]  # rows of a table are looked up
        assert len(read) <= 80, page
        assert f"(how-to-{page}.md)" in index


async def test_dependency_down(make_place):
    place, seen, is_up = make_place(2), [], asyncio.Event()

    async def charge(record):
        seen.append((record.partition, record.offset))
        if not is_up.is_set():
            raise ConnectionError

    async def asked():
        return is_up.is_set()

    limit_ms = 1_000
    short = {"session_timeout_ms": limit_ms, "max_poll_interval_ms": limit_ms, "auto_commit_interval_ms": 20}
    await place.produce(range(3))
    service = run("dependency-down")["service_of"](lambda: place.consumer(**short), charge, asked)
    async with service.running():
        loop = service["billing"]
        await eventually(lambda: loop.health().status == "degraded")
        await eventually(lambda: loop.health().since_ms > 2 * limit_ms)
        assert loop.consumer.health().status == "paused"
        assert "database" in loop.health().why
        assert seen == [(0, 0)]
        assert await place.committed() in (None, 0)
        is_up.set()
        await eventually(lambda: len(seen) == 4)
        await eventually(lambda: loop.health().status == "ready")
        assert loop.restarts_count == 0
    assert seen == [(0, 0), (0, 0), (0, 1), (0, 2)]
    assert await place.committed() == 3


async def test_tracing(make_place, capsys, monkeypatch):
    place, names, seconds = make_place(), {}, iter([0.0, 0.5, 10.0, 12.0])
    exec(compile(blocks("tracing")[1], "docs/how-to-tracing.md", "exec"), names)
    monkeypatch.setattr(names["time"], "perf_counter", lambda: next(seconds, 99.0))
    await place.produce(range(2))
    async with place.consumer(auto_offset_reset="earliest", observers=[names["Slow"]()]) as consumer:
        async for record in consumer:
            if record.offset == 1:
                break
    assert capsys.readouterr().out == f"{place.topic}-0 1 took long\n"


async def test_kubernetes(make_place, tmp_path):
    place, (block,) = make_place(), blocks("kubernetes")
    await place.produce(range(3))
    program, printed, told = tmp_path / "service.py", tmp_path / "printed", tmp_path / "told"
    program.write_text(
        block.replace("localhost:9092", place.cluster.bootstrap_servers)
        .replace('"orders"', repr(place.topic))
        .replace('"billing"', repr(place.group))
    )
    with printed.open("wb") as out, told.open("wb") as errors:
        running = subprocess.Popen(  # noqa: ASYNC220 (at once)
            [sys.executable, str(program)], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=out, stderr=errors
        )
    try:
        await eventually(lambda: "begun 1" in printed.read_text(), 30)
        running.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait, 20) == 0
    finally:
        running.kill()
        running.wait()
    assert printed.read_text().splitlines() == ["begun 0", "done 0", "begun 1", "done 1"]
    assert "Traceback" not in told.read_text()
    assert await place.committed() == 2
    assert not await list_members(place.group, bootstrap_servers=place.cluster.bootstrap_servers)


def test_kubernetes_may_end_the_program_while_it_joins(tmp_path):
    program, told, (block,) = tmp_path / "service.py", tmp_path / "told", blocks("kubernetes")
    with socket.create_server(("127.0.0.1", 0)) as silent, told.open("wb") as errors:
        program.write_text(block.replace("localhost:9092", f"127.0.0.1:{silent.getsockname()[1]}"))
        running = subprocess.Popen(
            [sys.executable, str(program)], env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=errors
        )
        try:
            silent.settimeout(30)
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(30)
                assert connection.recv(1)  # of a request that nobody answers
                running.send_signal(signal.SIGTERM)
                assert running.wait(20) == 0
        finally:
            running.kill()
            running.wait()
    assert "Traceback" not in told.read_text()


async def test_workers(make_place):
    place, names = make_place(3), run("workers")
    handled, is_free, ended = [], asyncio.Event(), asyncio.Event()

    async def handle(record):
        if record.partition == 0:
            await is_free.wait()
        handled.append((record.partition, int(record.value)))

    def start(until):
        servers = place.cluster.bootstrap_servers
        return asyncio.create_task(names["main"](servers, place.topic, place.group, handle, until))

    for partition in range(3):
        await place.produce(range(5), partition)
    first = start(ended)
    expected = {(partition, value) for partition in (1, 2) for value in range(5)}
    await eventually(lambda: set(handled) == expected, 30)  # while a record of partition 0 is in hand
    is_free.set()
    await eventually(lambda: len(handled) == 15, 30)
    second_ended = asyncio.Event()
    second = start(second_ended)

    async def are_two():
        return len(await list_members(place.group, bootstrap_servers=place.cluster.bootstrap_servers)) == 2

    await eventually(are_two, 30)
    for partition in range(3):
        await place.produce(range(5, 8), partition)
    await eventually(lambda: len(set(handled)) == 24, 30)
    for event, task in ((ended, first), (second_ended, second)):
        event.set()
        await asyncio.wait_for(task, 30)
    assert await place.committed_is(8, 8, 8)
    assert len(handled) == 24
    for partition in range(3):
        assert [value for number, value in handled if number == partition] == list(range(8))


async def test_pool(make_place):
    place, names = make_place(2), run("pool")
    begun, handled, is_free = [], [], asyncio.Event()

    async def handle(record):
        begun.append((record.partition, int(record.value)))
        if begun[-1] == (0, 1):
            await is_free.wait()
        handled.append(begun[-1])

    for partition in range(2):
        await place.produce(range(5), partition)
    async with names["make"](place.cluster.bootstrap_servers, place.topic, place.group) as consumer:
        working = asyncio.create_task(names["pool"](consumer, handle, 2))
        await eventually(lambda: len(handled) == 9, 30)  # one worker is busy, the other one handles all the rest
        await consumer.skip()
        await consumer.commit()
        assert await place.committed_is(1, 5)  # the record in hand holds it back, also after skip()
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0.2)
        assert not stopping.done()
        is_free.set()
        assert (await asyncio.wait_for(stopping, 10)).is_clean
        await asyncio.wait_for(working, 10)
    assert await place.committed_is(5, 5)


async def test_a_pool_ends_with_the_error_and_its_record_comes_again(make_place):
    place, names, handled = make_place(), run("pool"), []

    async def handle(record):
        if record.offset == 2 and 2 not in handled:
            handled.append(2)
            raise LookupError("not handled")
        handled.append(record.offset)

    await place.produce(range(5))
    make = names["make"]
    with pytest.raises(ExceptionGroup) as raised:
        async with make(place.cluster.bootstrap_servers, place.topic, place.group) as consumer:
            await asyncio.wait_for(names["pool"](consumer, handle), 30)
    assert [type(each) for each in raised.value.exceptions] == [LookupError]
    assert await place.committed_is(2)
    async with make(place.cluster.bootstrap_servers, place.topic, place.group) as consumer:
        working = asyncio.create_task(names["pool"](consumer, handle))
        await eventually(lambda: place.committed_is(5), 30)
        await consumer.stop()
        await asyncio.wait_for(working, 10)
    assert handled.count(2) == 2


async def test_poison(make_place, caplog):
    place, names, handled = make_place(), run("poison"), []
    await place.produce(["1", "poison", "2"])

    async def handle(record):
        handled.append(record.value)

    async with place.consumer(value_deserializer=int) as consumer:
        reading = asyncio.create_task(names["read"](consumer, handle))
        await eventually(lambda: handled == [1, 2])
        await consumer.stop()
        await asyncio.wait_for(reading, 10)
    assert "offset 1: the value deserializer raised ValueError" in caplog.text
    assert await place.committed() == 3


async def test_dead_letters(make_place, kafka_cluster):
    place, names, ears = make_place(), run("dead-letters"), Ears()
    letters = f"dlq.{place.group}.{place.topic}"
    kafka_cluster.create_topic(letters)
    await place.produce(["1", "poison", "2", "3", "4"])
    attempts = []

    async def handle(record):
        attempts.append(record.value)
        if record.value == 2 and attempts.count(2) < 3:
            raise ConnectionError("not now")
        if record.value == 3:
            raise ConnectionError("never")

    async with place.consumer(value_deserializer=int, observers=[ears]) as consumer:
        reading = asyncio.create_task(names["read"](consumer, handle))
        await eventually(lambda: attempts[-1:] == [4], 20)
        await consumer.stop()
        await asyncio.wait_for(reading, 10)
    assert attempts == [1, 2, 2, 2, 3, 3, 3, 4]
    assert [each.offset for each in ears.heard(RecordRedelivered)] == [2, 3]
    assert await place.committed() == 5
    async with place.consumer(letters, group_id=f"{place.group}-replay") as replay:
        sent = [await replay.getone() for _ in range(2)]
    about = [dict(each.headers) for each in sent]
    assert [each.value for each in sent] == [b"poison", b"3"]
    assert [each["__dlq.errors.offset"] for each in about] == [b"1", b"3"]
    assert [each["__dlq.errors.exception"] for each in about] == [b"ValueError", b"ConnectionError"]
    assert [each["__dlq.errors.delivery.count"] for each in about] == [b"1", b"3"]


async def test_dead_letters_names_the_headers_that_a_letter_has(make_place, kafka_cluster):
    place, names = make_place(), run("dead-letters")
    kafka_cluster.create_topic(f"dlq.{place.group}.{place.topic}")
    table = re.search(r"\| `__dlq\.errors\.` .*?\n\n", PAGES["dead-letters"], re.DOTALL).group()
    rows = "".join(row.split("|")[1] for row in table.split("\n")[2:] if row)
    told = {f"__dlq.errors.{each}" for each in re.findall(r"`([\w.]+)`", rows)}
    await place.produce(range(1))

    async def handle(record):
        raise LookupError

    async with place.consumer() as consumer:
        reading = asyncio.create_task(names["read"](consumer, handle))
        await eventually(lambda: place.committed_is(1), 20)
        await consumer.stop()
        await asyncio.wait_for(reading, 10)
    async with place.consumer(f"dlq.{place.group}.{place.topic}", group_id=None) as reader:
        letter = await reader.getone()
    assert {name for name, _ in letter.headers} == told


async def test_schemas(make_place):
    place, names, stored, is_down = make_place(), run("schemas"), [], iter([True])
    registry = AsyncSchemaRegistryClient.new_client({"url": "mock://how-to"})
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
    serialize = await AsyncAvroSerializer(registry, schema)
    whose = SerializationContext(place.topic, MessageField.VALUE, [])
    async with place.producer() as producer:
        for value in (await serialize({"id": 1}, whose), b"no Avro", None, await serialize({"id": 2}, whose)):
            await producer.send_and_wait(place.topic, value, b"key")

    async def store(record, order):
        if order == {"id": 2} and next(is_down, False):
            raise RegistryUnavailableError("as if the registry was down for the first time")
        stored.append(order)

    async with place.consumer() as consumer:
        reading = asyncio.create_task(names["read"](consumer, registry, store))
        await eventually(lambda: stored[-1:] == [{"id": 2}], 20)
        await consumer.stop()
        await asyncio.wait_for(reading, 10)
    assert stored == [{"id": 1}, None, {"id": 2}]
    assert await place.committed() == 4


async def test_a_record_that_is_no_json_is_skipped_by_the_cause_of_the_error(make_place, capsys):
    place, names, read = make_place(), run("poison"), []
    await place.produce(["1", "not json", "3"])

    async def handle(record):
        read.append(record.value)

    async with place.consumer(value_deserializer=json.loads) as consumer:
        reading = asyncio.create_task(names["read_json"](consumer, handle))
        await eventually(lambda: read == [1, 3])
        await consumer.stop()
        await asyncio.wait_for(reading, 10)
    assert capsys.readouterr().out == f"skipped: {place.tp()} 1 b'not json'\n"


async def test_one_shot(make_place):
    place, names, handled, is_failing = make_place(2), run("one-shot"), [], False

    async def handle(records):
        if is_failing:
            raise LookupError("not handled")
        handled.extend(int(each.value) for each in records)

    async def run_once():
        job = names["run_once"](place.cluster.bootstrap_servers, place.topic, place.group, handle)
        return await asyncio.wait_for(job, 30)

    assert await run_once()  # there is nothing yet
    await place.produce(range(5), 0)
    await place.produce(range(5, 8), 1)
    assert await run_once()
    assert sorted(handled) == list(range(8))
    await place.produce([8], 1)
    is_failing = True
    with pytest.raises(LookupError):
        await run_once()
    is_failing = False
    assert await run_once()
    assert sorted(handled) == list(range(9)), "none is handled twice, none is left out"
    assert await place.committed_is(5, 4)


async def test_a_job_that_does_not_commit_gets_its_batch_at_each_run(make_place):
    place, ears = make_place(), Ears()
    await place.produce(range(3))
    for _ in range(2):
        async with place.consumer(observers=[ears]) as consumer:
            batch = await consumer.getmany(timeout_ms=20_000)
            assert [each.offset for each in batch.all()] == [0, 1, 2]
            report = await consumer.stop()
        assert report.in_hand == {place.tp(): 3}
    assert [each.clean for each in ears.heard(events.ConsumerStopped)] == [False, False]
    async with place.consumer() as consumer:
        async for record in consumer:
            if record.offset == 2:
                await consumer.commit()
                break
        assert (await consumer.stop()).is_clean
    assert await place.committed() == 3


def test_the_job_of_a_cron_is_the_only_one():
    (job,) = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGES["one-shot"], re.DOTALL))
    assert job["spec"]["concurrencyPolicy"] == "Forbid"


async def test_logging(make_place, monkeypatch):
    place, names = make_place(), run("logging")
    await place.produce(["1"])
    logger, level, said = logging.getLogger("aiogroup"), logging.getLogger("aiogroup").level, io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a program that has just begun
    monkeypatch.setattr(sys, "stderr", said)
    try:
        names["configure_logging"]()
        counter = names["Counter"]()
        async with place.consumer(observers=[counter]) as consumer:
            assert (await consumer.getone()).value == b"1"
            await eventually(lambda: counter.of.get("heartbeat_acknowledged"))
    finally:
        logger.setLevel(level)
    assert counter.of["rebalance_completed"] == 1
    logged = [each for each in map(json.loads, said.getvalue().splitlines()) if each["logger"] == "aiogroup"]
    (completed,) = (each for each in logged if each["event"] == "rebalance_completed")
    assert completed["level"] == "INFO"
    assert completed["group"] == place.group
    assert not [each for each in logged if each["event"] == "heartbeat_acknowledged"]  # DEBUG


async def test_commit_in_batches_and_by_record(make_place):
    place, names, stored = make_place(), run("commit"), []
    await place.produce(range(5))

    async def store(records):
        stored.extend(int(each.value) for each in records)

    async with place.consumer(enable_auto_commit=False) as consumer:
        working = asyncio.create_task(names["in_batches"](consumer, store))
        await eventually(lambda: place.committed_is(5))
        await consumer.stop()
        await asyncio.wait_for(working, 10)
    assert stored == [0, 1, 2, 3, 4]
    await place.produce(range(5, 8))
    async with place.consumer(enable_auto_commit=False) as consumer:
        committed = []

        async def handle(record):
            committed.append(await consumer.committed(record.tp))

        working = asyncio.create_task(names["each_record"](consumer, handle))
        await eventually(lambda: place.committed_is(8))
        await consumer.stop()
        await asyncio.wait_for(working, 10)
    assert committed == [5, 6, 7]


async def test_commit_of_what_was_finished_in_any_order(make_place):
    place, names, begun = make_place(), run("commit"), []
    await place.produce(range(4))
    async with place.consumer(auto_ack=False) as consumer:
        working = asyncio.create_task(names["in_any_order"](consumer, begun.append))
        await eventually(lambda: len(begun) == 4)
        for number in (0, 1, 3):
            begun[number].ack()
        await eventually(lambda: place.committed_is(2))
        await consumer.stop()
        await asyncio.wait_for(working, 10)
    assert await place.committed() == 2  # up to the gap


async def test_commit_to_a_database(make_place):
    place, names, asked = make_place(2), run("commit"), set()
    await place.produce(range(4))

    async def read_offset(tp):
        asked.add(tp)
        return 3 if tp.partition == 0 else None

    listener = names["FromDatabase"](read_offset)
    consumer = place.consumer(enable_auto_commit=False, listener=listener)
    listener.consumer = consumer
    async with consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).offset == 3
    assert asked == {place.tp(0), place.tp(1)}


async def test_static_members(make_place, monkeypatch, capsys):
    place, names = make_place(), run("static-members")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", place.cluster.bootstrap_servers)
    monkeypatch.setenv("MEMBER_NAME", "billing-0")
    await place.produce(range(2))

    async def members():
        return await list_members(place.group, bootstrap_servers=place.cluster.bootstrap_servers)

    first = names["make_consumer"](place.topic, place.group)
    async with first:
        assert (await first.getone()).offset == 0
    (kept,) = await members()  # a stop does not leave the group
    assert kept.name == "billing-0"
    older = asyncio.create_task(names["main"](place.topic, place.group))
    await eventually(lambda: "0 1" in capsys.readouterr().out, 30)
    async with names["make_consumer"](place.topic, place.group) as newer:
        with pytest.raises(FencedInstanceIdError):
            await asyncio.wait_for(older, 30)
        await newer.stop(leave_group=True)
    assert "another process uses my name" in capsys.readouterr().out
    assert not await members()


async def test_time_outs(make_place):
    place, names = make_place(), run("time-outs")
    observer = names["NearlyLate"]()
    await place.produce(range(1))
    consumer = names["make_consumer"](place.topic, place.group, place.cluster.bootstrap_servers, 11_000, observer)
    assert consumer.config.max_poll_interval_ms == 33_000
    async with consumer:
        assert (await consumer.getone()).offset == 0
    assert observer.seen == []
    kinds = {name.fget(object.__new__(kind)): kind for kind in vars(events).values() for name in names_of(kind)}
    for name in names["NearlyLate"].NAMES:
        observer.on_event(object.__new__(kinds[name]))
    assert set(observer.seen) == names["NearlyLate"].NAMES


def names_of(kind):
    return [kind.name] if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event else []


async def test_migrate_aiokafka(make_place):
    place, names = make_place(), run("migrate-aiokafka")
    await place.produce(range(3))
    arguments = (place.cluster.bootstrap_servers, place.topic, place.group)
    assert await asyncio.wait_for(names["main"](*arguments, 2), 30) == [b"0", b"1"]
    theirs = {}
    (block,) = blocks("migrate-aiokafka")
    exec(
        block.replace("from aiogroup import Consumer as AIOKafkaConsumer", "from aiokafka import AIOKafkaConsumer")
        .replace("record.tp", "TopicPartition(record.topic, record.partition)")
        .replace("import contextlib", "import contextlib\nfrom aiokafka import TopicPartition"),
        theirs,
    )
    assert await asyncio.wait_for(theirs["main"](*arguments, 1), 30) == [b"2"]  # goes on at our commit
    assert await place.committed() == 3


@pytest.mark.parametrize("client", [AIOKafkaConsumer, Consumer])
async def test_the_rows_of_the_migration_about_stop_and_sets(make_place, client):
    """What both clients do with the same code, of which the page says that it differs."""
    place, given = make_place(), []
    await place.produce(range(3))

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned):
            given.append(("assigned", type(assigned)))

        def on_partitions_revoked(self, revoked):
            given.append(("revoked", len(revoked)))

    consumer = client(
        bootstrap_servers=place.cluster.bootstrap_servers, group_id=place.group, auto_offset_reset="earliest"
    )
    consumer.subscribe([place.topic], listener=Listener())
    await consumer.start()
    batch = await asyncio.wait_for(consumer.getmany(timeout_ms=20_000), 30)
    assert [each.offset for records in batch.values() for each in records] == [0, 1, 2]
    sets = [consumer.paused(), consumer.partitions_for_topic(place.topic), await consumer.topics()]
    before = list(given)
    await consumer.stop()
    if client is Consumer:
        assert all(isinstance(each, frozenset) for each in sets)
        assert before == [("assigned", frozenset)]
        assert given[1:] == [("revoked", 1)]
        assert await place.committed() in (0, None)  # where it began, or nothing: the batch comes again
    else:
        assert {type(each) for each in sets} == {set}
        assert before == [("revoked", 0), ("assigned", set)]
        assert given[2:] == []
        assert await place.committed() == 3


async def test_migrate_confluent_kafka(make_place):
    place, names = make_place(), {}
    for block in blocks("migrate-confluent-kafka"):
        exec(block, names)
    await place.produce(range(4))
    arguments = (place.cluster.bootstrap_servers, place.topic, place.group)
    assert await asyncio.wait_for(names["before"](*arguments, 2), 60) == [b"0", b"1"]
    assert await place.committed() == 2
    assert await asyncio.wait_for(names["after"](*arguments, 1), 30) == [b"2"]
    assert await place.committed() == 3
    assert await asyncio.wait_for(names["before"](*arguments, 1), 60) == [b"3"]


def is_known_to_confluent_kafka(name):
    try:
        confluent_kafka.Consumer({"group.id": "g", name: "no value"}).close()
    except confluent_kafka.KafkaException as error:
        return "No such configuration property" not in str(error)
    return True


def test_the_settings_of_confluent_kafka_and_ours_are_there():
    told = re.findall(r"^\| (`[^|]*) \| [^|]* \| (`[^|]*) \|", PAGES["migrate-confluent-kafka"], re.MULTILINE)
    settings = dataclasses.fields(ConsumerConfig)
    theirs = [name for cell, _ in told for name in re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", cell)]
    ours = [name for _, cell in told for name in re.findall(r"`([a-z]+_[a-z_]+)`", cell)]
    assert len(theirs) > 15
    assert [name for name in theirs if not is_known_to_confluent_kafka(name)] == []
    assert not is_known_to_confluent_kafka("no.such.setting")
    assert set(ours) - {each.name for each in settings} == set()


async def test_sasl_ssl(secure, unique_name, monkeypatch):
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": secure.bootstrap("SASL_SSL"),
        "KAFKA_CA_FILE": str(secure.ca_pem),
        "KAFKA_USERNAME": "alice",
        "KAFKA_PASSWORD": "s3cret-of-alice",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    make_consumer = run("sasl-ssl")["make_consumer"]
    async with make_consumer("secured", unique_name("group")) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"0"
    monkeypatch.setenv("KAFKA_PASSWORD", "wrong")
    refused = make_consumer("secured", unique_name("group"))
    with pytest.raises(AuthenticationFailedError):
        await refused.start()
    await refused.stop()
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret-of-alice")
    monkeypatch.delenv("KAFKA_CA_FILE")
    untrusting = make_consumer("secured", unique_name("group"))
    with pytest.raises(ConnectionLostError, match="its certificate is not trusted"):
        await untrusting.start()
    await untrusting.stop()
