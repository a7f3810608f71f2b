"""`with service[name].degraded("database"):` is seen in the probes, the document, the figures and the events."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer, IllegalStateError
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker, run_virtual
from tests.support.asgi import get, get_raw, logged


async def read(consumer):
    async for _ in consumer:
        pass


def plays(script):
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")

            def make():
                return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing")

            service = Service(billing=Loop(make, read), access=lambda _: True)
            async with service.running():
                await broker.until(lambda: service["billing"].health().status == "ready", 60)
                await script(service, broker)

    run_virtual(play())


async def verbose(service):
    return (await get(service, "/readyz", query=b"verbose")).body


def test_whoever_may_see_names_sees_what_is_down_and_everybody_that_something_is():
    async def script(service, broker):
        loop = service["billing"]
        with loop.degraded("database"), loop.degraded("mail server"):
            await broker.clock.pass_s(2)
            body = await verbose(service)
            assert (body["state"], body["loops"]["billing"]["state"]) == ("degraded", "degraded")
            assert body["loops"]["billing"]["degraded"] == ["database", "mail server"]
            assert body["loops"]["billing"]["why"] == "degraded by the application: database, mail server; reads"
            plain = (await get(service, "/readyz")).body
            assert "database" not in str(plain)
            assert plain["state"] == "degraded"
            state = (await get(service, "/state")).body["loops"]["billing"]
            assert (state["state"], state["degraded"]) == ("degraded", ["database", "mail server"])
        body = await verbose(service)
        assert (body["state"], body["loops"]["billing"]["degraded"]) == ("ready", [])

    plays(script)


def test_a_thread_is_told_where_to_say_it():
    async def script(service, broker):
        def handle():
            with service["billing"].degraded("cache"):
                pass

        with pytest.raises(IllegalStateError, match="where the thread is awaited"):
            await asyncio.to_thread(handle)
        assert service["billing"].health().status == "ready"

    plays(script)


def test_it_lasts_until_the_last_block_with_the_name_has_ended_and_is_told_once():
    async def script(service, broker):
        loop = service["billing"]
        with logged() as entries:
            with loop.degraded("database"):
                with loop.degraded("database"):
                    await broker.clock.pass_s(3)
                assert loop.health().status == "degraded"
                await broker.clock.pass_s(4)
            assert loop.health().status == "ready"
        told = [(name, of["levelname"], of["consumer"], of["what"]) for name, of in entries if name.startswith("loop_")]
        assert told == [
            ("loop_degraded", "WARNING", "billing", "database"),
            ("loop_recovered", "INFO", "billing", "database"),
        ]
        assert [of["duration_ms"] for name, of in entries if name == "loop_recovered"] == [7_000]
        seen = [each["event"] for each in (await get(service, "/state")).body["events"]]
        assert [name for name in seen if name.startswith("loop_")] == ["loop_degraded", "loop_recovered"]

    plays(script)


def test_an_error_in_it_ends_it_and_is_raised():
    async def script(service, _):
        with pytest.raises(ConnectionError), service["billing"].degraded("database"):
            raise ConnectionError
        assert service["billing"].health().status == "ready"

    plays(script)


def test_it_is_one_of_the_states_in_the_figures():
    pytest.importorskip("prometheus_client")

    async def script(service, broker):
        with service["billing"].degraded("database"):
            await broker.clock.pass_s(2)
            text = (await get_raw(service, "/metrics")).body.decode()
        states = [line for line in text.splitlines() if line.startswith("aiogroup_state{") and line.endswith(" 1.0")]
        assert len(states) == 1
        assert 'state="degraded"' in states[0]

    plays(script)


@pytest.mark.parametrize("name", ["", None, 3])
def test_it_needs_a_name(name):
    async def script(service, _):
        with pytest.raises(ValueError, match="the name of what is down"), service["billing"].degraded(name):
            pass

    plays(script)
