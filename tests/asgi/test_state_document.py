"""The document of `/state`, in virtual time: events, samples, deadlines, partitions, rebalances, members."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools

import pytest

from aiogroup import Consumer, RecordDeserializationError
from aiogroup._core.protocol.consumer_protocol import Assignment, TopicPartitions, encode_assignment
from aiogroup._runtime.loop import clock
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual
from tests.support.asgi import get, get_raw, logged

MINUTE_S = 60


async def read(consumer):
    async for _ in consumer:
        pass


def service_of(broker, body=read, topics=("orders",), **settings):
    given = {"group_id": "billing", "bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    return Service(access=lambda _: True, billing=Loop(lambda: Consumer(*topics, **{**given, **settings}), body))


def plays(script, partitions=2):
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders", partitions=partitions)
            await script(broker)
            assert broker.troubles == []

    run_virtual(play())


async def state_of(service, query=b""):
    answer = await get(service, "/state", query=query)
    assert answer.status == 200
    return answer.body


async def ready(broker, service):
    await broker.until(lambda: service["billing"].health().is_ready, MINUTE_S)


def test_events_have_numbers_and_only_new_ones_are_asked_for():
    async def script(broker):
        service = service_of(broker)
        async with service.running():
            await ready(broker, service)
            first = await state_of(service)
            numbers = [each["number"] for each in first["events"]]
            assert numbers == list(range(1, len(numbers) + 1))
            names = [each["event"] for each in first["events"]]
            assert {"event_loop_shared", "coordinator_found", "rebalance_completed"} <= set(names)
            assert {(each["loop"], each["group"]) for each in first["events"]} == {("billing", "billing")}
            last = numbers[-1]
            assert (await state_of(service, b"after=%d" % last))["events"] == []
            await service["billing"].consumer.enforce_rebalance()
            await broker.clock.pass_s(5)
            later = await state_of(service, b"after=%d" % last)
            assert later["events"][0]["number"] == last + 1
            assert later["last_number"] == later["events"][-1]["number"]
            again = await state_of(service, b"after=%d" % (last + 1_000))
            assert again["events"][0]["number"] == 1, "who asks has seen another process"
            own, other = later["process"].encode(), b"another"
            known = await state_of(service, b"after=%d&samples_after=%d&process=%s" % (last, later["at_ms"], own))
            assert (known["events"], known["samples"]["billing"]) == (later["events"], [])
            anew = await state_of(service, b"after=%d&samples_after=%d&process=%s" % (last, later["at_ms"], other))
            assert (anew["events"], anew["samples"]) == (again["events"], again["samples"])

    plays(script)


def test_an_event_of_the_service_is_there_too_and_those_of_the_next_consumer():
    async def script(broker):
        async def raising(consumer):
            async for _ in consumer:
                raise ValueError("cannot be charged")

        broker.produce("orders", b"poison")
        service = service_of(broker, raising)
        async with service.running():
            await broker.until(lambda: service["billing"].restarts_count == 2, MINUTE_S)
            found = await state_of(service)
            failures = [each for each in found["events"] if each["event"] == "loop_failed"]
            assert [(each["level"], each["restart_in_ms"]) for each in failures[:2]] == [
                ("error", 1_000),
                ("error", 2_000),
            ]
            assert [each["event"] for each in found["events"]].count("consumer_stopped") >= 2
            assert found["loops"]["billing"]["restarts_count"] == 2
            await broker.until(lambda: service["billing"].consumer is None, MINUTE_S)
            await broker.clock.pass_s(1)
            between = (await state_of(service))["loops"]["billing"]
            assert (between["state"], between["group"], between["subscription"]) == ("failed", "billing", ["orders"])

    plays(script)


def test_what_a_deserializer_says_of_a_record_is_shown_nowhere_and_the_body_gets_it():
    def as_number(value):
        return int(value)

    async def script(broker):
        async def reading(consumer):
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(read(consumer))
            except* RecordDeserializationError as errors:
                caught.append(errors.exceptions[0])
                raise

        caught = []
        broker.produce("orders", b"card 4111-1111")
        service = service_of(broker, reading, value_deserializer=as_number)
        with logged() as entries:
            async with service.running():
                await broker.until(lambda: caught, MINUTE_S)
                await broker.until(lambda: service["billing"].consumer is None, MINUTE_S)
                told = [await get_raw(service, "/state"), await get_raw(service, "/livez", query=b"verbose")]
                await broker.until(lambda: len(caught) == 2, MINUTE_S)
        assert "4111" in str(caught[0].__cause__)
        assert {each.status for each in told} == {200}
        for text in (*(each.body.decode() for each in told), *(str(fields) for _, fields in entries)):
            assert "4111-1111" not in text  # whole: ids and times have four digits of any kind
        (poison, *_) = [fields["why"] for name, fields in entries if name == "poison_record"]
        assert poison.startswith("orders-0 at offset 0: the value deserializer raised ValueError;")
        (failed, *_) = [fields for name, fields in entries if name == "loop_failed"]
        assert "in as_number" in failed["traceback"]
        assert "in reading" in failed["traceback"]

    plays(script)


@pytest.mark.parametrize("query", [b"after=x", b"after=1.5", b"samples_after=now"])
def test_what_is_no_number_is_refused(query):
    async def script(broker):
        service = service_of(broker)
        assert (await get(service, "/state", query=query)).status == 400

    plays(script)


def test_a_service_that_has_not_begun_and_one_that_has_ended_have_a_state():
    async def script(broker):
        service = service_of(broker)
        found = await state_of(service)
        assert (found["state"], found["loops"]["billing"]["partitions"]) == ("starting", [])
        async with service.running():
            await ready(broker, service)
            await broker.clock.pass_s(1)  # what was looked up is kept for a moment
        found = await state_of(service)
        assert (found["state"], found["loops"]["billing"]["deadlines"]) == ("stopped", [])
        assert found["events"][-1]["event"] == "consumer_stopped"

    plays(script)


def test_partitions_deadlines_samples_and_rebalances():
    async def script(broker):
        async def slow(consumer):
            async for _ in consumer:
                await broker.clock.pass_s(0.5)

        broker.produce_many("orders", [b"x"] * 100, partition=0)
        service = service_of(broker, slow, max_poll_records=1)
        async with service.running():
            await ready(broker, service)
            await broker.clock.pass_s(10)
            found = await state_of(service)
            loop = found["loops"]["billing"]
            rows = {each["name"]: each for each in loop["partitions"]}
            assert set(rows) == {"orders-0", "orders-1"}
            busy, idle = rows["orders-0"], rows["orders-1"]
            assert busy["end"] == 100
            assert busy["lag"] == 100 - busy["position"] > 0
            assert busy["held_count"] == 1
            assert 1 <= busy["per_second"] <= 3
            assert (idle["lag"], idle["per_second"], idle["withheld"], idle["ranges"]) == (0, 0, [], [])
            assert busy["lag_age_ms"] >= 0
            deadlines = {each["name"]: each for each in loop["deadlines"]}
            assert list(deadlines) == ["session", "poll", "rebalance"]
            assert deadlines["session"]["setting"] == "session_timeout_ms"
            assert 0 <= deadlines["session"]["used_ms"] < deadlines["session"]["limit_ms"]
            assert 0 <= deadlines["poll"]["used_ms"] < deadlines["poll"]["limit_ms"]
            assert deadlines["rebalance"]["used_ms"] is None
            (rebalance,) = loop["rebalances"]
            assert (rebalance["outcome"], rebalance["came"]) == ("completed", ["orders-0", "orders-1"])
            assert (loop["group"], loop["generation"], loop["subscription"]) == ("billing", 1, ["orders"])
            samples = found["samples"]["billing"]
            assert 9 <= len(samples) <= 16
            at_ms, lag, per_second, catch_up_lag = samples[-1]
            assert catch_up_lag is busy["catch_up_lag"] is None, "there are no lanes"
            assert lag == pytest.approx(busy["lag"], abs=4)
            assert 1 <= per_second <= 3
            later = await state_of(service, b"samples_after=%d" % at_ms)
            assert later["samples"]["billing"] == []

    plays(script)


@pytest.mark.parametrize("set_by_s", [-3_600, 3_600])
def test_samples_go_on_in_order_where_the_clock_is_set(monkeypatch, set_by_s):
    async def script(broker):
        service = service_of(broker)
        async with service.running():
            await ready(broker, service)
            await broker.clock.pass_s(5)
            before = (await state_of(service))["samples"]["billing"]
            found_ns = clock.time.time_ns
            monkeypatch.setattr(clock.time, "time_ns", lambda: found_ns() + set_by_s * 1_000_000_000)
            await broker.clock.pass_s(5)
            found = await state_of(service, b"samples_after=%d" % before[-1][0])
            new = found["samples"]["billing"]
            assert 4 <= len(new) <= 6
            steps_ms = [later[0] - each[0] for each, later in itertools.pairwise([*before, *new])]
            assert all(900 <= each <= 1_100 for each in steps_ms), steps_ms
            assert found["at_ms"] - before[-1][0] - set_by_s * 1_000 < 6_000
            assert found["since_ms"] < 15_000

    plays(script)


def test_what_withholds_a_partition_is_told():
    async def script(broker):
        service = service_of(broker)
        async with service.running():
            await ready(broker, service)
            consumer = service["billing"].consumer
            consumer.pause(*consumer.assignment())
            rows = (await state_of(service))["loops"]["billing"]["partitions"]
            assert [each["withheld"] for each in rows] == [["paused"], ["paused"]]

    plays(script)


def test_pending_ranges_are_shown():
    async def script(broker):
        async def slow(consumer):
            async for _ in consumer:
                await consumer.commit()
                await broker.clock.pass_s(0.05)

        settings = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1}
        broker.produce_many("orders", [b"old"] * 10, partition=0)
        service = service_of(broker, slow, **settings)
        async with service.running():
            await ready(broker, service)
            await broker.until(lambda: broker.committed("billing").get(("orders", 0)) == 10, MINUTE_S)
        broker.produce_many("orders", [b"old"] * 400, partition=0)
        async with service.running():
            await ready(broker, service)
            await broker.clock.pass_s(5)
            rows = (await state_of(service))["loops"]["billing"]["partitions"]
            ((start, end),) = rows[0]["ranges"]
            assert 10 < start < end <= 410
            assert rows[0]["range_left_ms"] > 0
            assert rows[0]["catch_up_lag"] == rows[0]["lag"] == pytest.approx(end - start, abs=1)
            assert rows[1]["catch_up_lag"] == 0
            sample = (await state_of(service))["samples"]["billing"][-1]
            assert sample[3] == pytest.approx(sample[1], abs=1)
            assert (rows[0]["position"], rows[0]["end"]) == (410, 410)

    plays(script)


def test_members_are_asked_for_every_10_s_while_somebody_looks():
    async def script(broker):
        service, other = service_of(broker), service_of(broker)
        async with service.running(), other.running():
            await ready(broker, service)
            await ready(broker, other)
            await broker.clock.pass_s(5)
            before = broker.count("DescribeGroups")
            await broker.clock.pass_s(60)
            assert broker.count("DescribeGroups") == before, "nobody has looked"
            assert (await state_of(service))["loops"]["billing"]["members"] is None
            for _ in range(25):
                await broker.clock.pass_s(1)
                loop = (await state_of(service))["loops"]["billing"]
            assert broker.count("DescribeGroups") - before == 3
            assert len(loop["members"]) == 2
            assert loop["member_id"] in [each["member_id"] for each in loop["members"]]
            assert sum(each["partitions_count"] for each in loop["members"]) == 2
            assert loop["members_error"] == ""

    plays(script)


def test_members_that_may_not_be_asked_for_say_why():
    async def script(broker):
        service = service_of(broker)
        async with service.running():
            await ready(broker, service)
            with broker.error("DescribeGroups", "GROUP_AUTHORIZATION_FAILED"):
                await state_of(service)
                await broker.clock.pass_s(2)
                loop = (await state_of(service))["loops"]["billing"]
                assert loop["members"] is None
                assert "DESCRIBE" in loop["members_error"]
            assert service["billing"].health().is_ready

    plays(script)


def test_an_error_of_the_look_up_is_told(monkeypatch):
    def broken(_):
        raise ValueError("no members")

    async def script(broker):
        service = service_of(broker)
        async with service.running():
            await ready(broker, service)
            await state_of(service)
            await broker.clock.pass_s(2)
            found = await state_of(service)
            failed = [each for each in found["events"] if each["event"] == "task_failed"]
            assert [(each["task"], each["error"]) for each in failed] == [("question", "ValueError('no members')")]
            assert service["billing"].health().is_ready

    monkeypatch.setattr("aiogroup.asgi.page.members.members_of", broken)
    plays(script)


def test_a_thousand_partitions_stay_below_1_mb_and_are_looked_up_once_for_all_who_ask():
    async def script(broker):
        service = service_of(broker)
        async with service.running():
            await ready(broker, service)
            await broker.until(lambda: len(service["billing"].lags()) == 3_000, MINUTE_S)
            answers = [await get(service, "/state") for _ in range(3)]
            loop = answers[0].body["loops"]["billing"]
            assert len(loop["partitions"]) + loop["partitions_left_out_count"] == 3_000
            assert len(loop["partitions"]) > 500
            assert int(answers[0].headers["content-length"]) < 1_000_000
            assert len({each.body["at_ms"] for each in answers}) == 1

    plays(script, partitions=3_000)


def test_many_members_and_rebalances_with_long_names_stay_below_1_mb():
    topics = [f"orders-{number:02}-" + "x" * 50 for number in range(100)]
    assignment = encode_assignment(Assignment(tuple(TopicPartitions(topic, (0,)) for topic in topics)))

    def crowded(exchange):
        (group,) = exchange.response.groups
        member = dataclasses.replace(group.members[0], member_assignment=assignment)
        members = tuple(dataclasses.replace(member, member_id=f"member-{number}") for number in range(1_000))
        return dataclasses.replace(exchange.response, groups=(dataclasses.replace(group, members=members),))

    async def script(broker):
        for topic in topics:
            broker.create_topic(topic, partitions=1)
        broker.rewrite("DescribeGroups", crowded)
        service = service_of(broker, topics=topics)
        async with service.running():
            await ready(broker, service)
            await state_of(service)
            for each in range(60):
                service["billing"].consumer.subscribe(topics[:2] if each % 2 else topics)
                await broker.clock.pass_s(10)
            answer = await get(service, "/state")
            loop = answer.body["loops"]["billing"]
            assert len(loop["members"]) + loop["members_left_out_count"] == 1_000
            assert min(len(loop["members"]), len(loop["rebalances"])) > 5
            assert loop["rebalances"][-1]["outcome"] == "completed", "the oldest are left out"
            assert int(answer.headers["content-length"]) < 1_000_000

    plays(script)


def test_whoever_looks_makes_the_consumer_ask_for_nothing():
    async def script(broker):
        service = service_of(broker)
        broker.hold("Fetch")
        async with service.running():
            await broker.until(lambda: service["billing"].health().partitions_count == 2, MINUTE_S)
            await broker.clock.pass_s(5)
            before = broker.count("ListOffsets")
            assert (await state_of(service))["loops"]["billing"]["partitions"][0]["lag"] is None
            await broker.clock.pass_s(5)
            assert broker.count("ListOffsets") == before

    plays(script)


def test_without_access_nothing_is_remembered():
    async def script(broker):
        given = {"group_id": "billing", "bootstrap_servers": broker.bootstrap_servers}
        service = Service(billing=Loop(lambda: Consumer("orders", **given), read))
        async with service.running():
            await ready(broker, service)
            answer = await get(service, "/state")
            assert (answer.status, answer.body["error"]) == (403, "forbidden")

    plays(script)
