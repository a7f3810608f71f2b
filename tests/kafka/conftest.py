"""What the tests against real Kafka share."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """A name for a topic or a group that no other test of the shared cluster uses."""
    return lambda prefix: f"{prefix}-{uuid4().hex[:8]}"


@pytest.fixture
def is_gone() -> Callable[[int], bool]:
    """Whether a process has ended; a zombie, which waits only to be reaped, has."""

    def ask(pid: int) -> bool:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.strip()
        return not state or state.startswith("Z")

    return ask
