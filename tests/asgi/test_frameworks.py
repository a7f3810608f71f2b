"""The same service in FastAPI, Starlette and Litestar: its lifespan, mounted anywhere, twice in one process."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from aiogroup import ConfigError, Consumer
from aiogroup.asgi import Loop, Service
from tests.support.asgi import logged

pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")


def in_fastapi(service):
    app = FastAPI(lifespan=service.lifespan)
    app.mount("/aiogroup", service)
    return app


def in_starlette(service):
    return Starlette(lifespan=service.lifespan, routes=[Mount("/aiogroup", service)])


def in_litestar(service):
    return Litestar([asgi("/aiogroup", is_mount=True, copy_scope=True)(service)], lifespan=[service.lifespan])


def in_a_lifespan_of_its_own(service):
    @asynccontextmanager
    async def lifespan(_):
        async with service.running():
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/aiogroup", service)
    return app


def under_a_prefix(service):
    """In an application that is mounted itself."""
    outer = FastAPI(lifespan=service.lifespan)
    outer.mount("/deep", in_fastapi(service))
    return outer


def alone(service):
    return service


@pytest.mark.parametrize("root_path", ["", "/api"])
@pytest.mark.parametrize(
    ("made", "prefix"),
    [
        (in_fastapi, "/aiogroup"),
        (in_starlette, "/aiogroup"),
        (in_litestar, "/aiogroup"),
        (in_a_lifespan_of_its_own, "/aiogroup"),
        (under_a_prefix, "/deep/aiogroup"),
        (alone, ""),
    ],
)
def test_a_client_twice_in_one_process(aiogroup_broker, made, prefix, root_path):
    from starlette.testclient import TestClient

    broker, handled = aiogroup_broker, []

    async def body(consumer):
        async for record in consumer:
            handled.append(record.value)  # noqa: PERF401 (the test looks at it meanwhile)

    def make():
        servers = broker.bootstrap_servers
        return Consumer("orders", group_id="billing", bootstrap_servers=servers, auto_offset_reset="earliest")

    broker.create_topic("orders")
    service = Service(billing=Loop(make, body))
    app = made(service)
    for number in range(2):
        with TestClient(app, root_path=root_path) as client:
            assert client.get(f"{root_path}{prefix}/livez").status_code == 200
            broker.wait(lambda client=client: client.get(f"{root_path}{prefix}/readyz").status_code == 200)
            broker.produce("orders", b"%d" % number)
            broker.wait(lambda number=number: len(handled) == number + 1)
        assert broker.committed("billing")["orders", 0] == number + 1
        assert broker.group("billing").members == ()
    assert handled == [b"0", b"1"]


@pytest.mark.parametrize("made", [in_fastapi, in_starlette, in_a_lifespan_of_its_own, under_a_prefix])
def test_a_wrong_setting_ends_the_start_up(made):
    from starlette.testclient import TestClient

    async def body(_):
        raise AssertionError("nothing runs here")

    app = made(Service(billing=Loop(lambda: Consumer("orders", session_timeout_ms=-1), body)))
    with pytest.raises(ConfigError, match="session_timeout_ms"), TestClient(app):
        raise AssertionError("it has begun")


@pytest.mark.parametrize("made", [FastAPI, Starlette])
def test_without_its_lifespan_the_probes_say_what_to_write(made):
    from starlette.testclient import TestClient

    async def body(_):
        raise AssertionError("nothing runs here")

    service = Service(billing=Loop(lambda: Consumer("orders"), body))
    app = made()
    app.mount("/aiogroup", service)
    with logged() as entries, TestClient(app) as client:
        answers = [client.get(f"/aiogroup/{probe}") for probe in ("readyz", "livez", "readyz")]
    assert [each.status_code for each in answers] == [503, 200, 503]
    for each in answers:
        assert each.json()["state"] == "starting"
        assert "the service was not started" in each.json()["why"]
        assert "FastAPI(lifespan=service.lifespan)" in each.json()["why"]
    ((name, fields),) = entries
    assert (name, fields["levelname"], fields["consumers"]) == ("service_not_started", "WARNING", ("billing",))
    assert "FastAPI(lifespan=service.lifespan)" in fields["why"]
