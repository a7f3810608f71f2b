"""The log has at INFO what a person acts on, however many partitions there are, and warns where it should."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from aiogroup import Consumer
from aiogroup import TopicPartition as Tp
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual
from tests.support.asgi import get, logged

COUNT = 200
LANES = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1}


class Ears:
    def __init__(self):
        self.heard = []

    def on_event(self, event):
        self.heard.append(event)

    def counts(self):
        return Counter(event.name for event in self.heard)


def plays(script, partitions=COUNT, nodes=1):
    async def play():
        async with Broker(nodes, seed=1) as broker:
            broker.create_topic("t", partitions)
            with logged() as entries:
                await script(broker, entries)

    run_virtual(play())


def consumer_of(broker, *, group="g", **settings):
    given = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 1_000, **settings}
    return Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id=group, **given)


def produce(broker, count, partitions=COUNT):
    for partition in range(partitions):
        for _ in range(count):
            broker.produce("t", b"", partition=partition)


async def read_all(consumer, count):
    """Read so many records, and say that they are processed."""
    while count:
        count -= (await consumer.getmany(timeout_ms=5_000)).count
    await consumer.skip()


def lines_of(entries):
    """How often each event was logged, but for those of any start and end."""
    usual = {"rebalance_started", "rebalance_completed", "coordinator_found", "consumer_stopped"}
    assert len([name for name, _ in entries if name in usual]) <= 8
    return Counter((of["levelname"], name) for name, of in entries if name not in usual)


def test_a_recovery_of_200_partitions_is_two_lines_and_its_observers_hear_all():
    async def script(broker, entries):
        produce(broker, 3)
        async with consumer_of(broker) as consumer:
            await read_all(consumer, 3 * COUNT)
        produce(broker, 4)
        entries.clear()
        ears = Ears()
        async with consumer_of(broker, observers=[ears], **LANES) as consumer:
            await read_all(consumer, 4 * COUNT)
            await broker.until(lambda: ears.counts()["caught_up"], 30)
        assert lines_of(entries) == {("INFO", "partitions_started"): 1, ("INFO", "caught_up"): 1}
        (started,) = (of for name, of in entries if name == "partitions_started")
        assert (started["catching_up_count"], started["pending_count"]) == (COUNT, 4 * COUNT)
        assert (started["from_policy_count"], started["new_count"], started["recreated_topics"]) == (0, 0, ())
        (done,) = (of for name, of in entries if name == "caught_up")
        assert done["partitions_count"] == COUNT
        counts = ears.counts()
        assert (counts["catch_up_started"], counts["catch_up_done"]) == (COUNT, COUNT)
        assert counts["range_done"] >= COUNT

    plays(script)


def test_a_first_start_of_200_partitions_is_one_line():
    async def script(broker, entries):
        ears = Ears()
        async with consumer_of(broker, observers=[ears]) as consumer:
            await consumer.getmany(timeout_ms=1_000)
        assert lines_of(entries) == {("INFO", "partitions_started"): 1}
        (started,) = (of for name, of in entries if name == "partitions_started")
        assert (started["from_policy_count"], started["catching_up_count"]) == (COUNT, 0)
        assert ears.counts()["position_from_policy"] == 1

    plays(script)


def test_an_ordinary_restart_says_nothing_of_partitions():
    async def script(broker, entries):
        async with consumer_of(broker) as consumer:
            await consumer.getmany(timeout_ms=1_000)
        entries.clear()
        async with consumer_of(broker) as consumer:
            await consumer.getmany(timeout_ms=1_000)
        assert lines_of(entries) == {}

    plays(script)


@pytest.mark.parametrize("lanes", [{}, LANES])
def test_a_topic_of_200_partitions_that_is_recreated_is_one_warning_and_one_that_grows_is_one_line(lanes):
    async def script(broker, entries):
        produce(broker, 1)
        ears = Ears()
        async with consumer_of(broker, observers=[ears], **lanes) as consumer:
            await read_all(consumer, COUNT)
            await broker.clock.pass_s(2)
            entries.clear()
            broker.delete_topic("t")
            broker.create_topic("t", COUNT)
            produce(broker, 1)
            await read_all(consumer, COUNT)
            await broker.clock.pass_s(2)
            lines = lines_of(entries)
            failed, ended = lines.pop(("WARNING", "fetch_failed")), lines.pop(("INFO", "failing_ended"))
            assert failed == ended == len({of["why"] for name, of in entries if name == "fetch_failed"}) <= 2
            assert ears.counts()["fetch_failed"] >= COUNT
            assert lines == {("WARNING", "partitions_started"): 1}
            (started,) = (of for name, of in entries if name == "partitions_started")
            assert (started["recreated_topics"], started["recreated_count"]) == (("t",), COUNT)
            assert ears.counts()["topic_recreated"] == COUNT
            entries.clear()
            broker.add_partitions("t", COUNT)
            await broker.until(lambda: len(consumer.assignment()) == 2 * COUNT, 60)
            await broker.clock.pass_s(2)
            assert lines_of(entries)["INFO", "partitions_started"] == 1

    plays(script)


def test_200_partitions_that_are_added_are_one_line():
    async def script(broker, entries):
        ears = Ears()
        async with consumer_of(broker, observers=[ears], auto_offset_reset="latest") as consumer:
            await broker.clock.pass_s(2)
            entries.clear()
            broker.add_partitions("t", COUNT)
            await broker.until(lambda: len(consumer.assignment()) == 1 + COUNT, 60)
            await broker.clock.pass_s(2)
        assert lines_of(entries)["INFO", "partitions_started"] == 1
        (started,) = (of for name, of in entries if name == "partitions_started")
        assert started["new_count"] == ears.counts()["new_partition_from_earliest"] == COUNT

    plays(script, partitions=1)


def test_the_document_of_a_service_keeps_what_the_log_does_not():
    async def script(broker, entries):
        produce(broker, 3, partitions=2)
        service = Service(reader=Loop(lambda: consumer_of(broker, **LANES), read), access=lambda _: True)
        async with service.running():
            await broker.until(lambda: any(name == "caught_up" for name, _ in entries), 60)
            seen = Counter(each["event"] for each in (await get(service, "/state")).body["events"])
        assert (seen["catch_up_started"], seen["range_done"], seen["catch_up_done"]) == (2, 2, 2)
        assert not {"heartbeat_sent", "heartbeat_acknowledged", "offsets_committed", "member_moved"} & seen.keys()

    plays(script, partitions=2)


async def read(consumer):
    async for _ in consumer:
        pass


# Brokers that are away.


def said(entries):
    """How often each event was logged: warnings, and what says that failures have ended. Not that a leader moved."""
    entries = [(name, of) for name, of in entries if not of.get("topic")]
    told = Counter(name for name, of in entries if of["levelname"] == "WARNING")
    ended = Counter(of["event_name"] for name, of in entries if name == "failing_ended")
    return told, ended


async def reads_on(broker, ears, partitions):
    count = ears.counts()["offsets_committed"]
    produce(broker, 1, partitions)
    await broker.until(lambda: ears.counts()["offsets_committed"] > count, 60)


@pytest.mark.parametrize("away_s", [8, 40])
def test_an_outage_is_one_warning_for_each_broker_and_cause_and_one_line_at_its_end(away_s):
    async def script(broker, entries):
        ears = Ears()
        async with consumer_of(broker, observers=[ears]) as consumer:
            reading = asyncio.create_task(read(consumer))
            await reads_on(broker, ears, 6)
            entries.clear()
            for node in broker.nodes:
                node.kill()
            await broker.clock.pass_s(away_s)
            for node in broker.nodes:
                node.start()
            await reads_on(broker, ears, 6)
            await broker.clock.pass_s(10)
            told, ended = said(entries)
            counts = ears.counts()
            reading.cancel()
        assert told["fetch_failed"] == ended["fetch_failed"] == 3  # brokers
        for name in ("coordinator_lost", "heartbeat_missed", "metadata_failed"):
            assert told[name] == ended[name] == 1, name
        assert told["commit_failed"] == ended["commit_failed"] <= 1
        assert told.total() <= 8
        assert not [name for name, _ in entries if name == "coordinator_found"]  # the same as before
        assert counts["fetch_failed"] > 3 * away_s / 2
        lasted = [of for name, of in entries if name == "failing_ended" and of["node_id"]]
        lasted = [of for of in lasted if of["event_name"] == "fetch_failed"]
        assert {of["node_id"] for of in lasted} == {1, 2, 3}
        of_brokers = [each for each in ears.heard if each.name == "fetch_failed" and each.topic is None]
        assert sum(of["failures_count"] for of in lasted) == len(of_brokers)
        assert all(away_s * 500 < of["duration_ms"] < (away_s + 5) * 1_000 for of in lasted)

    plays(script, partitions=6, nodes=3)


def test_an_outage_that_lasts_is_told_with_a_count_each_minute():
    async def script(broker, entries):
        ears = Ears()
        async with consumer_of(broker, observers=[ears]) as consumer:
            reading = asyncio.create_task(read(consumer))
            await reads_on(broker, ears, 1)
            entries.clear()
            broker.nodes[0].kill()
            await broker.clock.pass_s(200)
            still = [of for name, of in entries if name == "failing_still" and of["event_name"] == "fetch_failed"]
            broker.nodes[0].start()
            await reads_on(broker, ears, 1)
            reading.cancel()
        assert [of["since_ms"] // 10_000 for of in still] == [6, 12, 18]
        assert [of["levelname"] for of in still] == ["WARNING"] * 3
        assert 40 < still[0]["failures_count"] < still[1]["failures_count"] < still[2]["failures_count"]
        assert {(of["node_id"], of["topic"]) for of in still} == {(1, None)}
        assert "cannot connect" in still[0]["why"]

    plays(script, partitions=1)


def test_a_second_outage_warns_again():
    async def script(broker, entries):
        ears = Ears()
        async with consumer_of(broker, observers=[ears]) as consumer:
            reading = asyncio.create_task(read(consumer))
            for _ in range(2):
                await reads_on(broker, ears, 1)
                entries.clear()
                broker.nodes[0].kill()
                await broker.clock.pass_s(5)
                broker.nodes[0].start()
                await reads_on(broker, ears, 1)
                told, ended = said(entries)
                assert told["fetch_failed"] == ended["fetch_failed"] == 1
            reading.cancel()

    plays(script, partitions=1)


# Brokers that are slow.

SLOW = ("Heartbeat", "FindCoordinator", "Metadata", "ApiVersions")


@pytest.mark.parametrize("late_ms", [2_000, 3_000, 6_000])
def test_brokers_that_all_answer_late_are_not_asked_again_and_again_for_the_coordinator(late_ms):
    """A doubt of each heartbeat would cost them connections, and the heartbeats would be late."""

    async def script(broker, entries):
        async with consumer_of(broker, metadata_max_age_ms=300_000) as consumer:
            reading = asyncio.create_task(read(consumer))
            await broker.until(lambda: len(consumer.assignment()) == 3, 60)
            await broker.clock.pass_s(10)
            connections, beats, entries[:] = broker.count("ApiVersions"), broker.count("Heartbeat"), []
            slow = broker.delay(*SLOW, ms=late_ms)
            await broker.clock.pass_s(120)
            assert broker.count("ApiVersions") - connections <= 4
            assert broker.count("Heartbeat") - beats >= 120_000 // max(3_100, late_ms + 100) - 3
            assert not entries
            slow.remove()
            reading.cancel()

    plays(script, partitions=3, nodes=3)


def test_a_slow_coordinator_alone_is_left_alone():
    async def script(broker, entries):
        async with consumer_of(broker) as consumer:
            reading = asyncio.create_task(read(consumer))
            await broker.until(lambda: len(consumer.assignment()) == 3, 60)
            await broker.clock.pass_s(10)
            asked, entries[:] = broker.count("FindCoordinator"), []
            slow = broker.delay("Heartbeat", ms=3_000)
            await broker.clock.pass_s(120)
            assert 1 <= broker.count("FindCoordinator") - asked <= 4
            assert not entries
            slow.remove()
            await broker.clock.pass_s(10)
            asked = broker.count("FindCoordinator")
            broker.drop("Heartbeat", times=1)
            await broker.clock.pass_s(6)
            assert broker.count("FindCoordinator") > asked, "it is not doubted any more"
            reading.cancel()

    plays(script, partitions=3, nodes=3)


# A stop that leaves records in hand.


def left_in_hand(entries):
    return [
        (of["levelname"], of["partitions"], of["records_count"])
        for name, of in entries
        if name == "records_left_in_hand"
    ]


def test_a_batch_that_nobody_said_is_processed_is_warned_of_with_what_to_do():
    async def script(broker, entries):
        produce(broker, 3, partitions=1)
        async with consumer_of(broker) as consumer:
            assert (await consumer.getmany(timeout_ms=5_000)).count == 3
        assert left_in_hand(entries) == [("WARNING", (Tp("t", 0),), 3)]
        (text,) = (of["what_to_do"] for name, of in entries if name == "records_left_in_hand")
        assert "commit()" in text
        assert "record.ack()" in text

    plays(script, partitions=1)


def test_a_stop_that_cannot_commit_warns_although_nobody_looks_at_its_report():
    async def script(broker, entries):
        produce(broker, 3, partitions=1)
        consumer = consumer_of(broker)
        await consumer.start()
        assert (await consumer.getmany(timeout_ms=5_000)).count == 3
        assert not await consumer.getmany(timeout_ms=100)  # so the three are processed
        broker.nodes[0].pause()
        await consumer.stop(timeout_ms=1_500)
        (warned,) = (of for name, of in entries if name == "stop_incomplete")
        assert warned["levelname"] == "WARNING"
        assert warned["partitions"] == (Tp("t", 0),)
        assert "commit: not done in time" in warned["problems"]
        broker.nodes[0].resume()

    plays(script, partitions=1)


@pytest.mark.parametrize("how", ["commit", "ack", "skip", "nothing is read", "no group"])
def test_nothing_is_warned_of_where_nothing_is_left(how):
    async def script(broker, entries):
        produce(broker, 3, partitions=1)
        more = {"group": None} if how == "no group" else {"auto_ack": how != "ack"}
        async with consumer_of(broker, **more) as consumer:
            batch = None if how == "nothing is read" else await consumer.getmany(timeout_ms=5_000)
            match how:
                case "commit":
                    await consumer.commit()
                case "ack":
                    batch.ack()
                case "skip":
                    await consumer.skip()
        assert left_in_hand(entries) == []

    plays(script, partitions=1)


@pytest.mark.parametrize("way", ["async with", "finally"])
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_a_handler_that_failed_knows_it(way, error):
    async def with_block(broker):
        async with consumer_of(broker) as consumer:
            await consumer.getone()
            raise error

    async def with_finally(broker):
        consumer = consumer_of(broker)
        await consumer.start()
        try:
            await consumer.getone()
            raise error
        finally:
            assert (await consumer.stop()).in_hand

    async def script(broker, entries):
        produce(broker, 3, partitions=1)
        with pytest.raises(error):
            await (with_block if way == "async with" else with_finally)(broker)
        assert left_in_hand(entries) == []

    plays(script, partitions=1)


def test_so_does_a_service_whose_body_raised():
    async def fails(consumer):
        async for _ in consumer:
            raise ZeroDivisionError

    async def script(broker, entries):
        produce(broker, 3, partitions=1)
        service = Service(reader=Loop(lambda: consumer_of(broker), fails), when_dead="fail")
        async with service.running():
            await broker.until(lambda: any(name == "consumer_stopped" for name, _ in entries), 60)
        assert [name for name, _ in entries if name == "loop_failed"] == ["loop_failed"]
        assert left_in_hand(entries) == []

    plays(script, partitions=1)


def test_a_record_that_waits_for_a_dependency_is_not_warned_of():
    async def script(broker, entries):
        produce(broker, 1, partitions=1)
        async with consumer_of(broker) as consumer:
            await consumer.getone()
            async with consumer.paused():
                assert (await consumer.stop()).in_hand
        assert left_in_hand(entries) == []

    plays(script, partitions=1)


# Partitions that are given up uncommitted.


@pytest.mark.parametrize("lanes", [{}, LANES])
@pytest.mark.parametrize("processed_count", [0, 1])
def test_at_a_revoke_only_what_was_processed_counts_as_uncommitted(processed_count, lanes):
    async def script(broker, entries):
        produce(broker, 3, partitions=1)
        settings = {"enable_auto_commit": False, "partition_assignment_strategy": ("range",), **lanes}
        async with consumer_of(broker, **settings) as consumer:
            for _ in range(processed_count):
                await consumer.getone()
                await consumer.skip()
            async with consumer_of(broker, **settings):
                pass
        warned = [of["partitions"] for name, of in entries if name == "uncommitted_at_revoke"]
        assert warned == [(Tp("t", 0),)] * processed_count

    plays(script, partitions=1)
