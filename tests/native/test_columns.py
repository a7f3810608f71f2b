"""Records as the buffers of Arrow arrays: the C and the Python lay them out alike, as pyarrow itself would."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from aiogroup._core import native
from aiogroup._core.native import pure

KINDS = [native, pure] if native.IS_COMPILED else [pure]
TP = TopicPartition("orders", 3)
TEXT = st.none() | st.binary(max_size=5)
FIELDS = st.tuples(st.integers(0, 2**62), st.integers(-1, 2**62), st.sampled_from([-1, 0, 1]), TEXT, TEXT)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def records_of(kind, rows, headers=()):
    return [kind.Record(TP, *row, headers) for row in rows]


def numbers(data, type_):
    return pa.Array.from_buffers(type_, len(data) * 8 // type_.bit_width, [None, pa.py_buffer(data)])


def binary(count, null_count, valid, ends, data):
    found = pa.Array.from_buffers(pa.binary(), count, [valid and pa.py_buffer(valid), *map(pa.py_buffer, (ends, data))])
    found.validate(full=True)
    assert found.null_count == null_count
    return found


@given(st.lists(FIELDS, max_size=20))
def test_each_column_is_what_pyarrow_makes_of_its_values(rows):
    for kind in KINDS:
        offsets, timestamps, kinds, has_headers, keys, values = kind.columns(records_of(kind, rows))
        columns = [numbers(offsets, pa.int64()), numbers(timestamps, pa.int64()), numbers(kinds, pa.int32())]
        columns += [binary(len(rows), *keys), binary(len(rows), *values)]
        assert [each.to_pylist() for each in columns] == [[row[at] for row in rows] for at in range(5)]
        assert has_headers is False


def test_one_record_with_headers_is_enough(kind):
    plain, headed = records_of(kind, [(0, 0, 0, None, b"v")]), records_of(kind, [(1, 0, 0, None, b"v")], [("a", b"b")])
    assert kind.columns(plain + headed)[3] is True


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
@pytest.mark.parametrize("wrong", [None, (), [object()], [pure.Record(TP, 0, 0, 0, None, b"v", ())]])
def test_the_c_takes_a_list_of_its_own_records_only(wrong):
    with pytest.raises(TypeError, match="list of records"):
        native.columns(wrong)


@pytest.mark.parametrize("row", [(0, 0, 0, "text", None), (0, 0, 0, None, 7)])
def test_what_is_not_bytes_is_refused(kind, row):
    with pytest.raises(TypeError):
        kind.columns(records_of(kind, [row]))


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
def test_no_code_of_a_record_runs_while_the_list_is_read():
    class Clears:
        def __index__(self):
            records.clear()
            return 0

    records = [native.Record(TP, at, 0, Clears(), None, b"v", ()) for at in range(100)]
    with pytest.raises(TypeError, match="timestamp type"):
        native.columns(records)
    assert len(records) == 100


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
def test_more_than_an_int32_can_say_is_refused():
    big = bytes(2**20)
    with pytest.raises(OverflowError, match="take fewer records"):
        native.columns(records_of(native, [(at, 0, 0, None, big) for at in range(2**11)]))


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
def test_the_collector_runs_no_code_between_sizes_and_bytes():
    class Clears:
        def __init__(self):
            self.me = self

        def __del__(self):
            records.clear()

    records = records_of(native, [(at, 0, 0, b"k", b"v") for at in range(1_000)])
    keep = [tuple(range(at, at + 4)) for at in range(5_000)]  # so that a new tuple is one more for the collector
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    Clears()
    gc.set_threshold(1, 1_000, 1_000)
    gc.enable()
    try:
        *_, keys, values = native.columns(records)
    finally:
        gc.set_threshold(*thresholds)
    assert (len(keys[2]), len(values[2])) == (4_004, 4_004)
    assert (keys[3], values[3]) == (b"k" * 1_000, b"v" * 1_000)
    assert len(keep) == 5_000
