"""The live page without a browser: what it is made of, what may be loaded, and who may see it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256

import pytest

from aiogroup import ConfigError, Consumer, HealthStatus
from aiogroup.asgi import Loop, Service
from aiogroup.asgi.page.html import HTML
from tests.support.asgi import get_raw

TEXT = HTML.decode()
CURRENT = "The head is current: new records are read as they come, and the backlog beside them."


async def read(_):
    pass


def service(**settings):
    return Service(audit=Loop(lambda: Consumer("orders", client_id="secret"), read), **settings)


def test_it_is_one_small_file_with_nothing_from_elsewhere():
    assert len(HTML) <= 60_000
    assert re.findall(r"(?:src|href|action)=\"(?!data:,)[^\"]*\"", TEXT) == []
    urls = set(re.findall(r"\w+://[^\s\"']+", TEXT))
    assert urls == {"http://www.w3.org/2000/svg"}, "the name of a namespace, which nobody fetches"


def test_what_others_wrote_becomes_text_alone():
    forbidden = ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", 'setTimeout("')
    assert [each for each in forbidden if each in TEXT] == []
    assert re.search(r"\son\w+=", TEXT) is None
    assert " style=" not in TEXT, "the policy would refuse it"


def test_it_changes_nothing():
    assert "<form" not in TEXT
    assert re.findall(r"fetch\((\w+)", TEXT) == ["place"]
    assert "method:" not in TEXT


async def test_the_policy_allows_what_stands_in_the_file_alone():
    answer = await get_raw(service(access=lambda _: True, page=True), "/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body == HTML
    assert answer.headers["cache-control"] == "no-store"
    policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    for name in ("script", "style"):
        (inside,) = re.findall(f"<{name}>(.*?)</{name}>", TEXT, re.DOTALL)
        assert policy[f"{name}-src"] == f"'sha256-{b64encode(sha256(inside.encode()).digest()).decode()}'"
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node was found: apt-get install nodejs")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([[92, 33_096]], "92-33096"),
        ([[92, 33_096], [40_000, 40_001]], "92-33096, 40000-40001"),
        (["orders-0", "orders-1"], "orders-0, orders-1"),
        ([], "none"),
        ({"a": 1}, '{"a":1}'),
        (0, "0"),
    ],
)
def test_a_field_of_an_event_is_a_text_in_which_ranges_are_ranges(value, text):
    code = re.search(r"function list\(.*?\n}\n", TEXT, re.DOTALL)[0]
    code += re.search(r"const field = .*?;\n", TEXT, re.DOTALL)[0]
    script = f"{code} process.stdout.write(field({json.dumps(value)}))"
    assert subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout == text


@pytest.mark.skipif(shutil.which("node") is None, reason="no node was found: apt-get install nodejs")
@pytest.mark.parametrize(
    ("sample", "live", "text"),
    [
        (
            [0, 500, 20.0, 500],
            0,
            CURRENT,
        ),
        (
            [0, 520, 20.0, 500],
            20,
            CURRENT,
        ),
        ([0, 1_500, 20.0, 500], 1_000, "The head is 1,000 records behind, and the backlog is read beside it."),
        ([0, 7, None, None], 7, "The head is 7 records behind, and the backlog is read beside it."),
        ([0, None, None, None], None, "How far the head is behind is not known."),
    ],
)
def test_the_head_is_told_apart_from_the_backlog(sample, live, text):
    code = "".join(re.search(f"const {name} = .*?;\n", TEXT, re.DOTALL)[0] for name in ("known", "count", "headLag"))
    code += re.search(r"const headText = .*?`;\n", TEXT, re.DOTALL)[0]
    code += f"const sample = {json.dumps(sample)}, live = headLag(sample);"
    script = f"{code} process.stdout.write(JSON.stringify([live, headText(live, sample[2], 2)]))"
    told = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == [live, text]


def test_every_state_has_a_colour_and_every_colour_a_meaning():
    (tones,) = re.findall(r"const TONES = \{(.*?)\};", TEXT, re.DOTALL)
    assert {name for name, _ in re.findall(r"(\w+): \"(\w+)\"", tones)} == set(HealthStatus)
    legends = re.findall(r"legend\((\[.*?\])\)", TEXT)
    shown = {colour for each in legends for colour, _ in re.findall(r'\["(\w*)", "([^"]+)"\]', each)}
    assert shown == {"fill", "good", "warn", "bad", "read", ""}


async def test_closed_access_tells_nothing():
    answer = await get_raw(service(access=lambda _: False, page=True), "/")
    assert (answer.status, answer.body) == (403, b'{"error": "forbidden"}')


async def test_without_page_there_is_none():
    assert (await get_raw(service(access=lambda _: True), "/")).status == 404


def test_a_page_for_everybody_must_be_meant():
    with pytest.raises(ConfigError, match="page=True needs access"):
        service(page=True)


async def test_each_question_over_http_1_may_reach_another_worker():
    open_to_all = service(access=lambda _: True, page=True)
    assert (await get_raw(open_to_all, "/state", http_version="1.1")).headers["connection"] == "close"
    assert "connection" not in (await get_raw(open_to_all, "/state", http_version="2")).headers
