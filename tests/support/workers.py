"""Which worker of pytest-xdist runs a test: any, unless the test needs what is too dear for each worker to have."""

from __future__ import annotations

import re
from typing import Any

import pytest

_NAME = re.compile(r"\[.*@(\w+)")


def by_one_worker(name: str) -> list[Any]:
    """The `params` of a fixture: one worker runs all tests with fixtures of this name.

    The name is a part of the test's id, since that is all that the controller knows of a test. (The marks of
    `--dist loadgroup` are not: pytest-xdist 3.8 hands them on by an attribute that pytest 9.2 does not look at.)
    """
    return [pytest.param(None, id=f"@{name}")]


def scope_of(nodeid: str) -> str:
    """What one worker runs together with the test: all tests of its name, or the test alone."""
    found = _NAME.search(nodeid)
    return found[1] if found else nodeid


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler: the names with the most tests come first, all other tests one by one."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByName(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByName(config, log)
