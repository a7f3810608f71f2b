"""Of every simulation."""

from __future__ import annotations

import gc
import warnings

import pytest


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Processes that died leave consumers and connections behind that nobody closes, and tasks that had not begun.

    Python may free those of one test in any later one, so each test of this folder ignores what they warn of, and the
    plug-in does not hear of their consumers.
    """
    monkeypatch.setattr("aiogroup_pytest.on_consumer_made", lambda consumer: None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"coroutine 'Supervisor\._run' was never awaited", RuntimeWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
