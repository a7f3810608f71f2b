"""Consumers inside an ASGI process (FastAPI, Starlette, Litestar alike): their life, and probes of how they are.

`from aiogroup.asgi import Loop, Service`. Nothing else of aiogroup imports this, and it imports no framework.
"""

from __future__ import annotations

from aiogroup.asgi.loop import Loop
from aiogroup.asgi.service import Service
from aiogroup.asgi.supervised import SupervisedLoop

__all__ = ["Loop", "Service", "SupervisedLoop"]
