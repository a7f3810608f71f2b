"""Of every simulation."""

from __future__ import annotations

import gc
import warnings

import pytest


@pytest.fixture
def forgotten():
    """Processes that died leave consumers and connections behind that nobody closes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
