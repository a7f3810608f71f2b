"""docs/testing.md: its example runs, and its table has every rule with its arguments."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

from aiogroup.testing import Damage, Proxy, Rule

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


async def test_the_example_runs(make_place):
    place = make_place()
    await place.produce(["paid"])
    names = {}
    exec(compile(EXAMPLE, "docs/testing.md", "exec"), names)
    await names["commits_survive_a_silent_coordinator"](place.cluster.bootstrap_servers, place.topic, place.group)
    assert await place.committed() == 1


def test_the_table_has_every_rule_with_what_is_its_own():
    told = dict(re.findall(r"^\| `(\w+)\((.+)\)` \|", PAGE, re.MULTILINE))
    rules = {
        name: inspect.signature(rule).parameters
        for name, rule in vars(Proxy).items()
        if inspect.isfunction(rule) and inspect.signature(rule).return_annotation == "Rule"
    }
    assert told.keys() == rules.keys()
    for name, parameters in rules.items():
        own = [each for each in parameters if each not in ("self", "node_id", "times")]
        assert re.findall(r"(\w+)(?:=\w*)?(?:, |$)", told[name]) == own
    assert hasattr(Rule, "remove")
    assert len(get_args(Damage)) == 5  # as many as the row of `corrupt` names
