"""The life of a service: its arguments, its start and end, what it warns of, its file, and its own lifespan."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import multiprocessing
import os
import signal
from unittest import mock

import anyio
import pytest

from aiogroup import ConfigError, Consumer, ConsumerRebalanceListener, IllegalStateError
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual
from tests.support.asgi import get, logged, probed


async def read(consumer):
    async for _ in consumer:
        pass


def consumer_of(broker, **settings):
    return Consumer("orders", **{"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", **settings})


def plays(script):
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            await script(broker)
            assert broker.troubles == []

    run_virtual(play())


# Arguments.


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, "a loop"),
        ({"audit": read}, "audit"),
        ({"when_dead": "never"}, "when_dead='never'"),
        ({"when_fenced": "restart"}, "when_fenced='restart'"),
        ({"ready": "always"}, "ready='always'"),
        ({"stop_timeout_ms": -1}, "stop_timeout_ms=-1"),
        ({"stop_timeout_ms": True}, "stop_timeout_ms=True"),
        ({"unready_after_ms": 1.5}, "unready_after_ms=1.5"),
        ({"access": "everybody"}, "access='everybody'"),
        ({"drain_on_signal": 1}, "drain_on_signal=1: True or False"),
        ({"page": "no"}, "page='no': True or False"),
        ({"metrics": None}, "metrics=None: True or False"),
        ({"health_file": 3}, "health_file=3: a path"),
        ({"health_file": b"/tmp/alive"}, "health_file=b'/tmp/alive': a path"),
    ],
)
def test_arguments_that_are_wrong_are_named(arguments, names):
    loops = {} if not arguments or "audit" in arguments else {"audit": Loop(lambda: Consumer("orders"), read)}
    with pytest.raises(ConfigError, match=names):
        Service(**arguments, **loops)


@pytest.mark.parametrize(
    "name",
    [each.name for each in inspect.signature(Service).parameters.values() if each.kind is each.KEYWORD_ONLY],
)
def test_a_loop_with_the_name_of_an_argument_is_refused(name):
    loop = Loop(lambda: Consumer("orders"), read)
    with pytest.raises(ConfigError, match=f"{name} is an argument of Service.* another name"):
        Service(audit=loop, **{name: loop})


def test_a_loop_takes_functions():
    consumer = Consumer("orders")
    with pytest.raises(ConfigError, match="lambda: Consumer"):
        Loop(consumer, read)
    with pytest.raises(ConfigError, match="body"):
        Loop(lambda: consumer, "read")
    with pytest.raises(ConfigError, match=r"no aiogroup\.Consumer"):
        Loop(lambda: "consumer", read).make()
    with pytest.raises(ConfigError, match="may_end='no': True or False"):
        Loop(lambda: consumer, read, may_end="no")


def decorated(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


def with_a_pool(function):
    @functools.wraps(function)
    def call(*args):
        return function("a pool", *args)

    return call


def all_of(function):
    @functools.wraps(function)
    async def call(*args):
        async for _ in function(*args):
            pass

    return call


async def read_with(_, consumer):
    await read(consumer)


class Reader:
    async def __call__(self, consumer):
        await read(consumer)

    async def read(self, consumer):
        await read(consumer)

    def read_at_once(self, consumer):
        list(consumer)


class Walker:
    async def __call__(self, consumer):
        async for record in consumer:
            yield record


def read_at_once(consumer):
    list(consumer)


def read_with_at_once(_, consumer):
    list(consumer)


def walk(consumer):
    yield consumer


async def walk_on(consumer):
    yield consumer


async def read_nothing():
    pass


@pytest.mark.parametrize(
    "body",
    [
        read,
        functools.partial(read_with, "a pool"),
        Reader(),
        Reader().read,
        functools.partial(Reader()),
        lambda consumer: read(consumer),
        decorated(read),
        with_a_pool(read_with),
        all_of(walk_on),
        mock.AsyncMock(),
    ],
)
def test_whatever_may_be_awaited_is_a_body(body):
    async def script(broker):
        loop = Loop(lambda: consumer_of(broker), body, may_end=True)
        with logged() as entries:
            async with Service(billing=loop).running():
                await broker.until(lambda: broker.count("JoinGroup"))
        assert [name for name, _ in entries if name == "loop_failed"] == []

    plays(script)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (read_at_once, "the body read_at_once is not async.* write async def read_at_once"),
        (Reader().read_at_once, "the body read_at_once is not async"),
        (functools.partial(read_with_at_once, "a pool"), "read_with_at_once is not async"),
        (decorated(read_at_once), "the body read_at_once is not async"),
        (walk, "the body walk is a generator.* yield"),
        (walk_on, "the body walk_on is a generator.* yield"),
        (contextlib.asynccontextmanager(walk_on), "walk_on is a generator"),
        (Walker(), "Walker is a generator.* yield"),
        (read_nothing, "the body read_nothing cannot be called with the consumer alone: too many positional"),
        (read_with, "the body read_with cannot be called with the consumer alone: missing a required argument"),
        (lambda: None, "cannot be called with the consumer alone: too many positional"),
        ("read", "the body 'read' is no async function"),
    ],
)
def test_what_cannot_be_awaited_is_no_body(body, told):
    with pytest.raises(ConfigError, match=f"^Loop: .*{told}"):
        Loop(lambda: Consumer("orders"), body)


def test_a_body_that_was_called_is_told_from_a_function():
    called = read(Consumer("orders"))
    with pytest.raises(ConfigError, match="Loop: the body was called already: write read, without parentheses"):
        Loop(lambda: Consumer("orders"), called)
    called.close()


def test_the_two_functions_of_a_loop_are_told_apart():
    with pytest.raises(
        ConfigError, match=r"makes the consumer must not be async: .*Loop\(lambda: Consumer\(...\), read\)"
    ):
        Loop(read, lambda: Consumer("orders"))


def test_a_loop_without_a_name_is_refused():
    loop = Loop(lambda: Consumer("orders"), read)
    with pytest.raises(ConfigError, match=r"a loop needs a name, as Service\(audit=Loop\("):
        Service(loop)
    with pytest.raises(ConfigError, match="takes loops by name"):
        Service(read)


# Start and end.


@pytest.mark.parametrize("make", [lambda: Consumer("orders", session_timeout_ms=-1), lambda: None])
def test_a_wrong_setting_ends_the_start(make):
    async def script(_):
        service = Service(good=Loop(lambda: Consumer("orders"), read), bad=Loop(make, read))
        with pytest.raises(ConfigError):
            async with service.running():
                raise AssertionError("it has begun")
        with logged() as entries:
            assert (await probed(service))[1:] == (200, 503)
            assert (await get(service, "/readyz")).body["why"] == "the start of the service failed"
        assert entries == []

    plays(script)


def test_livez_fails_where_a_service_is_probed_and_never_started():
    async def script(broker):
        service = Service(billing=Loop(lambda: consumer_of(broker), read))
        await broker.clock.pass_s(3_600)
        assert await probed(service) == ("starting", 200, 503)
        assert "FastAPI(lifespan=service.lifespan)" in service["billing"].health().why
        await broker.clock.pass_s(59)
        assert await probed(service) == ("starting", 200, 503)
        await broker.clock.pass_s(1)
        assert await probed(service) == ("starting", 503, 503)
        assert (await get(service, "/livez")).body["since_ms"] == 60_000
        async with service.running():
            await broker.until(lambda: service["billing"].health().is_ready)
            assert await probed(service) == ("ready", 200, 200)

    plays(script)


def test_it_runs_once_at_a_time_and_again_after_its_end():
    async def script(broker):
        service = Service(billing=Loop(lambda: consumer_of(broker), read))
        consumers = []
        for _ in range(2):
            async with service.running():
                await broker.until(lambda: service["billing"].health().is_ready)
                consumers.append(service["billing"].consumer)
                with pytest.raises(IllegalStateError, match="one lifespan at a time"):
                    async with service.running():
                        raise AssertionError("it has begun")
                assert await probed(service) == ("ready", 200, 200)
            assert await probed(service) == ("stopped", 200, 503)
            assert broker.group("billing").members == ()
        assert consumers[0] is not consumers[1]

    plays(script)


def test_a_loop_that_was_looked_up_before_the_start_shows_each_life():
    async def script(broker):
        service = Service(billing=Loop(lambda: consumer_of(broker), read))
        billing = service["billing"]
        for _ in range(2):
            async with service.running():
                assert billing.health().status == "starting"
                await broker.until(lambda: billing.health().is_ready)
                assert service["billing"] is billing
                assert list(billing.lags()) == [("orders", 0)]
                assert broker.group("billing").members != ()
                seen.append(billing.consumer)
                await broker.clock.pass_s(10)
                assert billing.health().since_ms >= 10_000
            assert billing.health().status == "stopped"
        assert seen[0] is not seen[1]

    seen = []
    plays(script)


def test_a_lifespan_that_is_cancelled_twice_stops_all_the_same_and_the_service_runs_again():
    async def script(broker):
        async def lifespan():
            async with service.running():
                await asyncio.Event().wait()

        service = Service(billing=Loop(lambda: consumer_of(broker), read))
        billing = service["billing"]
        for _ in range(2):
            task = asyncio.create_task(lifespan())
            await broker.until(lambda: billing.health().is_ready)
            task.cancel()
            await broker.until(lambda: billing.health().status == "stopping")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await broker.until(lambda: billing.health().status == "stopped")
            assert broker.group("billing").members == ()
            await broker.until(lambda: not [each for each in asyncio.all_tasks() if "service" in each.get_name()])

    plays(script)


def test_all_consumers_stop_side_by_side():
    async def script(broker):
        async def slow(consumer):
            async for _ in consumer:
                begun.append(consumer)
                await broker.clock.pass_s(5)

        begun = []
        names = ("a", "b", "c")
        loops = {
            name: Loop(lambda name=name: consumer_of(broker, group_id=name, auto_offset_reset="earliest"), slow)
            for name in names
        }
        broker.produce("orders", b"slow")
        service = Service(**loops)
        async with service.running():
            await broker.until(lambda: len(begun) == 3)
            began_at_ms = broker.clock.now_ms
        assert 4_000 < broker.clock.now_ms - began_at_ms < 7_000
        assert {broker.committed(name)["orders", 0] for name in names} == {1}

    plays(script)


def test_a_body_that_does_not_end_is_cancelled_in_time_and_its_record_comes_again():
    async def script(broker):
        async def stuck(consumer):
            async for _ in consumer:
                begun.append(consumer)
                await asyncio.Event().wait()

        begun = []
        broker.produce("orders", b"stuck")
        loop = Loop(lambda: consumer_of(broker, auto_offset_reset="earliest"), stuck)
        service = Service(stop_timeout_ms=6_000, billing=loop)
        async with service.running():
            await broker.until(lambda: begun)
            began_at_ms = broker.clock.now_ms
        assert broker.clock.now_ms - began_at_ms <= 6_500
        assert broker.committed("billing").get(("orders", 0), 0) == 0
        assert broker.group("billing").members == ()

    plays(script)


def test_a_body_that_does_not_even_end_when_it_is_cancelled_is_left_behind_and_told():
    async def script(broker):
        async def stuck(consumer):
            async for _ in consumer:
                begun.append(consumer)
                with anyio.CancelScope(shield=True):
                    await broker.clock.pass_s(60)

        begun = []
        broker.produce("orders", b"stuck")
        loop = Loop(lambda: consumer_of(broker, auto_offset_reset="earliest"), stuck)
        service = Service(stop_timeout_ms=6_000, billing=loop)
        with logged() as entries:
            async with service.running():
                await broker.until(lambda: begun)
                began_at_ms = broker.clock.now_ms
            assert broker.clock.now_ms - began_at_ms <= 7_500
        assert [fields["consumer"] for name, fields in entries if name == "body_not_ended"] == ["billing"]
        assert broker.committed("billing").get(("orders", 0), 0) == 0
        assert broker.group("billing").members == ()
        assert service["billing"].health().status == "stopping"
        await broker.clock.pass_s(60)

    plays(script)


def test_it_stops_while_no_broker_answers():
    async def script(broker):
        broker.nodes[0].stop()
        service = Service(billing=Loop(lambda: consumer_of(broker), read))
        with logged() as entries:
            async with service.running():
                await broker.clock.pass_s(301)
                began_at_ms = broker.clock.now_ms
        assert broker.clock.now_ms - began_at_ms < 2_000
        counts = [fields["attempts_count"] for name, fields in entries if name == "no_broker_yet"]
        assert counts == [1, 18, 33, 48, 63], "1 s, 2 s, and then 4 s apart; told once a minute"
        broker.nodes[0].start()

    plays(script)


def test_an_error_of_the_application_ends_it_too():
    async def script(broker):
        async def application():
            async with service.running():
                await broker.until(lambda: service["billing"].health().is_ready)
                raise LookupError("of the application")

        service = Service(billing=Loop(lambda: consumer_of(broker), read))
        with pytest.raises(LookupError, match="of the application"):
            await application()
        assert broker.group("billing").members == ()

    plays(script)


# What it tells.


def test_the_details_are_for_those_with_access():
    async def script(broker):
        service = Service(access=lambda _: True, billing=Loop(lambda: consumer_of(broker), read))
        async with service.running():
            await broker.until(lambda: set(service["billing"].lags().values()) == {0})
            details = (await get(service, "/livez", query=b"verbose")).body
            assert details["pid"] == os.getpid()
            loop = details["loops"]["billing"]
            assert (loop["state"], loop["partitions_count"], loop["restarts_count"]) == ("ready", 1, 0)
            assert (loop["lags"], loop["missing_topics"]) == ({"orders-0": 0}, [])
            assert loop["since_request_ms"] >= 0

    plays(script)


def test_it_warns_of_the_shared_event_loop_once():
    async def script(broker):
        loops = {
            name: Loop(lambda name=name: consumer_of(broker, group_id=name, group_instance_id="one"), read)
            for name in ("a", "b")
        }
        with logged() as entries:
            async with Service(**loops).running():
                pass
        assert [fields["consumers"] for name, fields in entries if name == "event_loop_shared"] == [("a", "b")]
        assert [name for name, _ in entries if name == "static_name_in_worker"] == []

    plays(script)


def test_it_warns_of_a_static_name_in_a_worker_process(monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "a server")

    async def script(broker):
        with logged() as entries:
            async with Service(
                a=Loop(lambda: consumer_of(broker, group_instance_id="one"), read),
                b=Loop(lambda: consumer_of(broker, group_id="b"), read),
            ).running():
                pass
        told = [(fields["consumer"], fields["member_name"]) for name, fields in entries if "static_name" in name]
        assert told == [("a", "one")]

    plays(script)


def test_a_health_file_is_touched_for_as_long_as_the_service_is_alive(tmp_path):
    file = tmp_path / "alive"

    def is_touched():
        """Whether the file is touched now: its age is set back, and looked at two seconds later."""
        return file.stat().st_mtime > 1_000

    async def script(broker):
        async def body(consumer):
            if may_live[-1]:
                await read(consumer)
            raise ValueError

        may_live = [True]
        service = Service(health_file=file, when_dead="fail", billing=Loop(lambda: consumer_of(broker), body))
        async with service.running():
            assert file.exists()
            os.utime(file, (0, 0))
            await broker.clock.pass_s(1.5)
            assert is_touched()
            may_live.append(False)
            await broker.until(lambda: service["billing"].health().is_ready)
            with broker.error("Heartbeat", "GROUP_AUTHORIZATION_FAILED"):
                await broker.until(lambda: service["billing"].health().status == "failed")
            os.utime(file, (0, 0))
            await broker.clock.pass_s(3)
            assert not is_touched()
            assert (await get(service, "/livez")).status == 503

    plays(script)


def test_a_health_file_that_cannot_be_written_ends_the_start(tmp_path):
    async def script(_):
        service = Service(health_file=tmp_path / "missing" / "alive", billing=Loop(lambda: Consumer("orders"), read))
        with pytest.raises(FileNotFoundError):
            async with service.running():
                raise AssertionError("it has begun")

    plays(script)


# Signals.


def test_when_dead_exit_asks_the_server_to_end_but_not_before_it_is_10_s_old():
    async def script(broker):
        async def raising(_):
            raise ValueError

        ended_at_ms = []
        found = signal.signal(signal.SIGTERM, lambda *_: ended_at_ms.append(broker.clock.now_ms))
        try:
            began_at_ms = broker.clock.now_ms
            service = Service(when_dead="exit", billing=Loop(lambda: consumer_of(broker), raising))
            async with service.running():
                await broker.until(lambda: service["billing"].health().status == "failed")
                assert ended_at_ms == []
                await broker.until(lambda: ended_at_ms, 60)
                assert await probed(service) == ("failed", 200, 503)
        finally:
            signal.signal(signal.SIGTERM, found)
        assert 10_000 <= ended_at_ms[0] - began_at_ms < 11_000
        assert len(ended_at_ms) == 1

    plays(script)


def test_when_fenced_exit_does_the_same_and_the_consumer_stays_fenced_until_then():
    async def script(broker):
        ended_at_ms = []
        found = signal.signal(signal.SIGTERM, lambda *_: ended_at_ms.append(broker.clock.now_ms))
        try:
            loop = Loop(lambda: consumer_of(broker, group_instance_id="one"), read)
            older, newer = Service(when_fenced="exit", billing=loop), Service(billing=loop)
            async with older.running():
                began_at_ms = broker.clock.now_ms
                await broker.until(lambda: older["billing"].health().is_ready)
                async with newer.running():
                    await broker.until(lambda: ended_at_ms, 60)
                    assert await probed(older) == ("fenced", 200, 503)
        finally:
            signal.signal(signal.SIGTERM, found)
        assert 10_000 <= ended_at_ms[0] - began_at_ms < 11_000
        assert len(ended_at_ms) == 1

    plays(script)


def test_drain_on_signal_begins_the_stop_and_calls_the_handler_that_it_found():
    async def script(broker):
        heard = []

        def of_the_server(*_):
            heard.append("server")

        found = signal.signal(signal.SIGTERM, of_the_server)
        try:
            service = Service(drain_on_signal=True, billing=Loop(lambda: consumer_of(broker), read))
            async with service.running():
                await broker.until(lambda: service["billing"].health().is_ready)
                os.kill(os.getpid(), signal.SIGTERM)
                signalled_at_ms = broker.clock.now_ms
                await broker.until(lambda: service["billing"].health().status in ("stopping", "stopped"))
                assert broker.clock.now_ms - signalled_at_ms <= 100
                await broker.until(lambda: broker.group("billing").members == ())
                assert heard == ["server"]
                assert (await probed(service))[0] in ("stopping", "stopped")
            assert signal.getsignal(signal.SIGTERM) is of_the_server
        finally:
            signal.signal(signal.SIGTERM, found)

    plays(script)


def test_a_handler_that_chains_onto_ours_may_outlive_the_loop():
    heard = []

    def of_the_server(*_):
        heard.append("server")

    async def script(broker):
        service = Service(drain_on_signal=True, billing=Loop(lambda: consumer_of(broker), read))
        async with service.running():
            ours = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *given: ours(*given))

    found = signal.signal(signal.SIGTERM, of_the_server)
    try:
        plays(script)
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["server"]
    finally:
        signal.signal(signal.SIGTERM, found)


def test_drain_on_signal_also_when_the_signal_interrupts_a_rebalance_callback():
    async def script(broker):
        class Listener(ConsumerRebalanceListener):
            async def on_partitions_assigned(self, assigned):
                os.kill(os.getpid(), signal.SIGTERM)
                for _ in range(1_000):  # the handler runs between two steps of this callback
                    pass
                await broker.clock.pass_s(0.5)

            async def on_partitions_revoked(self, revoked):
                pass

        def make():
            consumer = consumer_of(broker)
            consumer.subscribe(["orders"], listener=Listener())
            return consumer

        found = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            service = Service(drain_on_signal=True, billing=Loop(make, read))
            async with service.running():
                await broker.until(lambda: service["billing"].health().status == "stopped")
        finally:
            signal.signal(signal.SIGTERM, found)
        assert broker.group("billing").members == ()

    plays(script)


# Its own lifespan.


def test_it_can_be_served_alone():
    async def script(broker):
        service = Service(billing=Loop(lambda: consumer_of(broker), read))
        messages, sent = iter(["lifespan.startup", "lifespan.shutdown"]), []

        async def receive():
            kind = next(messages)
            if kind == "lifespan.shutdown":
                await broker.until(lambda: service["billing"].health().is_ready)
            return {"type": kind}

        async def send(message):
            sent.append(message["type"])

        await service({"type": "lifespan"}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert broker.group("billing").members == ()

    plays(script)


async def test_served_alone_a_wrong_setting_fails_the_startup():
    service, sent = Service(bad=Loop(lambda: Consumer("orders", session_timeout_ms=-1), read)), []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(message):
        sent.append(message)

    await service({"type": "lifespan"}, receive, send)
    assert [each["type"] for each in sent] == ["lifespan.startup.failed"]
    assert "session_timeout_ms=-1" in sent[0]["message"]
