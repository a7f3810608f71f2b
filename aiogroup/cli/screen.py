"""Where `--watch` shows its tables: in place of the last one on a terminal, by rich; else one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiogroup.cli.printing import say_on, tell

__all__ = ["shown_in_place"]


@contextmanager
def shown_in_place() -> Iterator[Callable[[str], None]]:
    """A function that shows a text; on a terminal it takes the place of the one before."""
    if not sys.stdout.isatty():
        yield _after_the_last
        return
    try:
        from rich.live import Live  # noqa: PLC0415 (an extra)
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        tell("each look is printed below the last: pip install 'aiogroup[cli]' shows them in place")
        yield _after_the_last
        return
    with Live(auto_refresh=False) as live:
        yield lambda text: live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


def _after_the_last(text: str) -> None:
    say_on(f"{text}\n")
