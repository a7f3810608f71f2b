"""A real Chromium, driven by playwright, for tests of what a browser shows."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from contextlib import asynccontextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="pip install playwright"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium was found: apt-get install chromium"),
]


@asynccontextmanager
async def browsing():
    playwright = importlib.import_module("playwright.async_api")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
