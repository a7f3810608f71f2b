"""`/metrics` of a service: there where prometheus-client is, open to all, and gone when the service ends."""

from __future__ import annotations

import pytest

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.asgi.metrics import Metrics
from aiogroup.embedded import Broker, run_virtual
from tests.support.asgi import get_raw

pytest.importorskip("prometheus_client")


async def read(consumer):
    async for _ in consumer:
        pass


def service_of(broker, **settings):
    given = {"group_id": "billing", "client_id": "worker", "bootstrap_servers": broker.bootstrap_servers}
    return Service(billing=Loop(lambda: Consumer("orders", **given), read), **settings)


def test_the_figures_are_there_while_the_service_runs():
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders", partitions=2)
            for _ in range(2):
                service = service_of(broker)
                assert (await get_raw(service, "/metrics")).status == 503
                async with service.running():
                    await broker.until(lambda service=service: service["billing"].health().is_ready, 60)
                    answer = await get_raw(service, "/metrics")
                    assert answer.status == 200
                    assert answer.headers["content-type"].startswith("text/plain")
                    text = answer.body.decode()
                    assert 'aiogroup_state{client_id="worker",group="billing",state="ready"} 1.0' in text
                    assert text.count("kafka_consumer_coordinator_assigned_partitions{") == 1
                assert (await get_raw(service, "/metrics")).status == 503

    run_virtual(play())


def test_two_services_show_each_family_once():
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders", partitions=2)
            first, second = service_of(broker), service_of(broker)
            async with first.running(), second.running():
                await broker.until(lambda: first["billing"].health().is_ready, 60)
                await broker.until(lambda: second["billing"].health().is_ready, 60)
                for service in (first, second):
                    text = (await get_raw(service, "/metrics")).body.decode()
                    assert text.count("# TYPE aiogroup_state gauge") == 1
                    for client_id in ("worker", "worker-billing"):
                        assert f'aiogroup_state{{client_id="{client_id}",group="billing",state="ready"}} 1.0' in text

    run_virtual(play())


async def test_it_can_be_taken_away(monkeypatch):
    service = Service(billing=Loop(lambda: Consumer("orders"), read), metrics=False)
    assert (await get_raw(service, "/metrics")).status == 404
    monkeypatch.setattr(Metrics, "can_be_served", lambda: False)
    service = Service(billing=Loop(lambda: Consumer("orders"), read))
    answer = await get_raw(service, "/metrics")
    assert answer.status == 404
    assert b"pip install 'aiogroup[prometheus]'" in answer.body


def test_the_figures_of_a_loop_that_failed_or_is_fenced_stay_and_have_the_state_of_the_probes():
    async def play():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders", partitions=2)
            broker.produce("orders", b"poison")
            given = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}

            async def raises(consumer):
                async for _ in consumer:
                    raise ValueError("cannot be charged")

            service = Service(
                failing=Loop(lambda: Consumer("orders", group_id="failing", **given), raises),
                fenced=Loop(lambda: Consumer("orders", group_id="fenced", group_instance_id="one", **given), read),
            )

            async def figures(group):
                text = (await get_raw(service, "/metrics")).body.decode()
                lines = [line for line in text.splitlines() if f'group="{group}"' in line]
                states = [line for line in lines if line.startswith("aiogroup_state{") and line.endswith(" 1.0")]
                return "".join(states), lines

            async with service.running():
                await broker.until(lambda: service["failing"].consumer is None, 60)
                states, lines = await figures("failing")
                assert 'state="failed"' in states
                assert any(line.startswith("aiogroup_restarts_total{") for line in lines)
                assert not any("topic=" in line and "_total" not in line for line in lines), "it holds no partition"
                await broker.until(lambda: service["fenced"].health().is_ready, 60)
                async with Consumer("orders", group_id="fenced", group_instance_id="one", **given):
                    await broker.until(lambda: service["fenced"].consumer is None, 60)
                    states, _ = await figures("fenced")
                    assert 'state="fenced"' in states

    run_virtual(play())
