"""Records as Arrow batches: what Spark's executors hand over."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from aiogroup import TopicPartition
from aiogroup._core.native import Record
from aiogroup.spark.source.arrow import batch_of
from aiogroup.spark.source.ranges import Held, Read
from aiogroup.spark.source.tasks import Part

PART = Part(TopicPartition("örders", 3), 0, 9, "örders-3-0-9")
MOST_MS = 9_223_372_036_854_775
"""Spark keeps microseconds in 64 bits."""
HELD = {"offsets": 9, "records": 6, "control": 2, "aborted": 1}
HEADERS = [(), (("a", b"1"), ("ö", None), ("a", b"")), (("b", b"2"),), ()]


def read_of(headers, held=None):
    records = [Record(PART.tp, at, 1_000 + at, 0, b"k", None, each) for at, each in enumerate(headers)]
    return Read(PART, records, held)


@pytest.mark.parametrize(
    "headers", [HEADERS, HEADERS[1:3], HEADERS[:1], [(("a", b"1"),)] * 9, [(), (("a", None),)] * 9]
)
def test_headers_are_lists_of_name_and_value_and_null_without_any(headers):
    batch = batch_of(read_of(headers), with_held=False)
    batch.validate(full=True)
    found = batch.column("headers").to_pylist()
    assert found == [[{"key": key, "value": value} for key, value in each] or None for each in headers]


def test_each_row_has_the_names_of_its_partition_and_of_its_part():
    batch = batch_of(read_of(HEADERS[:2]), with_held=True)
    batch.validate(full=True)
    assert [{key: value for key, value in row.items() if key != "headers"} for row in batch.to_pylist()] == [
        {
            "key": b"k",
            "value": None,
            "topic": "örders",
            "partition": 3,
            "offset": at,
            "timestamp": datetime(1970, 1, 1, 0, 0, 1, 1_000 * at, UTC),
            "timestampType": 0,
            "slice": "örders-3-0-9",
            "held": None,
        }
        for at in range(2)
    ]


def test_the_last_row_of_a_part_has_only_what_the_part_held():
    batch = batch_of(Read(PART, [], Held(9, 6, 2, 1)), with_held=True)
    batch.validate(full=True)
    assert batch.num_rows == 1
    assert {key: value for key, value in batch.to_pylist()[0].items() if value is not None} == {"held": HELD}
    assert batch_of(Read(PART, [], Held(9, 6, 2, 1)), with_held=False) is None


@pytest.mark.parametrize(
    ("ms", "year"), [(2**63 - 1, None), (-(2**63), None), (0, 1970), ((2**63 - 1) // 1_000, 294247)]
)
def test_a_time_that_spark_cannot_keep_is_null(ms, year):
    column = batch_of(Read(PART, [Record(PART.tp, 0, ms, 0, None, b"v", ())], None), with_held=False)["timestamp"]
    assert (column.null_count == 1) is (year is None)
    assert year in (None, 294247) or column.to_pylist()[0].year == year


def test_no_worker_imports_pandas():
    """`pa.array` and `pa.scalar` do, which takes a worker two seconds."""
    code = """
import sys
from tests.spark.test_arrow import HEADERS, PART, Held, Read, batch_of, read_of

assert "pandas" not in sys.modules
batch_of(read_of(HEADERS), with_held=True)
batch_of(Read(PART, [], Held(9, 6, 2, 1)), with_held=True)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
