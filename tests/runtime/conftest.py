"""Every test here runs on the virtual loop: no test waits for the real clock."""

from __future__ import annotations

from aiogroup.embedded import VirtualLoop


def pytest_asyncio_loop_factories():
    return {"virtual": VirtualLoop}
