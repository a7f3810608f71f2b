"""What a service does when a loop ends: restarts, waits, gives up, or stays fenced. In virtual time."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
import structlog

from aiogroup import Consumer, LogContext, TopicPartition
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual
from aiogroup.errors import ConfigError
from aiogroup.eventlog import EventLog
from aiogroup.eventlog.columns import columns
from tests.support.asgi import get, logged, probed

TP = TopicPartition("orders", 0)


def maker(broker, **settings):
    given = {"group_id": "billing", "bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    return lambda: Consumer("orders", **{**given, **settings})


def test_a_body_that_raises_is_run_again_after_1_2_and_4_seconds_with_the_same_record():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            broker.produce("orders", b"poison")
            raised_at_ms, seen = [], []

            async def raising(consumer):
                async for record in consumer:
                    seen.append(record.offset)
                    raised_at_ms.append(broker.clock.now_ms)
                    raise ValueError("cannot be charged")

            service = Service(billing=Loop(maker(broker), raising))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: len(raised_at_ms) == 4, timeout_s=60)
                    assert (await get(service, "/livez")).status == 200
                    await broker.until(lambda: len(raised_at_ms) == 5, timeout_s=60)
                    await broker.until(lambda: service["billing"].consumer is None)
                    assert await probed(service) == ("failed", 503, 503)
                    assert service["billing"].lags() == {}
                    assert service["billing"].health().why == "ValueError: cannot be charged"
                    assert service["billing"].restarts_count == 4
            gaps = [after - before for before, after in pairwise(raised_at_ms)]
            for gap, wanted_ms in zip(gaps, (1_000, 2_000, 4_000, 8_000), strict=True):
                assert wanted_ms <= gap < wanted_ms + 900, gaps
            assert seen == [0] * 5
            assert broker.committed("billing").get(TP, 0) == 0
            failures = [fields for name, fields in entries if name == "loop_failed"]
            assert [each["restart_in_ms"] for each in failures] == [1_000, 2_000, 4_000, 8_000, 16_000]
            assert {each["why"] for each in failures} == {"body_raised"}
            assert "in raising" in failures[0]["traceback"]
            assert {each["in_hand"] for each in failures} == {("orders-0@0",)}
            assert broker.troubles == []

    run_virtual(script())


def test_a_body_begins_without_the_fields_of_the_record_that_the_one_before_failed_at():
    """Also where it reads by a generator of its own, which Python closes in another task."""

    async def records_of(consumer):
        async for record in consumer:
            yield record

    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            broker.produce("orders", b"poison")
            at_begin, in_body = [], []

            async def raising(consumer):
                at_begin.append(structlog.contextvars.get_contextvars())
                async for record in records_of(consumer):
                    in_body.append(structlog.contextvars.get_contextvars()["offset"])
                    assert record.offset, "the first record cannot be charged"

            service = Service(billing=Loop(maker(broker, observers=[LogContext()]), raising))
            async with service.running():
                await broker.until(lambda: len(in_body) == 3, timeout_s=60)
            assert at_begin[:3] == [{}] * 3
            assert in_body == [0] * 3

    run_virtual(script())


def test_the_services_own_events_reach_its_observers_and_its_event_log(tmp_path):
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            broker.produce("orders", b"poison")

            async def raising(consumer):
                async for _ in consumer:
                    raise ValueError("cannot be charged")

            class Ears:
                def on_event(self, event):
                    heard.append(event.name)

            heard = []
            async with EventLog(tmp_path) as log:
                service = Service(billing=Loop(maker(broker), raising), observers=[Ears(), log])
                async with service.running():
                    await broker.until(lambda: service["billing"].restarts_count == 2, timeout_s=60)
            assert heard.count("loop_failed") >= 2
            assert "event_loop_shared" in heard
            assert "rebalance_completed" not in heard, "consumers have observers of their own"

    run_virtual(script())
    (path,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    failed = next(line for line in lines if line["event"] == "loop_failed")
    assert (failed["consumer"], failed["why"], failed["error"], failed["restart_in_ms"]) == (
        "billing", "body_raised", "ValueError", 1_000,
    )  # fmt: skip
    assert failed["in_hand"] == ["orders-0@0"]
    assert "traceback" not in failed
    assert failed.keys() <= columns().keys()


@pytest.mark.parametrize("observers", [3, [object()], [Consumer]])
def test_what_is_no_observer_is_refused(observers):
    with pytest.raises(ConfigError, match="on_event"):
        Service(billing=Loop(lambda: Consumer("orders"), read), observers=observers)


def test_the_older_of_two_with_one_name_is_fenced_alive_not_ready_and_takes_nothing_over():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            static = maker(broker, group_instance_id="one", session_timeout_ms=10_000)
            older, newer = (Service(billing=Loop(static, read)) for _ in range(2))
            with logged() as entries:
                async with older.running():
                    await broker.until(lambda: older["billing"].health().is_ready, timeout_s=60)
                    async with newer.running():
                        await broker.until(lambda: older["billing"].health().status == "fenced", timeout_s=60)
                        joined_count = broker.count("JoinGroup")
                        await broker.clock.pass_s(301)
                        assert await probed(older) == ("fenced", 200, 503)
                        assert await probed(newer) == ("ready", 200, 200)
                        assert broker.count("JoinGroup") == joined_count
            told = [fields["since_ms"] for name, fields in entries if name == "fenced_still"]
            assert [each // 1_000 for each in told] == [60, 120, 180, 240, 300]
            (failed,) = [fields for name, fields in entries if name == "loop_failed"]
            assert (failed["why"], failed["restart_in_ms"]) == ("fenced", None)

    run_virtual(script())


@pytest.mark.parametrize(
    ("may_end", "state", "restarts"), [(False, ("failed", 200, 503), 1), (True, ("ready", 200, 200), 0)]
)
def test_a_body_that_returns_has_failed_unless_it_may(may_end, state, restarts):
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            ended = []

            async def returning(_):
                ended.append(broker.clock.now_ms)

            service = Service(billing=Loop(maker(broker), returning, may_end=may_end))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: ended, timeout_s=60)
                    await broker.clock.pass_s(0.5)
                    assert await probed(service) == state
                    await broker.clock.pass_s(2)
                    assert service["billing"].restarts_count == restarts
            assert {fields["why"] for name, fields in entries if name == "loop_failed"} == (
                set() if may_end else {"body_ended"}
            )

    run_virtual(script())


def test_a_consumer_that_the_application_stopped_is_not_started_again():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            service = Service(billing=Loop(maker(broker), read))
            async with service.running():
                await broker.until(lambda: service["billing"].health().is_ready, timeout_s=60)
                await service["billing"].consumer.stop()
                await broker.clock.pass_s(30)
                assert await probed(service) == ("stopped", 200, 503)
                assert service["billing"].restarts_count == 0

    run_virtual(script())


@pytest.mark.parametrize("by_whom", ["application", "service"])
def test_a_body_that_is_told_of_the_stop_has_not_failed(by_whom):
    """`getone` raises ConsumerStoppedError where `async for` ends."""

    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")

            async def asking(consumer):
                while True:
                    await consumer.getone()

            service = Service(billing=Loop(maker(broker), asking))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: service["billing"].health().is_ready, timeout_s=60)
                    if by_whom == "application":
                        await service["billing"].consumer.stop()
                        await broker.clock.pass_s(30)
                        assert await probed(service) == ("stopped", 200, 503)
                        assert service["billing"].restarts_count == 0
                assert await probed(service) == ("stopped", 200, 503)
            assert [name for name, _ in entries if name == "loop_failed"] == []

    run_virtual(script())


def test_a_failure_is_told_before_the_stop_which_may_take_long():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            broker.produce("orders", b"poison")
            raised_at_ms = []

            async def raising(consumer):
                async for _ in consumer:
                    broker.pause()
                    raised_at_ms.append(broker.clock.now_ms)
                    raise ValueError

            service = Service(billing=Loop(maker(broker), raising))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: raised_at_ms, timeout_s=60)
                    await broker.clock.pass_s(0.1)
                    assert [name for name, _ in entries if name == "loop_failed"] == ["loop_failed"]
                    assert service["billing"].consumer.health().status == "stopping"
                    assert await probed(service) == ("failed", 200, 503)
                    broker.resume()

    run_virtual(script())


def test_an_error_while_the_service_stops_is_told_and_nothing_is_started_again():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")

            async def clumsy(consumer):
                await read(consumer)
                raise OSError("while cleaning up")

            service = Service(billing=Loop(maker(broker), clumsy))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: service["billing"].health().is_ready, timeout_s=60)
                assert await probed(service) == ("stopped", 200, 503)
            (failed,) = [fields for name, fields in entries if name == "loop_failed"]
            assert (failed["why"], failed["restart_in_ms"]) == ("body_raised", None)

    run_virtual(script())


def test_a_body_that_raises_what_is_no_exception_has_failed_too():
    class Unusual(BaseException):
        pass

    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            seen = []

            async def raising(consumer):
                seen.append(consumer)
                if len(seen) == 1:
                    raise Unusual
                await read(consumer)

            service = Service(billing=Loop(maker(broker), raising))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: len(seen) == 2, timeout_s=60)
                    assert service["billing"].restarts_count == 1
                    await broker.until(lambda: service["billing"].health().is_ready)
            assert [fields["why"] for name, fields in entries if name == "loop_failed"] == ["body_raised"]

    run_virtual(script())


def test_a_body_that_awaits_what_was_cancelled_has_failed():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")

            async def cancelled(_):
                raise asyncio.CancelledError

            service = Service(billing=Loop(maker(broker), cancelled))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: service["billing"].restarts_count == 2, timeout_s=60)
            assert {fields["why"] for name, fields in entries if name == "loop_failed"} == {"body_raised"}

    run_virtual(script())


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("without a text", "MuteError: <no text: str() raised AttributeError>"),
        ("without a repr", "BlankError: None"),
        ("cancelled", "RuntimeError: the body's task was cancelled, but the service goes on"),
    ],
)
def test_however_a_body_ends_it_is_run_again_and_the_other_loops_go_on(ends, why):
    class MuteError(Exception):
        def __str__(self):
            return self.args[0].decode()

    class BlankError(Exception):
        def __repr__(self):
            return self.args[0].decode()

    async def end(_):
        if ends == "cancelled":
            asyncio.current_task().cancel()
            await asyncio.Event().wait()
        raise (MuteError if ends == "without a text" else BlankError)(None)

    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            service = Service(bad=Loop(maker(broker, group_id="bad"), end), good=Loop(maker(broker), read))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: service["bad"].restarts_count == 2, timeout_s=60)
                    await broker.until(lambda: service["good"].health().is_ready, timeout_s=60)
                    await broker.until(lambda: service["bad"].health().status == "failed", timeout_s=60)
                    assert service["bad"].health().why == why
                    assert service["good"].restarts_count == 0
                    assert (await get(service, "/livez")).status == 200
            failures = [fields for name, fields in entries if name == "loop_failed"]
            assert {(each["consumer"], each["why"]) for each in failures} == {("bad", "body_raised")}
            assert [each["restart_in_ms"] for each in failures[:2]] == [1_000, 2_000]
            assert "task_failed" not in [name for name, _ in entries]

    run_virtual(script())


def test_when_a_task_of_the_service_is_cancelled_from_outside_both_probes_fail_and_the_group_is_left_at_the_end():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            service = Service(billing=Loop(maker(broker), read))
            async with service.running():
                await broker.until(lambda: service["billing"].health().is_ready, timeout_s=60)
                (task,) = [each for each in asyncio.all_tasks() if each.get_name() == "aiogroup looks"]
                task.cancel()
                await broker.until(lambda: service["billing"].health().status == "failed", timeout_s=60)
                assert await probed(service) == ("failed", 503, 503)
            assert broker.group("billing").members == ()

    run_virtual(script())


@pytest.mark.parametrize("when_dead", ["fail", "exit"])
def test_a_loop_that_stays_dead_fails_both_probes(when_dead):
    """No server has taken SIGTERM here, so "exit" cannot end the process."""

    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            service = Service(billing=Loop(maker(broker), raise_at_once), when_dead=when_dead)
            async with service.running():
                await broker.until(lambda: service["billing"].health().status == "failed", timeout_s=60)
                await broker.clock.pass_s(60)
                assert await probed(service) == ("failed", 503, 503)
                assert service["billing"].restarts_count == 0

    run_virtual(script())


@pytest.mark.parametrize("body", [lambda consumer: None, print])
@pytest.mark.parametrize("may_end", [False, True])
def test_a_body_that_turns_out_not_to_be_async_is_not_started_again(body, may_end):
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            service = Service(billing=Loop(maker(broker), body, may_end=may_end))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: service["billing"].health().status == "failed")
                    await broker.clock.pass_s(700)
                    assert await probed(service) == ("failed", 503, 503)
                    assert "write async def" in service["billing"].health().why
                    assert service["billing"].restarts_count == 0
            (failed,) = [fields for name, fields in entries if name == "loop_failed"]
            assert (failed["why"], failed["restart_in_ms"]) == ("body_ended", None)
            assert "NotAsyncError" in failed["error"]

    run_virtual(script())


def test_an_error_of_the_consumer_counts_as_one_of_the_body():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            service = Service(billing=Loop(maker(broker), read))
            with logged() as entries:
                async with service.running():
                    with broker.error("JoinGroup", "GROUP_AUTHORIZATION_FAILED", times=2):
                        await broker.until(lambda: service["billing"].restarts_count == 2, timeout_s=60)
                    await broker.until(lambda: service["billing"].health().is_ready, timeout_s=60)
            failures = [fields for name, fields in entries if name == "loop_failed"]
            assert [each["why"] for each in failures] == ["consumer_failed"] * 2

    run_virtual(script())


def test_a_function_that_fails_at_a_restart_is_asked_again():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            make, made = maker(broker), []

            def sometimes():
                made.append(len(made))
                if len(made) in (2, 3):
                    raise OSError("no credentials now")
                return make()

            async def raising_once(consumer):
                if len(made) == 1:
                    raise ValueError
                await read(consumer)

            service = Service(billing=Loop(sometimes, raising_once))
            async with service.running():
                await broker.until(lambda: len(made) == 2, timeout_s=60)
                assert service["billing"].health().status == "failed"
                assert service["billing"].health().why == "OSError: no credentials now"
                await broker.until(lambda: service["billing"].restarts_count == 1, timeout_s=60)
                await broker.until(lambda: service["billing"].health().is_ready, timeout_s=60)
            assert len(made) == 4

    run_virtual(script())


def test_a_function_that_gives_the_same_consumer_again_fails_at_each_restart_until_livez_fails():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            consumer = maker(broker)()
            service = Service(billing=Loop(lambda: consumer, raise_at_once))
            with logged() as entries:
                async with service.running():
                    await broker.until(lambda: service["billing"].health().status == "failed", timeout_s=60)
                    assert service["billing"].health().why == "ValueError: "
                    await broker.clock.pass_s(8)
                    why = "ConfigError: Loop: the function made a consumer that is stopped already"
                    assert service["billing"].health().why.startswith(why)
                    assert await probed(service) == ("failed", 200, 503)
                    await broker.clock.pass_s(8)
                    assert await probed(service) == ("failed", 503, 503)
                with pytest.raises(ConfigError, match="a new one each time it is called"):
                    async with service.running():
                        raise AssertionError("it has begun")
            failures = [fields for name, fields in entries if name == "loop_failed"]
            assert [each["why"] for each in failures] == ["body_raised", *["consumer_failed"] * 4]
            assert [each["restart_in_ms"] for each in failures] == [1_000, 2_000, 4_000, 8_000, 16_000]

    run_virtual(script())


async def read(consumer):
    async for _ in consumer:
        pass


async def raise_at_once(_):
    raise ValueError
