"""The merge of aiogroup._core.native: the C and the Python lay the same records out, and refuse the same."""

from __future__ import annotations

import sys

import pytest
from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from aiogroup._core import native
from aiogroup._core.native import pure

KINDS = [native, pure] if native.IS_COMPILED else [pure]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def source(keys, index=0, records=None):
    return [list(keys) if records is None else records, list(keys), index]


def merged(kind, sources, limit=100):
    records, order, times = [], [], []
    used_up = kind.Heads(sources).take(records, order, times, limit)
    return used_up, records, order, times


def test_it_goes_by_key_and_stops_where_a_source_has_nothing_left(kind):
    sources = [source([1, 5, 9], records=["a", "b", "c"]), source([0, 2, 3, 4], index=1, records=[*"xyzw"])]
    assert merged(kind, sources) == (1, [*"ayzw"], [0, 1, 1, 1], [1, 2, 3, 4])
    assert sources[1][2] == 4


def test_it_stops_at_the_limit_and_goes_on_from_there(kind):
    heads = kind.Heads([source([1, 3, 5]), source([2, 4, 6])])
    records, order, times = [], [], []
    assert heads.take(records, order, times, 3) == -1
    assert records == [1, 2, 3]
    assert heads.take(records, order, times, 1) == -1
    assert heads.take(records, order, times, 9) == 0
    assert (records, order, times) == ([1, 2, 3, 4, 5], [0, 1, 0, 1, 0], [1, 2, 3, 4, 5])


def test_a_source_that_was_used_up_goes_on_when_it_is_refilled(kind):
    first, second = source([1, 4]), source([2, 3, 9])
    heads, records = kind.Heads([first, second]), []
    assert heads.take(records, [], [], 9) == 0
    del first[0][:1], first[1][:1]  # what was handed out is forgotten
    first[2] -= 1
    first[0] += [5, 8]
    first[1] += [5, 8]
    heads.refill(0)
    assert heads.take(records, [], [], 9) == 0
    assert records == [1, 2, 3, 4, 5, 8]
    with pytest.raises(ValueError, match="no record"):
        heads.refill(0)
    assert heads.take(records, [], [], 9) == 1
    with pytest.raises(ValueError, match="source"):
        heads.take(records, [], [], 9)
    for slot in (2, -1, 10**30):
        with pytest.raises((ValueError, OverflowError)):
            heads.refill(slot)
    first[0].append(10)
    first[1].append(10)
    heads.refill(0)
    with pytest.raises(ValueError, match="used up"):
        heads.refill(0)
    assert heads.take(records, [], [], 9) == 0
    assert records[-2:] == [9, 10]


def test_equal_keys_go_by_the_place_of_their_source(kind):
    sources = [source([7, 7, 8]), source([7, 8]), source([6, 7, 9])]
    assert merged(kind, sources)[2] == [2, 0, 0, 1, 2, 0]


def test_keys_that_go_back_stay_in_the_order_of_their_source(kind):
    assert merged(kind, [source([5, 1, 9]), source([3, 6])])[3] == [3, 5, 1, 6]


def test_a_source_has_as_many_records_as_keys_say(kind):
    assert merged(kind, [[["a", "b", "c"], [1, 2], 0]]) == (0, ["a", "b"], [0, 0], [1, 2])


@pytest.mark.parametrize(
    ("sources", "limit"),
    [
        ([], 1),
        ([source([1])], 0),
        ([source([1])], -5),
        ([source([1], index=1)], 1),
        ([source([1], index=-1)], 1),
        ([source([])], 1),
        ([[["a"], [1, 2], 1]], 1),
    ],
)
def test_what_it_cannot_take_from_is_refused(kind, sources, limit):
    with pytest.raises(ValueError):
        merged(kind, sources, limit)


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
@pytest.mark.parametrize(
    "wrong", [None, (), [], [1, 2, 3], [[], [], []], [["a"], ["b"], 0], [["a"], [2**63], 0], [["a"], [1], "0"]]
)
def test_what_is_no_source_is_refused_by_the_c(wrong):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        merged(native, [source([1]), wrong])


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
def test_the_c_outlives_lists_that_are_changed_behind_its_back():
    sources = [source([1, 5, 6]), source([2, 3])]
    heads, records = native.Heads(sources), []
    sources[0][1].clear()
    with pytest.raises(ValueError):
        heads.take(records, [], [], 9)
    sources[1][0].clear()
    sources.clear()
    heads = native.Heads([])
    with pytest.raises(ValueError):
        heads.take(records, [], [], 9)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=9), st.integers(1, 30))
def test_c_and_python_lay_the_same_out(keys, limit):
    mine, theirs = [source(each) for each in keys], [source(each) for each in keys]
    told = []
    for kind, sources in ((native, mine), (pure, theirs)):
        heads, records, order, times = kind.Heads(sources), [], [], []
        for _ in range(3):
            used_up = heads.take(records, order, times, limit)
            told.append((used_up, records[:], order[:], times[:]))
            if used_up >= 0:
                sources[used_up][0].append(7)
                sources[used_up][1].append(7)
                heads.refill(used_up)
    assert told[:3] == told[3:]


def recorded(kind, *timestamps):
    fields = {"tp": TopicPartition("orders", 3), "timestamp_type": 1, "key": None, "value": b"v", "headers": ()}
    return [kind.Record(**fields, offset=offset, timestamp=at) for offset, at in enumerate(timestamps)]


def test_times_are_read_up_to_a_record_that_has_none(kind):
    records, times = recorded(kind, 5, 0, 2**62, -1, 7), [9]
    assert not kind.read_times(records, times)
    assert times == [9, 0, 2**62]
    assert not kind.read_times(records, times)
    times.append(0)  # it was passed over
    assert kind.read_times(records, times)
    assert times == [9, 0, 2**62, 0, 7]
    assert kind.read_times(records, times)
    assert len(times) == 5


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
def test_the_c_reads_times_of_records_only():
    for wrong in ([object()], [None], [5]):
        with pytest.raises(TypeError):
            native.read_times(wrong, [])


def test_nothing_leaks():
    record, key = object(), 10**12
    before = (sys.getrefcount(record), sys.getrefcount(key))
    for _ in range(100):
        merged(native, [[[record] * 3, [key] * 3, 0], [[record], [key + 1], 0]])
    after = (sys.getrefcount(record), sys.getrefcount(key))
    assert after == before


def test_a_record_is_as_late_as_it_was_made(kind):
    fields = {"tp": TopicPartition("orders", 3), "offset": 7, "timestamp": 5, "timestamp_type": 1}
    record = kind.Record(**fields, key=None, value=b"v", headers=())
    other = kind.Record(**fields, key=None, value=b"v", headers=())
    assert record.lateness_ms == 0
    for lateness_ms in (30, 40):
        record.lateness_ms = lateness_ms
        assert record.lateness_ms == lateness_ms
    assert (record.tp, record.lane, record.topic, record.timestamp_type) == (fields["tp"], "live", "orders", 1)
    assert record == other  # it says when it was read, not what
    record.ack()
    assert other.lateness_ms == 0
