"""Work for the body of a loop: a document is parsed, as long as is wanted."""

from __future__ import annotations

import json
import time


def document(items: int) -> str:
    return json.dumps([{"id": number, "kind": "order", "price": number / 100} for number in range(items)])


def items_in_us(us: int) -> int:
    """How many items a document has that is parsed in this time on this machine when nothing else runs."""
    if not us:
        return 0
    text = document(100)
    return max(1, round(us / min(_us_of(text) for _ in range(200)) * 100))


def _us_of(text: str) -> float:
    began = time.thread_time()
    json.loads(text)
    return 1e6 * (time.thread_time() - began)
