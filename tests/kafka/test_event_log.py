"""The event log on a broker and the real clock: in files, and in a topic by aiokafka's producer."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter

from aiokafka import AIOKafkaProducer

from aiogroup.eventlog import EventLog
from aiogroup.spark.liveness.episodes import story_of
from aiogroup.spark.liveness.reference import stretches_of
from tests.support.kafka import QUICK, eventually, take
from tests.support.member_process import spawned

HANDLED_S = 0.05
BUCKET = 23  # of 50 ms


def merged(lines, name):
    found = Counter()
    for each in lines:
        if each["event"] == "sample":
            found.update({int(bucket): count for bucket, count in each["histograms"].get(name, {}).items()})
    return found


def named(lines, event):
    return [each for each in lines if each["event"] == event]


async def test_the_files_tell_what_a_consumer_did(make_place, tmp_path):
    place = make_place(2)
    await place.produce(range(20), 0)
    path, count = tmp_path / "events.jsonl", 0
    async with EventLog(path, interval_ms=200) as log, place.consumer(observers=[log]) as consumer:
        async for _ in consumer:
            await asyncio.sleep(HANDLED_S)
            count += 1
            if count == 20:
                break
        await consumer.commit()
        assert (await consumer.getmany(timeout_ms=500)).count == 0
        member = consumer.group_metadata().member_id
    (path,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [each["seq"] for each in lines] == list(range(len(lines)))
    assert lines[-1]["event"] == "consumer_stopped"
    (completed,) = named(lines, "rebalance_completed")
    assert sorted(completed["partitions"]) == [f"{place.topic}-0", f"{place.topic}-1"]
    assert (completed["group"], completed["member_id"]) == (place.group, member)
    samples = named(lines, "sample")
    assert len(samples) >= 6
    assert sum(each["records_count"] for each in samples) == 20
    # A turn of `async for` ends with a record that takes longer than it, so that each of them is seen for itself.
    times = merged(lines, "record_ms")
    assert sum(times.values()) == 20
    assert sum(count for bucket, count in times.items() if bucket >= BUCKET) >= 19
    assert sum(count for bucket, count in merged(lines, "request_gap_ms").items() if bucket >= BUCKET) >= 19
    assert sum(merged(lines, "heartbeat_ms").values()) >= 3
    assert sum(merged(lines, "heartbeat_gap_ms").values()) >= 3
    assert sum(merged(lines, "commit_ms").values()) >= 1
    assert sum(merged(lines, "loop_late_ms").values()) >= 3
    assert samples[1]["settings"]["heartbeat_interval_ms"] == "200"
    assert log.dropped_count == 0


async def test_a_handler_that_hangs_is_there(make_place, tmp_path):
    place = make_place()
    await place.produce(range(1))
    given = {"max_poll_interval_ms": 1_000, "client_id": "slow"}
    async with EventLog(tmp_path, interval_ms=500) as log, place.consumer(observers=[log], **given) as slow:
        await take(slow, 1)
        await eventually(lambda: slow.health().status == "parked")
    lines = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_bytes().splitlines()]
    (expired,) = named(lines, "poll_interval_exceeded")
    assert expired["client_id"] == "slow"
    assert max(each.get("since_request_ms", 0) for each in named(lines, "sample")) >= 1_000


def have_adopted(path):
    """Whether the last round in this log is over."""
    text = path.read_text()
    return text.rfind('"rebalance_completed"') > text.rfind('"rebalance_started"')


async def test_a_process_that_stands_still_is_told_from_a_loop_that_is_blocked(make_place, tmp_path):
    """Both are gone for longer than the session, and come back."""
    place = make_place(2)
    logs = tmp_path / "logs"
    logs.mkdir()
    given = {**QUICK, "session_timeout_ms": 2_000, "work_ms": 1, "events": str(logs)}
    where = (place.cluster, place.group, place.topic)
    async with (
        spawned(tmp_path / "frozen", *where, client_id="frozen", **given) as frozen,
        spawned(tmp_path / "blocked", *where, client_id="blocked", block_ms=4_000, **given) as blocked,
    ):

        async def have(*counts):
            await eventually(lambda: (len(frozen.assigned()), len(blocked.assigned())) == counts, 60)

        await have(1, 1)
        # The callback that says what is assigned runs before the round is over.
        await eventually(lambda: all(have_adopted(path) for path in logs.iterdir()), 60)
        frozen.process.send_signal(signal.SIGSTOP)
        await have(1, 2)
        frozen.process.send_signal(signal.SIGCONT)
        await eventually(lambda: "lost" in str(frozen.lines()), 60)
        await have(1, 1)
        await place.produce(["block"], blocked.assigned()[0])
        await have(2, 1)
        await eventually(lambda: "lost" in str(blocked.lines()), 60)
        await have(1, 1)
        for each in (frozen, blocked):
            each.stop()
        for each in (frozen, blocked):
            await asyncio.to_thread(each.wait, 60)
    lines = [json.loads(line) for path in logs.iterdir() for line in path.read_bytes().splitlines()]
    ((group, own),) = stretches_of(lines).items()
    story = story_of(group, own)
    found = [(each.cause, each.caused_by.partition("@")[0]) for each in story.rebalances]
    assert [each for each in found if each[0] in ("process_paused", "loop_blocked", "session_expired")] == [
        ("process_paused", "frozen"),
        ("loop_blocked", "blocked"),
    ]
    (paused,), (late,) = story.of("process_paused"), story.of("loop_blocked")
    assert paused.duration_ms >= 1_500
    assert 3_500 <= late.duration_ms <= 8_000


async def test_lines_go_to_a_topic_by_the_applications_producer(make_place):
    place, lines = make_place(), make_place()
    await place.produce(range(10))
    async with (
        AIOKafkaProducer(bootstrap_servers=place.cluster.bootstrap_servers) as producer,
        EventLog(topic=lines.topic, producer=producer, interval_ms=100) as log,
        place.consumer(observers=[log]) as consumer,
    ):
        await take(consumer, 10)
        await eventually(lambda: producer is not None and consumer.metrics()["last_poll_ms_ago"] > 300)
    found = []
    async with lines.consumer() as reader:
        while not found or found[-1]["event"] != "consumer_stopped":
            found.append(json.loads((await reader.getone()).value))
    assert [each["seq"] for each in found] == list(range(len(found)))
    assert {each["group"] for each in found} == {place.group}
    assert len(named(found, "sample")) >= 3
    assert len(named(found, "rebalance_completed")) == 1
    assert log.dropped_count == 0
