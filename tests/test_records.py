"""What the application holds."""

from __future__ import annotations

from aiokafka.structs import TopicPartition

from aiogroup import Record, Records


def test_a_batch_shows_how_much_of_what_it_holds():
    batch = {
        TopicPartition("orders", at): [Record(TopicPartition("orders", at), 0, 0, 0, None, b"secret", ())]
        for at in range(2)
    }
    assert repr(Records(batch, {})) == "Records(orders-0: 1, orders-1: 1)"
    assert repr(Records({}, {})) == "Records()"
