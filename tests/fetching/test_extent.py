"""How far fetched bytes reach, without decoding them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.native import extent
from tests.fetching import wire_batches as w
from tests.support.effort import examples


def test_nothing_reaches_nowhere():
    assert extent(b"", 17)[0] == 17


@pytest.mark.parametrize("as_view", [False, True])
def test_whole_batches_reach_past_their_last_offset(as_view):
    data = w.built(3, base=5) + w.built(2, base=8)
    assert extent(memoryview(data) if as_view else data, 5)[0] == 10


def test_batch_that_was_cut_off_does_not_count():
    whole, cut = w.built(3, base=0), w.built(3, base=3)
    for length in range(len(cut)):
        assert extent(whole + cut[:length], 0)[0] == 3


def test_offsets_that_compaction_removed_are_passed():
    assert extent(w.batch([w.Sent(10)], base=8, last=20), 8)[0] == 21


def test_empty_batch_and_marker_are_passed():
    assert extent(w.batch([], base=4, last=9), 4)[0] == 10
    assert extent(w.marker(4, producer=1, abort=True), 4)[0] == 5


def test_fetch_offset_inside_of_a_batch_is_never_moved_back():
    assert extent(w.built(3, base=0), 50)[0] == 50


def test_old_formats_reach_past_each_message():
    assert extent(w.message(7, b"k", b"v" * 20, magic=1) + w.message(8, b"k", b"v" * 20, magic=0), 7)[0] == 9
    shortest = w.message(9, None, b"", magic=0)
    assert len(shortest) == 26
    assert extent(shortest, 9)[0] == 10
    assert extent(w.message(8, None, b"", magic=0) + shortest, 8)[0] == 10


def test_damaged_frame_says_that_nothing_can_follow():
    data = bytearray(w.built(3))
    data[8:12] = b"\xff\xff\xff\xff"
    assert extent(bytes(data), 0)[0] is None


def test_batch_that_claims_to_end_before_it_begins_is_damaged():
    data = bytearray(w.built(3))
    data[23:27] = b"\xff\xff\xff\xff"
    assert extent(bytes(data), 0)[0] is None


def test_epochs_are_reported_where_they_change():
    data = w.built(3, base=5, epoch=2) + w.built(2, base=8, epoch=2) + w.built(1, base=10, epoch=7)
    assert w.epochs_of(data) == ((5, 2), (10, 7))


def test_old_formats_have_no_epoch():
    data = w.message(7, b"k", b"v" * 20, magic=1) + w.built(1, base=8, epoch=3)
    assert w.epochs_of(data) == ((7, -1), (8, 3))


def test_epochs_before_the_damage_are_reported():
    bad = bytearray(w.built(1, base=3, epoch=4))
    bad[23:27] = b"\xff\xff\xff\xff"
    assert extent(w.built(3, base=0, epoch=1) + bytes(bad), 0) == (None, ((0, 1),))


@settings(max_examples=examples(25), deadline=None)
@given(st.binary(max_size=120), st.integers(0, 2**40))
def test_any_bytes_end_somewhere_or_are_damaged(data, offset):
    end = extent(data, offset)[0]
    assert end is None or end >= offset
