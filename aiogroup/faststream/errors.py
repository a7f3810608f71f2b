"""The error of a missing extra, in a file of its own: it can be imported where FastStream cannot."""

from __future__ import annotations

from aiogroup.errors import AiogroupError

__all__ = ["FastStreamMissingError"]


class FastStreamMissingError(AiogroupError, ImportError):
    """FastStream is not installed, or cannot be imported: `pip install 'aiogroup[faststream]'`."""
