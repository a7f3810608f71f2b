"""The probes over HTTP: routes, mounts, methods, and who may see names. No consumer is started here."""

from __future__ import annotations

import pytest

from aiogroup import Consumer, HealthStatus
from aiogroup._core.telemetry.health import Health
from aiogroup.asgi import Loop, Service
from aiogroup.asgi.application import Application
from aiogroup.asgi.probes import PLAIN_WHY, Look, Snapshot
from tests.support.asgi import get


def allow(_):
    return True


async def allow_later(_):
    return True


def deny(_):
    return False


def service(**more):
    async def body(_):
        raise AssertionError("nothing runs here")

    return Service(audit=Loop(lambda: Consumer("orders", group_id="audit"), body), **more)


async def test_before_its_lifespan_it_is_alive_and_not_ready():
    app = service()
    live, ready = await get(app, "/livez"), await get(app, "/readyz")
    assert (live.status, ready.status) == (200, 503)
    assert live.body == {"state": "starting", "why": app["audit"].health().why, "since_ms": live.body["since_ms"]}
    assert live.headers["cache-control"] == "no-store"
    assert live.headers["content-type"] == "application/json"
    assert (app["audit"].consumer, app["audit"].lags(), app["audit"].restarts_count) == (None, {}, 0)
    with pytest.raises(KeyError, match="no loop is called 'billing'; there are audit"):
        app["billing"]


@pytest.mark.parametrize(
    ("path", "root_path"),
    [
        ("/livez", ""),
        ("/livez/", ""),
        ("/aiogroup/livez", "/aiogroup"),
        ("/livez", "/aiogroup"),
        ("/api/v1/aiogroup/livez", "/api/v1/aiogroup"),
        ("/aiogroup/livez", "/aiogroup/"),
        ("/aiogroup/livez", "/api/aiogroup"),
    ],
)
async def test_it_answers_wherever_it_is_mounted(path, root_path):
    assert (await get(service(), path, root_path=root_path)).status == 200


@pytest.mark.parametrize("path", ["/", "/live", "/livez/x", "/x/livez"])
async def test_other_pages_are_not_there(path):
    assert (await get(service(), path)).status == 404


async def test_only_get_and_head_are_answered():
    refused = await get(service(), "/livez", method="POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    head = await get(service(), "/livez", method="HEAD")
    assert (head.status, head.body) == (200, None)
    assert int(head.headers["content-length"]) > 0


@pytest.mark.parametrize(("path", "query"), [("/state", b""), ("/livez", b"verbose"), ("/readyz", b"a=1&verbose=1")])
async def test_names_are_told_to_those_with_access_alone(path, query):
    answer = await get(service(access=deny), path, query=query)
    assert (answer.status, answer.body) == (403, {"error": "forbidden"})
    answer = await get(service(), path, query=query)
    assert answer.status == 403
    assert answer.body == {"error": "forbidden", "why": "the service has no access=, so nobody sees this"}
    for allowed in (service(access=allow), service(access=allow_later)):
        answer = await get(allowed, path, query=query)
        assert answer.status == (503 if path == "/readyz" else 200)
        assert answer.body["state"] == answer.body["loops"]["audit"]["state"] == "starting"
        assert answer.body["loops"]["audit"]["partitions_count"] == 0


async def document(*_):
    raise AssertionError("nobody asks for it")


async def test_a_probe_tells_no_names_to_everybody():
    secret = "orders of billing at kafka-7.internal"
    for status in HealthStatus:
        looks = {"billing": Look(Health(status, secret, 1, None, None, ("orders",)))}
        app = Application(lambda looks=looks: Snapshot(looks, "assigned", 0), dict, document, None)
        for path in ("/livez", "/readyz"):
            answer = await get(app, path)
            assert answer.body == {"state": status.value, "why": PLAIN_WHY[status], "since_ms": 0}


async def test_a_websocket_is_closed():
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    await service()({"type": "websocket", "path": "/livez"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]
