"""docs/embedded.md: its lists agree with the code, and together with the list of what is left out they cover all of
Kafka.
"""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from aiogroup._core.protocol.framing import decode_response
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup.embedded import Broker
from aiogroup.embedded.machine.refusals import REFUSALS
from aiogroup.embedded.messages.ranges import RANGES, REQUESTS
from tests.support.sources import ROOT

PAGE = ROOT / "docs/embedded.md"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("embedded_lists", ROOT / "docs/embedded_lists.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def offered_by_kafka():
    """The keys in the recorded ApiVersions answer of a broker of 4.3.1."""
    rows = map(json.loads, (ROOT / "tests/protocol/golden/broker_session.jsonl").read_text().splitlines())
    (row,) = (each for each in rows if (each["message"], each["version"]) == ("ApiVersions", 4))
    _, answer = decode_response(ApiVersionsRequest, 4, bytes.fromhex(row["response"]))
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def test_the_lists_are_those_of_the_code(script):
    text = PAGE.read_text()
    assert text == script.filled(text), "run python docs/embedded_lists.py"


def test_each_call_of_a_broker_is_in_the_table():
    text = PAGE.read_text()
    table = text[text.index("## Its calls") : text.index("## What it serves")]
    told = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    between_rooms = {"change", "change_nodes"}
    calls = {name for name in dir(Broker) if not name.startswith("_")} - between_rooms | {"nodes"}
    assert sorted(told) == sorted(calls)


def test_each_refusal_is_in_the_list(script):
    listed = script.refusals()
    assert all(f"| `{name}` | {each.seen} | {each.helps} |" in listed for name, each in REFUSALS.items())
    assert listed in PAGE.read_text()


def test_what_is_served_and_what_is_not_is_all_that_kafka_offers(script, offered_by_kafka):
    left_out = {key for requests in script.NOT_SERVED.values() for key in requests}
    assert left_out & REQUESTS.keys() == set()
    assert left_out | REQUESTS.keys() == offered_by_kafka.keys()


def test_no_version_is_served_that_kafka_does_not_offer(offered_by_kafka):
    for request, (lowest, highest) in RANGES.items():
        least, most = offered_by_kafka[request.API_KEY]
        assert least <= lowest <= highest <= most, request.api_name()


def test_a_page_without_a_place_for_a_list_is_refused(script):
    with pytest.raises(SystemExit, match="no place for the list 'served'"):
        script.filled("nothing")
