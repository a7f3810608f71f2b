"""Asks an ASGI application without a server, and collects what a service logs."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict
    body: object


async def get(app, path, **how):
    """Send one request to the application as a server would. Returns the answer's JSON."""
    answer = await get_raw(app, path, **how)
    return Answer(answer.status, answer.headers, json.loads(answer.body) if answer.body else None)


async def get_raw(app, path, *, method="GET", query=b"", root_path="", http_version="1.1"):
    """As `get`, but returns the answer's bytes."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "root_path": root_path, "query_string": query}
    scope["http_version"] = http_version
    await app({**scope, "headers": [], "app": None}, receive, send)
    start, *bodies = sent
    text = b"".join(each["body"] for each in bodies)
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, text)


async def probed(app):
    """The state, and the codes of both probes; both are asked again if the state changed between them."""
    live, ready = await get(app, "/livez"), await get(app, "/readyz")
    if live.body["state"] != ready.body["state"]:
        live, ready = await get(app, "/livez"), await get(app, "/readyz")
    assert live.body["state"] == ready.body["state"]
    return live.body["state"], live.status, ready.status


@contextmanager
def logged():
    """Collects the events that are logged meanwhile, as (name, fields), newest last."""
    entries = []

    class Keep(logging.Handler):
        def emit(self, record):
            entries.append((record.event, record.__dict__))

    logger, keep = logging.getLogger("aiogroup"), Keep()
    before = logger.level
    logger.addHandler(keep)
    logger.setLevel(logging.INFO)
    try:
        yield entries
    finally:
        logger.removeHandler(keep)
        logger.setLevel(before)
