"""A job's module that cannot be imported, and why not is its own."""

from __future__ import annotations

process = 1 / 0
