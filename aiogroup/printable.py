"""Text of others, such as names of topics, for a terminal."""

from __future__ import annotations

__all__ = ["clean"]


def clean(text: str) -> str:
    """The text without anything that a terminal obeys: escapes, line ends, marks that turn the direction of writing."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
