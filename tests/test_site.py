"""The documentation as a site: every page of docs/ and every link, and nothing that is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import IN_A_BROWSER, browsing
from tests.support.workers import by_one_worker

ROOT = Path(__file__).parents[1]
WIDER_THAN_ITS_PLACE = """
() => [...document.querySelectorAll("pre > code, .md-typeset__scrollwrap")]
  .filter(each => each.scrollWidth > each.clientWidth)
  .map(each => each.innerText.split("\\n").sort((a, b) => b.length - a.length)[0])
"""
LOADED = re.compile(r"<(?:link|script|img|iframe|source|object)\b[^>]*?\b(?:src|href|data)\s*=\s*[\"']?([^\"'\s>]+)")


def from_elsewhere(page: str) -> list[str]:
    """What a browser would load from another host to show a page."""
    styles = re.findall(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')]+)", page)
    return styles + [each for each in LOADED.findall(page) if re.match(r"(?:https?:)?//", each)]


@pytest.fixture(scope="session", params=by_one_worker("site"))
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # As on a machine where Python keeps what it has compiled beside the sources, which is what it does by itself.
    unset = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    quiet = {name: of for name, of in os.environ.items() if name not in unset} | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.long
def test_every_page_is_built(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"readme", "changelog", "contributing"}
    assert pages - {path.stem for path in site.glob("*.html")} == set()
    assert (site / "examples/hello_group.html").exists()
    assert not [*site.rglob("__pycache__"), *site.rglob("*.py[co]")]


@pytest.mark.long
def test_what_python_compiles_is_no_part_of_it(site):
    assert [path for path in (ROOT / "docs").rglob("*.pyc") if "site_hooks" in path.name], "it was compiled"
    assert [str(path) for path in site.rglob("*") if path.suffix == ".pyc" or path.name == "__pycache__"] == []


@pytest.mark.long
def test_no_table_has_an_empty_header(site):
    empty = re.compile(r"<thead>\s*<tr>\s*(?:<th[^>]*>\s*</th>\s*)+</tr>")
    pages = {path.name: len(empty.findall(path.read_text())) for path in site.glob("*.html")}
    assert {name: count for name, count in pages.items() if count} == {}


@pytest.mark.long
def test_nothing_is_loaded_from_elsewhere(site):
    loaded = {path.name: from_elsewhere(path.read_text()) for kind in ("*.html", "*.css") for path in site.rglob(kind)}
    assert len(loaded) > 30
    assert {name: found for name, found in loaded.items() if found} == {}


@pytest.mark.parametrize(
    "page",
    [
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
        "<script src=//cdn.example.org/x.js></script>",
        '<img alt="a" src="http://example.org/badge.svg">',
        "<style>@import 'https://example.org/x.css'</style>",
        "a { background: url(https://example.org/x.png) }",
    ],
)
def test_what_comes_from_elsewhere_is_found(page):
    assert from_elsewhere(page)


def test_a_link_to_elsewhere_is_none_of_it():
    assert not from_elsewhere('<a href="https://example.org">x</a><script src="assets/x.js"></script>')


@pytest.mark.long
def test_links_of_the_repository_lead_into_the_site(site):
    page = (site / "architecture.html").read_text()
    assert 'href="readme.html#words"' in page
    assert 'href="examples/fastapi_worker.html"' in (site / "service.html").read_text()
    assert 'href="how-to-kubernetes.html"' in (site / "readme.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize("by", [pytest.param("chromium", marks=IN_A_BROWSER)])
async def test_no_code_and_no_table_is_cut_at_1400_px(site, by):
    cut = {}
    async with browsing() as browser:
        page = await browser.new_page(viewport={"width": 1400, "height": 900})
        for path in sorted(site.rglob("*.html")):
            await page.goto(path.as_uri())
            if found := await page.evaluate(WIDER_THAN_ITS_PLACE):
                cut[path.name] = found
    assert cut == {}
