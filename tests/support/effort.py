"""How many examples a property test looks at: few in the fast tests, eight times that by `make properties`."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("EXAMPLES_FACTOR", "1"))


def examples(count: int) -> int:
    return count * FACTOR
