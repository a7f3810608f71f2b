"""The probes over HTTP: a plain ASGI application, which works under any prefix and `root_path`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs

from aiogroup.asgi.page.html import HTML, POLICY
from aiogroup.asgi.probes import Snapshot

__all__ = ["Access", "Application", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Access = Callable[[Scope], bool | Awaitable[bool]]
"""Whether the client of this request may see names of topics, groups and errors; may be async."""

Answer = tuple[int, bytes] | tuple[int, bytes, str]
"""The status, the body, and the content type if it is not JSON."""

OK: Final = 200
BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
NOT_ALLOWED: Final = 405
UNAVAILABLE: Final = 503
NO_PAGE: Final = "there is no such page here"
NO_METRICS: Final = "/metrics needs prometheus-client (pip install 'aiogroup[prometheus]') and Service(metrics=True)"


class Application:
    """Answers `/livez`, `/readyz`, `/state` and, with `page`, `/`.

    Only those to whom `access` says yes may see `details`, all loops in short, and `state`, the document of `/state`.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        details: Callable[[], dict[str, object]],
        state: Callable[[int, int, str], Awaitable[bytes]],
        access: Access | None,
        *,
        page: bool = False,
        metrics: Callable[[str], Awaitable[tuple[bytes, str] | None]] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._details = details
        self._document = state
        self._access = access
        self._routes: dict[str, Callable[[Scope], Awaitable[Answer]]] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/state": self._state,
        }
        if page:
            self._routes["/"] = self._page
        if metrics is not None:
            self._metrics = metrics
            self._routes["/metrics"] = self._figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        kind: list[str] = []
        is_head, path = scope["method"] == "HEAD", path_of(scope)
        if (route := self._routes.get(path)) is None:
            status, body = NOT_FOUND, json_of({"error": NO_METRICS if path == "/metrics" else NO_PAGE})
        elif scope["method"] != "GET" and not is_head:
            status, body = NOT_ALLOWED, json_of({"error": "only GET and HEAD"})
        else:
            status, body, *kind = await route(scope)
        headers = [
            (b"content-type", kind[0].encode() if kind else b"application/json"),
            (b"x-content-type-options", b"nosniff"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if status == OK and path == "/":
            headers.append((b"content-security-policy", POLICY.encode()))
            headers.append((b"referrer-policy", b"no-referrer"))
        if status == OK and path == "/state" and scope.get("http_version", "") == "1.1":
            headers.append((b"connection", b"close"))  # so that the next one may reach another worker process
        if status == NOT_ALLOWED:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if is_head else body})

    async def _livez(self, scope: Scope) -> Answer:
        return await self._probe(scope, is_good=self._snapshot().is_live)

    async def _readyz(self, scope: Scope) -> Answer:
        return await self._probe(scope, is_good=self._snapshot().is_ready)

    async def _probe(self, scope: Scope, *, is_good: bool) -> Answer:
        status = OK if is_good else UNAVAILABLE
        if "verbose" not in parse_qs(query_of(scope), keep_blank_values=True):
            return status, json_of(self._snapshot().plain())
        refused = await self._refusal(scope)
        return refused or (status, json_of({**self._snapshot().plain(), **self._details()}))

    async def _state(self, scope: Scope) -> Answer:
        if (refused := await self._refusal(scope)) is not None:
            return refused
        asked = parse_qs(query_of(scope))
        try:
            after, samples_after_ms = (int(asked.get(name, ["0"])[-1]) for name in ("after", "samples_after"))
        except ValueError:
            return BAD_REQUEST, json_of({"error": "after and samples_after are whole numbers"})
        return OK, await self._document(after, samples_after_ms, asked.get("process", [""])[-1])

    async def _page(self, scope: Scope) -> Answer:
        refused = await self._refusal(scope)
        return refused or (OK, HTML, "text/html; charset=utf-8")

    async def _figures(self, scope: Scope) -> Answer:
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        found = await self._metrics(accept.decode("latin-1"))
        return (UNAVAILABLE, json_of({"error": "the service does not run"})) if found is None else (OK, *found)

    async def _refusal(self, scope: Scope) -> Answer | None:
        """The answer to a client that may see nothing, or `None`."""
        if self._access is None:
            why = "the service has no access=, so nobody sees this"
            return FORBIDDEN, json_of({"error": "forbidden", "why": why})
        answer = self._access(scope)
        if (await answer if inspect.isawaitable(answer) else answer) is True:
            return None
        return FORBIDDEN, json_of({"error": "forbidden"})


def path_of(scope: Scope) -> str:
    """The path below the place where the application is mounted.

    `path` should begin with `root_path`, to which frameworks add the mount's prefix. Some servers leave out of `path`
    what a proxy in front of them cut off, and then it begins only with an end of `root_path`.
    """
    path: str = scope["path"]
    parts = [part for part in scope.get("root_path", "").split("/") if part]
    for first in range(len(parts)):
        root = "/" + "/".join(parts[first:])
        if path == root or path.startswith(f"{root}/"):
            path = path[len(root) :]
            break
    return path.rstrip("/") or "/"


def query_of(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return query.decode("latin-1")


def json_of(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()
