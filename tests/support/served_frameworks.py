"""The service of tests/support/served.py in other frameworks, for a server's command line: `...:starlette_app`."""

from __future__ import annotations

from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.support.served import service

starlette_app = Starlette(lifespan=service.lifespan, routes=[Mount("/aiogroup", service)])
litestar_app = Litestar([asgi("/aiogroup", is_mount=True, copy_scope=True)(service)], lifespan=[service.lifespan])
