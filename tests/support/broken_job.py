"""A job's module that cannot be imported, because of an error of its own."""

from __future__ import annotations

process = 1 / 0
