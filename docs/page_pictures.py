"""Makes the pictures of the live page in docs/ from a real run: `python docs/page_pictures.py`.

Needs `pip install playwright`, a Chromium and pngquant. A service reads from the embedded broker, has a backlog to
catch up with, and a second member joins and leaves.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import uvicorn

from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker

FOLDER = Path(__file__).parent
PICTURES = (
    ("page-390", 390, 1180, "dark"),
    ("page-1280", 1280, 940, "light"),
    ("page-2560", 2560, 700, "dark"),
)
SETTINGS: dict[str, Any] = {
    "group_id": "billing",
    "auto_offset_reset": "earliest",
    "enable_parallel_rebalance": True,
    "parallel_min_backlog": 1,
    "max_poll_interval_ms": 60_000,
}


def main() -> None:
    with Broker(seed=3) as broker:
        broker.create_topic("orders", 6)
        asyncio.run(take_all(broker))


async def take_all(broker: Broker) -> None:
    def make(client_id: str) -> Consumer:
        return Consumer("orders", bootstrap_servers=broker.bootstrap_servers, client_id=client_id, **SETTINGS)

    async def charge(consumer: Consumer) -> None:
        async for _ in consumer:
            await asyncio.sleep(0.004)

    fill(broker, 40)
    async with make("before") as consumer:
        while sum(each or 0 for each in consumer.lags().values()) or not consumer.assignment():
            await consumer.getmany(timeout_ms=1_000)
        await consumer.commit()
    fill(broker, 2_500)
    service = Service(page=True, access=lambda _: True, billing=Loop(lambda: make("billing-1"), charge))
    server = uvicorn.Server(uvicorn.Config(service, port=0, log_level="warning"))
    loop = asyncio.get_running_loop()
    serving, producing = loop.create_task(server.serve()), loop.create_task(trickle(broker))
    while not server.started or not service["billing"].health().is_ready:  # noqa: ASYNC110 (two conditions)
        await asyncio.sleep(0.1)
    port = server.servers[0].sockets[0].getsockname()[1]
    await asyncio.sleep(4)
    async with make("billing-2") as other:
        reading = loop.create_task(charge(other))
        await asyncio.sleep(6)
    await reading
    async with make("billing-2") as other:
        reading = loop.create_task(charge(other))
        await asyncio.sleep(14)
        await take(f"http://127.0.0.1:{port}/")
    await reading
    producing.cancel()
    server.should_exit = True
    await serving


def fill(broker: Broker, count: int) -> None:
    for partition in range(6):
        broker.produce_many("orders", [b"order"] * count, partition=partition)


async def trickle(broker: Broker) -> None:
    number = 0
    while True:
        broker.produce("orders", b"order", partition=(number := number + 1) % 6)
        await asyncio.sleep(0.02)


async def take(url: str) -> None:
    from playwright.async_api import async_playwright  # noqa: PLC0415 (for whoever makes pictures)

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width, height, scheme in PICTURES:
            size: Any = {"width": width, "height": height}
            colors: Any = scheme
            context = await browser.new_context(viewport=size, color_scheme=colors)
            page = await context.new_page()
            await page.goto(url)
            await page.locator("tbody tr").first.wait_for()
            await asyncio.sleep(2)
            (FOLDER / f"{name}.png").write_bytes(smaller(await page.screenshot()))
        await browser.close()


def smaller(png: bytes) -> bytes:
    """The same picture in 256 colours."""
    command = shutil.which("pngquant") or "pngquant", "--speed=1", "--strip", "-"
    return subprocess.run(command, input=png, capture_output=True, check=True).stdout  # noqa: S603


if __name__ == "__main__":
    main()
