"""How much a test looks at: few examples, or a third of its seeds; `make properties`: eight times as many, or all."""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("EXAMPLES_FACTOR", "1"))


def examples(count: int) -> int:
    return count * FACTOR


def third(count: int) -> int:
    """Of what takes long however little it looks at, such as whole simulations: all with `make properties`."""
    return count if FACTOR > 1 else count // 3
