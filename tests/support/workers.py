"""Which worker of pytest-xdist runs a test: any, unless the test needs something that is too expensive for every
worker.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

_NAME = re.compile(r"\[.*@(\w+)")


def by_one_worker(name: str) -> list[Any]:
    """The `params` of a fixture: one worker runs all tests with fixtures of this name.

    The name is made a part of the test's id, since the controller knows nothing else of a test. (The marks of `--dist
    loadgroup` do not get there: pytest-xdist 3.8 passes them by an attribute that pytest 9.2 ignores.)
    """
    return [pytest.param(None, id=f"@{name}")]


def scope_of(nodeid: str) -> str:
    """The tests that one worker runs together: all tests with the same fixture name, or the test alone."""
    found = _NAME.search(nodeid)
    return found[1] if found else nodeid


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler: the names with the most tests come first, all other tests one by one."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByName(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByName(config, log)
