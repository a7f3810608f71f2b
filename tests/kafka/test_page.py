"""The live page in a real Chromium, beside uvicorn and a broker over TCP (docs/own-tests.md says how to run it)."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import asynccontextmanager

import pytest

from tests.kafka.test_service_lives import STOP_S, Served
from tests.support.browser import IN_A_BROWSER, browsing

pytestmark = IN_A_BROWSER
TURNED = "\u202e"
NAME = f"<img src=x onerror=alert(1)>{TURNED}"
SIZES = [(390, 844, "light"), (1280, 900, "dark"), (2560, 1300, "light")]


@pytest.fixture
def serve(run, tmp_path):
    return lambda place, *options, **variables: Served(run, place, tmp_path, *options, OPEN="1", **variables)


class Seen:
    """A page, what its console said, and what it asked for."""

    def __init__(self, page):
        self.page = page
        self.said = []
        self.asked = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    async def until(self, script, limit_s=20):
        """Wait until the script is true. Playwright's own wait evaluates text in the page, which the policy forbids."""
        ends_at = time.monotonic() + limit_s
        while not await self.page.evaluate(script):
            assert time.monotonic() < ends_at, f"{script}\n{await self.page.inner_text('body')}"
            await asyncio.sleep(0.1)

    async def number(self, title):
        script = f"[...document.querySelectorAll('.number')].find(each => each.lastChild.textContent === {title!r})"
        return await self.page.evaluate(f"{script}.firstChild.textContent.replaceAll(',', '')")


@asynccontextmanager
async def looking(served, width=1280, height=900, scheme="light"):
    """The page of a service, in a window of this size."""
    async with await served.client() as client, browsing() as browser:
        context = await browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        await served.program.says("Application startup complete")  # a server's parent says its address before
        seen = Seen(await context.new_page())
        url = str(client.base_url)
        await seen.page.goto(f"{url}/aiogroup/")
        yield seen
        assert seen.said == [], "no error, and nothing that the policy refused"
        assert [each for each in seen.asked if not each.startswith((f"{url}/aiogroup/", "data:"))] == []


async def test_lag_falls_while_records_flow_and_names_are_only_text(make_place, serve):
    place = make_place(2)
    await place.produce(range(3_000), 0)
    served = serve(place, SETTINGS=json.dumps({"client_id": NAME}))
    async with looking(served) as seen:
        await seen.until("document.getElementById('state').textContent === 'ready'")
        await seen.until("document.querySelectorAll('article tbody tr').length >= 4")
        first = int(await seen.number("lag"))
        await seen.until(
            "Number([...document.querySelectorAll('.number')][0].firstChild.textContent.replaceAll(',', ''))"
            f" < {first} - 100"
        )
        text = await seen.page.inner_text("article")
        assert NAME.replace(TURNED, r"\u202e") in text
        assert TURNED not in text, "it would turn what stands behind the name"
        assert await seen.page.locator("img").count() == 0
        await seen.until("document.body.innerText.includes('(this one)')")
        assert "rebalance completed" in await seen.page.inner_text("main")


async def test_the_poll_bar_fills_while_a_handler_works_and_turns_at_80_percent(make_place, serve):
    place = make_place()
    served = serve(place, RECORD_S="11", SETTINGS='{"max_poll_interval_ms": 10000, "session_timeout_ms": 10000}')
    async with looking(served) as seen:
        await seen.until("document.querySelectorAll('.bar').length === 3")
        assert await seen.page.locator(".bar.warned, .bar.over").count() == 0
        await place.produce(["slow"], 0)
        await seen.until("document.querySelectorAll('.bar')[1].classList.contains('warned')", 30)
        await seen.until("document.getElementById('state').textContent === 'parked'", 30)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
async def test_it_fits_and_can_be_used_by_keyboard(make_place, serve, size):
    served = serve(make_place(3), SETTINGS=json.dumps({"client_id": "c" * 120}))
    async with looking(served, *size) as seen:
        await seen.until("document.getElementById('state').textContent === 'ready'")
        await seen.until("document.body.innerText.includes('at most 0')")
        assert await seen.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        await seen.page.keyboard.press("Tab")
        assert await seen.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Partitions of loop"


async def test_each_worker_that_has_answered_has_a_tab(make_place, serve):
    served = serve(make_place(2), "--workers", "2")
    async with looking(served) as seen:
        await seen.until("document.querySelectorAll('[role=tab]').length === 2", 60)
        tabs = seen.page.get_by_role("tab")
        await tabs.nth(1).click()
        assert await tabs.nth(1).get_attribute("aria-selected") == "true"
        assert await seen.page.locator("main > div:not([hidden])").count() == 1


async def test_an_open_page_does_not_hold_up_the_end(make_place, serve):
    served = serve(make_place())
    async with await served.client() as client, browsing() as browser:
        seen = Seen(await browser.new_page())
        await seen.page.goto(f"{client.base_url}/aiogroup/")
        await seen.until("document.getElementById('state').textContent === 'ready'")
        at = time.monotonic()
        await served.program.end(signal.SIGTERM, STOP_S)
        assert time.monotonic() - at < 5
        await seen.until("document.body.innerText.includes('does not answer')")


async def test_the_process_that_follows_is_shown(make_place, serve):
    place = make_place()
    first = serve(place)
    async with await first.client() as client, browsing() as browser:
        page = await browser.new_page()
        seen = Seen(page)
        await page.goto(f"{client.base_url}/aiogroup/")
        heard = "document.getElementById('heard').textContent"
        await seen.until(f"{heard} === 'process {first.program.process.pid}'")
        await first.program.end(signal.SIGTERM, STOP_S)
        await seen.until(f"{heard}.includes('does not answer')")
        second = serve(place, "--port", str(client.base_url.port))
        await seen.until(f"{heard} === 'process {second.program.process.pid}'", 30)
        await seen.until("document.getElementById('state').textContent === 'ready'")
        await seen.until(
            "[...document.querySelectorAll('[role=tab]')].some(each => each.textContent.includes('silent'))", 40
        )
    await second.program.end(signal.SIGTERM, STOP_S)
