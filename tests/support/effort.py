"""How much a test tries: few examples, or a third of its seeds. With `make properties` it is eight times as many, or
all.
"""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("EXAMPLES_FACTOR", "1"))


def examples(count: int) -> int:
    return count * FACTOR


def third(count: int) -> int:
    """A third of `count`, for tests that always take long, such as whole simulations. With `make properties`, all."""
    return count if FACTOR > 1 else count // 3
