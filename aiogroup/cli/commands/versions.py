"""What is installed: the answer of `aiogroup` without arguments."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from pathlib import Path

import aiogroup
from aiogroup._core.native.diagnosis import why_not_compiled

__all__ = ["versions"]


def versions() -> Iterator[str]:
    """Line by line."""
    yield f"aiogroup {aiogroup.__version__} in {Path(aiogroup.__file__).parent}"
    yield f"Python {platform.python_version()} ({platform.python_implementation()}, {platform.platform()})"
    yield f"aiokafka {importlib.metadata.version('aiokafka')}"
    slow = why_not_compiled()
    if slow is None:
        yield "records are decoded by compiled code"
    else:
        yield f"records are decoded in Python, which takes several times as long: {slow.why}"
        yield f"what to do: {slow.what_to_do}"
