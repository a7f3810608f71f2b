"""docs/service.md says what the code says."""

from __future__ import annotations

import inspect
import re

from aiogroup import HealthStatus
from aiogroup.asgi import Service
from tests.support.sources import ROOT

PAGE = (ROOT / "docs/service.md").read_text()


def rows(columns):
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in found if len(row) == columns]


def test_the_page_has_every_argument_with_its_default():
    told = {name.strip("`"): default.strip("`") for name, default, _ in rows(3)}
    parameters = inspect.signature(Service).parameters.values()
    assert told == {
        each.name: str(each.default).join('""' if isinstance(each.default, str) else ("", ""))
        for each in parameters
        if each.kind is each.KEYWORD_ONLY
    }


def test_the_page_has_every_state_in_its_order():
    told = [state for row in rows(5) for state in re.findall(r"`(\w+)`", row[0])]
    assert told == list(HealthStatus)
