"""The tables of Kafka's messages are those that Kafka's schemas make."""

from __future__ import annotations

from tests.protocol.message_tables import modules


def test_the_tables_are_fresh():
    fresh = modules()
    committed = {
        path: text
        for folder in {path.parent for path in fresh}
        for path in folder.glob("*.py")
        if "@structure" in (text := path.read_text())
    }
    stale = {path.name for path in fresh.keys() | committed.keys() if fresh.get(path) != committed.get(path)}
    assert stale == set(), "run: python -m tests.protocol.message_tables"
