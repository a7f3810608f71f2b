"""What the application holds."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys

import pytest
from aiokafka.structs import TopicPartition

from aiogroup import PartitionMetadata, Record, Records
from aiogroup._core.native import IS_COMPILED, pure


def test_a_batch_shows_how_much_of_what_it_holds():
    batch = {
        TopicPartition("orders", at): [Record(TopicPartition("orders", at), 0, 0, 0, None, b"secret", ())]
        for at in range(2)
    }
    assert repr(Records(batch, {})) == "Records(orders-0: 1, orders-1: 1)"
    assert repr(Records({}, {})) == "Records()"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_batch_can_be_pickled_and_copied(protocol):
    tp = TopicPartition("orders", 0)
    batch = Records({tp: [Record(tp, 0, 0, 0, None, b"v", ())]}, {tp: PartitionMetadata(1, 2, 3, 4, 5)})
    for twin in (pickle.loads(pickle.dumps(batch, protocol)), copy.copy(batch), copy.deepcopy(batch)):
        assert twin == batch
        assert twin.metadata() == batch.metadata()


PICKLED = """
import pickle, sys
from aiogroup import Record, TopicPartition
sys.stdout.buffer.write(pickle.dumps(Record(TopicPartition("orders", 0), 7, 0, 0, b"k", b"v", ())))
"""


@pytest.mark.skipif(not IS_COMPILED, reason="both processes would have the Python")
def test_a_record_of_a_process_without_the_c_is_a_record_in_one_with_it():
    pickled = subprocess.run(
        [sys.executable, "-c", PICKLED], env=os.environ | {"AIOGROUP_PURE_PYTHON": "1"}, capture_output=True, check=True
    ).stdout
    record = pickle.loads(pickled)
    assert type(record) is Record
    assert record == Record(TopicPartition("orders", 0), 7, 0, 0, b"k", b"v", ())


def test_help_says_of_ack_with_the_c_what_it_says_without():
    words = inspect.getdoc(Record.ack).split()
    assert words[:6] == ["Mark", "the", "record", "as", "processed:", "its"]
    assert words == inspect.getdoc(pure.Record.ack).split()
