"""The live page in a real Chromium: behind a proxy that cuts a prefix off, with lanes to scale, and without motion."""

from __future__ import annotations

import json
import signal

import pytest

from tests.kafka.test_page import STOP_S, Seen, browsing, looking, serve
from tests.kafka.test_page import pytestmark as needs_a_browser
from tests.support.kafka import take

__all__ = ["serve"]
pytestmark = needs_a_browser
LANES = {"enable_parallel_rebalance": True, "parallel_min_backlog": 1, "heartbeat_interval_ms": 300}
WIDTH = "Number(document.querySelector('.lane .pending').getAttribute('width'))"


@pytest.mark.parametrize("options", [("--root-path", "/api"), ()], ids=["told", "untold"])
async def test_it_works_behind_a_proxy_that_cuts_a_prefix_off(make_place, serve, options):
    served = serve(make_place(), *options)
    async with await served.client() as client, browsing() as browser:
        asked = []

        async def cut_off(route):
            asked.append(route.request.url)
            answer = await route.fetch(url=route.request.url.replace("/api/", "/", 1))
            await route.fulfill(response=answer)

        page = await browser.new_page()
        await page.route("**/*", cut_off)
        seen = Seen(page)
        await page.goto(f"{client.base_url}/api/aiogroup/")
        await seen.until("document.getElementById('state').textContent === 'ready'")
        await seen.until("document.querySelectorAll('article tbody tr').length >= 2")
        assert seen.said == []
        assert {each.split("?")[0] for each in asked} == {
            f"{client.base_url}/api/aiogroup/", f"{client.base_url}/api/aiogroup/state",
        }  # fmt: skip
    await served.program.end(signal.SIGTERM, STOP_S)


async def test_a_lane_is_drawn_to_scale_and_shrinks(make_place, serve):
    place = make_place()
    await place.produce(range(10))
    async with place.consumer() as consumer:
        await take(consumer, 5)
        await consumer.commit()
    await place.produce(range(1_990))
    served = serve(place, SETTINGS=json.dumps(LANES), RECORD_S="0.004")
    async with looking(served) as seen:
        await seen.until("document.querySelectorAll('.lane .pending').length === 1")
        drawn = await seen.page.evaluate(WIDTH)
        log = await seen.page.evaluate("Number(document.querySelector('.lane .log').getAttribute('width'))")
        assert 0 < drawn <= log == 1_000, "a part of the log"
        await seen.until(f"!document.querySelector('.lane') || {WIDTH} < {drawn} - 100")
        await seen.until("!document.querySelector('.lane')", 40)
        assert await seen.page.evaluate("document.getElementById('state').textContent") == "ready"


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
async def test_bars_move_only_for_those_who_like_it(make_place, serve, motion):
    served = serve(make_place())
    async with await served.client() as client, browsing() as browser:
        context = await browser.new_context(reduced_motion=motion)
        seen = Seen(await context.new_page())
        await seen.page.goto(f"{client.base_url}/aiogroup/")
        await seen.until("document.querySelectorAll('.rail > div').length === 3")
        script = "getComputedStyle(document.querySelector('.rail > div')).transitionDuration"
        assert (await seen.page.evaluate(script) in ("0s", "")) == (motion == "reduce")
