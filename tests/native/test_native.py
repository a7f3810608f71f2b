"""The C and the Python of `native` do the same. Where no compiler was, only the Python is here to be tested."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref

import pytest
from aiokafka.structs import TopicPartition
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core import native
from aiogroup._core.native import pure
from tests.fetching import wire_batches as w
from tests.support.effort import examples

TP = TopicPartition("orders", 3)
HEADER = 61
KINDS = [native, pure] if native.IS_COMPILED else [pure]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def reader(kind, batch, acknowledge=None):
    view = memoryview(batch)
    return kind.Reader(view[:HEADER], view[HEADER:], (TP, 0, "live", acknowledge))


def told(records):
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in records]


# Record.


def made(kind, acknowledge=None, **changed):
    fields = {"tp": TP, "offset": 7, "timestamp": 1_700, "timestamp_type": 1, "key": b"k", "value": None, "headers": ()}
    return kind.Record(**(fields | changed), acknowledge=acknowledge)


def test_a_record_says_what_it_was_made_of(kind):
    record = made(kind, headers=[("a", b"1"), ("a", None)])
    assert (record.topic, record.partition, record.tp, record.topic_partition) == ("orders", 3, TP, TP)
    assert (record.offset, record.timestamp, record.timestamp_type, record.lane) == (7, 1_700, 1, "live")
    assert (record.key, record.value, record.headers) == (b"k", None, (("a", b"1"), ("a", None)))
    assert (record.serialized_key_size, record.serialized_value_size) == (1, -1)
    assert repr(record) == "Record(topic='orders', partition=3, offset=7, timestamp=1700, key=b'k', value=None)"


def test_records_are_equal_by_what_they_hold_and_hashed_by_their_place(kind):
    assert made(kind) == made(kind)
    assert made(kind) != made(kind, value=b"v")
    assert made(kind) != "a record"
    assert hash(made(kind)) == hash(made(kind, value=b"v"))
    with pytest.raises(TypeError):
        _ = made(kind) < made(kind)


def test_a_record_can_be_pickled_and_copied_without_its_consumer(kind):
    acked = []
    record = made(kind, acked.append, headers=[("h", b"1")])
    for twin in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
        assert twin == record
        twin.ack()
    assert acked == []
    record.ack()
    assert acked == [record]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_or_copied_record_has_the_lane_and_the_lateness_of_the_record(kind, protocol):
    late = made(kind, None, lane="catch-up")
    late.lateness_ms = 2**70
    for record in (late, made(kind, None, lane="catch-up"), made(kind, lateness_ms=5), made(kind)):
        for twin in (pickle.loads(pickle.dumps(record, protocol)), copy.copy(record), copy.deepcopy(record)):
            assert twin == record
            assert (twin.lane, twin.lateness_ms) == (record.lane, record.lateness_ms)


def test_an_error_of_ack_reaches_the_caller(kind):
    def refuse(record):
        raise LookupError(record.offset)

    with pytest.raises(LookupError):
        made(kind, refuse).ack()


def test_key_and_value_may_be_replaced(kind):
    record = made(kind)
    record.key, record.value = 5, {"a": 1}
    assert (record.key, record.value, record.serialized_key_size) == (5, {"a": 1}, -1)


class Node:
    """What a deserializer may return: something that refers to its record."""


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_record_in_a_cycle_is_collected(kind, by_hand):
    record = made(kind) if by_hand else reader(kind, w.built(1)).read(1, 0)[0]
    record.value = Node()
    record.value.record = record
    gone = weakref.ref(record.value)
    del record
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not native.IS_COMPILED, reason="there is no compiled Record here")
def test_records_of_bytes_are_out_of_the_collectors_sight():
    records = reader(native, w.built(10)).read(10, 0)
    assert not any(map(gc.is_tracked, records))
    records[0].value = []
    assert gc.is_tracked(records[0])


def test_wrong_arguments_are_refused(kind):
    with pytest.raises(TypeError):
        kind.Record()


@pytest.mark.skipif(not native.IS_COMPILED, reason="a plain attribute of Python can be deleted")
@pytest.mark.parametrize("name", ["key", "value"])
def test_key_and_value_cannot_be_deleted(name):
    with pytest.raises(AttributeError, match="replaced"):
        delattr(made(native), name)


@pytest.mark.skipif(not native.IS_COMPILED, reason="a plain attribute of Python has no such way")
@pytest.mark.parametrize("name", ["key", "value"])
def test_the_members_of_the_type_are_no_way_around(name):
    member = vars(native.Record)[name]
    (record,) = read_values(native, b"v" * 1_000)
    with pytest.raises(AttributeError):
        member.__set__(record, b"o" * 513)
    with pytest.raises(AttributeError):
        member.__delete__(record)
    assert record.value == b"v" * 1_000


# Values.

LENGTHS = sorted({length + by for length in (512, 640, 1_024, 2_048, 4_096) for by in (-1, 0, 1)})


def read_values(kind, *values):
    batch = w.batch(w.Sent(offset, None, value) for offset, value in enumerate(values))
    return reader(kind, batch).read(len(values), 0)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_value_that_somebody_keeps_stays_as_it_is(kind, length):
    first = bytes([1]) * length
    (kept,) = [each.value for each in read_values(kind, first)]  # the record is gone
    in_hand = read_values(kind, *(bytes([number]) * length for number in range(2, 50)))
    assert kept == first
    assert [each.value for each in in_hand] == [bytes([number]) * length for number in range(2, 50)]


@settings(max_examples=examples(25), deadline=None)
@given(lengths=st.lists(st.one_of(st.sampled_from(LENGTHS), st.integers(500, 4_200)), min_size=2, max_size=20))
def test_a_value_is_what_was_sent_whatever_was_in_its_memory_before(lengths):
    for number, length in enumerate(lengths):
        value = bytes([number % 256]) * length
        (record,) = read_values(native, value)
        assert (record.value, hash(record.value), len(record.value)) == (value, hash(value), length)
        assert bytes(memoryview(record.value)) == value


def test_a_view_of_a_value_keeps_its_bytes(kind):
    view = memoryview(read_values(kind, b"a" * 1_000)[0].value)
    records = read_values(kind, *[b"b" * 1_000] * 20)
    assert view == b"a" * 1_000
    assert len(records) == 20


# Reader.


@settings(max_examples=examples(25), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    base=st.integers(0, 2**62),
    steps=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    skip=st.integers(0, 35),
)
def test_both_read_the_same_records_in_any_steps(sizes, base, steps, skip):
    batch = w.batch(
        w.Sent(base + i, b"k" * (i % 3) or None, b"v" * size, i - 3, [("h", None)] * (i % 2))
        for i, size in enumerate(sizes)
    )
    seen = []
    for kind in KINDS:
        reading, records, step = reader(kind, batch), [], 0
        while reading.left:
            records += reading.read(steps[step % len(steps)], base + skip)
            step += 1
        reading.finish()
        assert reading.read(1, 0) == []
        seen.append(told(records))
    assert [offset for offset, *_ in seen[0]] == list(range(base + skip, base + len(sizes)))
    assert all(each == seen[0] for each in seen)


def drained(kind, first, behind, **settings):
    """What a reader of `first` gives, and how many bytes of `behind` it went on over."""
    view = memoryview(first)
    reading = kind.Reader(view[:HEADER], view[HEADER:], (TP, 0, "live", None), memoryview(behind), **settings)
    records = []
    while got := reading.read(7, 0):
        records += got
    reading.finish()
    assert reading.left == 0
    return [record.offset for record in records], reading.passed


@pytest.mark.skipif(not native.IS_COMPILED, reason="the Python reads one batch")
def test_a_reader_goes_on_to_plain_batches_after():
    behind = [w.built(5, 10), w.built(1, 20), w.built(3, 21)]
    offsets, passed = drained(native, w.built(4), b"".join(behind), check=crc32c)
    assert offsets == [*range(4), *range(10, 15), 20, *range(21, 24)]
    assert passed == sum(map(len, behind))


STOPS = {
    "compressed": w.built(5, 10, codec=w.GZIP),
    "a marker": w.marker(10, 1, abort=True),
    "lower offsets": w.built(2, 3),
    "another timestamp type": w.batch([w.Sent(10)], attributes=w.LOG_APPEND_TIME),
    "no records": w.batch([], base=10, last=12),
    "an older format": w.message(10, b"k", b"v"),
    "cut off": w.built(5, 10)[:-1],
    "a bare beginning": w.built(5, 10)[:40],
    "a wrong checksum": w.built(5, 10)[:-1] + b"?",
    "a hostile offset": w.built(1, 2**63 - 1),
    "no length": w.built(1, 10)[:8] + bytes(4) + w.built(1, 10)[12:],
}


@pytest.mark.parametrize("what", STOPS)
def test_a_reader_leaves_what_is_special_to_its_maker(kind, what):
    offsets, passed = drained(kind, w.built(4), STOPS[what] + w.built(2, 30), check=crc32c)
    assert (offsets, passed) == (list(range(4)), 0)


def test_a_reader_leaves_transactions_where_only_what_is_committed_may_be_read(kind):
    behind = w.batch([w.Sent(10)], attributes=w.TRANSACTIONAL, producer=3)
    assert drained(kind, w.built(4), behind, committed=True) == (list(range(4)), 0)


@pytest.mark.skipif(not native.IS_COMPILED, reason="the Python reads one batch")
def test_damage_in_a_batch_after_gives_what_stands_before_it():
    hurt = bytearray(w.built(3, 10))
    hurt[HEADER] = 0x7E  # the first record's size
    view, behind = memoryview(w.built(4)), w.seal(hurt)
    reading = native.Reader(view[:HEADER], view[HEADER:], (TP, 0, "live", None), memoryview(behind), check=crc32c)
    assert [record.offset for record in reading.read(9, 0)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="record"):
        reading.read(9, 0)
    assert (reading.base_offset, reading.next_offset, reading.passed) == (10, 13, len(behind))


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_damage_gives_what_stands_before_it_and_then_an_error_each_time(data):
    good = w.batch(w.Sent(i, b"k", b"value", 5, [("h", b"x")]) for i in range(6))
    at = data.draw(st.integers(HEADER, len(good) - 1))
    batch = good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :]
    cut = batch[: data.draw(st.integers(HEADER, len(batch)))]
    before = told(reader(native, good).read(6, 0))
    for kind in KINDS:
        for spoiled in (batch, cut):
            reading, records = reader(kind, spoiled), []
            try:
                while reading.left:
                    records += reading.read(4, 0)
                reading.finish()
            except ValueError:
                if reading.left:
                    with pytest.raises(ValueError):
                        reading.read(4, 0)
            assert len(records) <= 6
            whole = sum(HEADER + index < at for index in ends(good, before)) if spoiled is batch else 0
            assert told(records)[:whole] == before[:whole]


def ends(batch, records):
    """Where in the payload each record ends, for records of one size."""
    size = (len(batch) - HEADER) // len(records)
    return [size * (number + 1) - 1 for number in range(len(records))]


@pytest.mark.parametrize("count", [-1, 0])
def test_a_batch_that_says_it_holds_nothing_gives_nothing(kind, count):
    header = bytearray(w.built(1))
    header[57:61] = count.to_bytes(4, "big", signed=True)
    assert reader(kind, header).read(5, 0) == []


def test_a_reader_refuses_what_is_no_request(kind):
    with pytest.raises(ValueError, match="at least 1"):
        reader(kind, w.built(1)).read(0, 0)


# What is read at once.


def read_plain(data, *, from_offset=0, most=100, check=crc32c, committed=False):
    return native.read_plain(data, from_offset, most, (TP, 0, "live", None), check, committed)


compiled = pytest.mark.skipif(not native.IS_COMPILED, reason="in Python nothing is read at once")


@compiled
@pytest.mark.parametrize("as_view", [False, True])
def test_plain_batches_are_read_at_once(as_view):
    batches = [w.built(3, 5, value=b"v"), w.batch([w.Sent(8, b"k", b"x", 7, [("h", b"1")])], base=8, last=11)]
    data = b"".join(batches)
    records, end = read_plain(memoryview(data) if as_view else data, from_offset=6)
    assert told(records) == [each for batch in batches for each in told(reader(pure, batch).read(10, 6))]
    assert [each.offset for each in records] == [6, 7, 8]
    assert (end, records[0].tp, records[0].timestamp_type, records[0].lane) == (12, TP, 0, "live")


def wrong_checksum(data):
    return data[:30] + bytes([data[30] ^ 1]) + data[31:]


PLAIN = w.built(2, 5)
UNUSUAL = {
    "nothing": b"",
    "cut off": PLAIN[:-1],
    "a part behind": PLAIN + PLAIN[:20],
    "a wrong checksum": wrong_checksum(PLAIN),
    "a second one with a wrong checksum": PLAIN + wrong_checksum(w.built(2, 7)),
    "compressed": w.batch([w.Sent(5)], codec=w.GZIP),
    "the broker's time": w.batch([w.Sent(5)], attributes=w.LOG_APPEND_TIME),
    "a marker": w.marker(5, 3, abort=True),
    "an old format": w.message(5, b"k", b"v"),
    "offsets that fall": w.built(2, 7) + PLAIN,
    "no record": w.batch([], base=5, last=5),
    "a record too many": w.batch([w.Sent(5), w.Sent(6)], count=1),
    "a record too few": w.batch([w.Sent(5)], count=2),
    "a damaged record": w.seal(PLAIN[:61] + b"\xff" + PLAIN[62:]),
}


@compiled
@pytest.mark.parametrize("data", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_not_plain_is_left_to_be_read_batch_by_batch(data):
    assert read_plain(PLAIN) is not None
    assert read_plain(data) is None


@compiled
def test_records_of_a_transaction_are_read_at_once_unless_only_committed_ones_may_be():
    data = w.batch([w.Sent(5)], attributes=w.TRANSACTIONAL, producer=3)
    assert len(read_plain(data)[0]) == 1
    assert read_plain(data, committed=True) is None


@compiled
def test_more_records_than_asked_for_or_none_that_are_wanted_are_left():
    assert read_plain(PLAIN, most=1) is None
    assert len(read_plain(PLAIN, most=2)[0]) == 2
    assert read_plain(PLAIN, from_offset=7) is None
    assert read_plain(PLAIN, most=0) is None


@compiled
def test_without_a_check_checksums_do_not_matter():
    assert len(read_plain(wrong_checksum(PLAIN), check=None)[0]) == 2


@compiled
def test_an_error_of_the_check_is_raised():
    def check(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read_plain(PLAIN, check=check)


@compiled
@pytest.mark.parametrize(
    "args",
    [
        (),
        (PLAIN, 0, 9, (TP, 0, "live"), None, False),
        (PLAIN, 0, 9, ("orders", 0, "live", None), None, False),
        (PLAIN, 0, 9, None, None, False),
        (PLAIN, 2**80, 9, (TP, 0, "live", None), None, False),
        (PLAIN, 0, 2**80, (TP, 0, "live", None), None, False),
        ("text", 0, 9, (TP, 0, "live", None), None, False),
    ],
)
def test_what_cannot_be_read_at_once_is_refused(args):
    with pytest.raises((TypeError, OverflowError)):
        native.read_plain(*args)


# A buffer.


def test_a_blank_buffer_is_as_long_as_asked_for_and_can_be_written(kind):
    buffer = kind.blank(70_000)
    assert type(buffer) is bytearray
    assert len(buffer) == 70_000
    buffer[-1:] = b"x"
    assert buffer[69_999] == ord("x")
    assert kind.blank(0) == b""


@pytest.mark.parametrize("size", [-1, -(2**80), 2**80])
def test_no_buffer_has_such_a_length(kind, size):
    with pytest.raises((ValueError, OverflowError)):
        kind.blank(size)


# The extent.


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_both_see_the_same_extent(data):
    pieces = [w.built(3, 5), w.built(1, 9, epoch=4), w.message(10, b"k", b"v"), w.built(2, 2**62, epoch=5)]
    sent = bytearray(b"".join(data.draw(st.permutations(pieces))))
    for _ in range(data.draw(st.integers(0, 2))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(sent[: data.draw(st.integers(0, len(sent)))])
    seen = [kind.extent(cut, 5) for kind in KINDS]
    assert all(each == seen[0] for each in seen)


# Cursor.


async def taken(cursor):
    return [record async for record in cursor]


def opened(kind, count=3, turn_ns=10**12, *, is_shared=False):
    """A cursor behind the first of its records, and the others."""
    cursor = kind.Cursor(is_shared=is_shared)
    records = reader(kind, w.built(count + 1)).read(count + 1, 0)
    assert cursor.open(records, 0, turn_ns) is records[0]

    async def wait():
        await asyncio.sleep(0)
        raise StopAsyncIteration

    cursor.wait = wait
    return cursor, records[1:]


async def test_a_cursor_gives_its_slice_and_then_asks(kind):
    cursor, records = opened(kind)
    assert await taken(cursor) == records
    assert cursor.index == 4


async def test_a_cursor_asks_when_the_turn_is_over(kind):
    cursor, records = opened(kind, turn_ns=0)
    assert await taken(cursor) == []
    assert cursor.open(records, 1, 10**12) is records[1]
    assert await taken(cursor) == records[2:]


@pytest.mark.parametrize("index", [-1, 3])
def test_a_cursor_cannot_be_opened_where_nothing_is(kind, index):
    cursor, records = opened(kind)
    with pytest.raises(ValueError, match="no record"):
        cursor.open(records, index, 1)


async def test_a_closed_cursor_keeps_its_place(kind):
    cursor, records = opened(kind)
    assert cursor.take() is records[0]
    cursor.close()
    assert (cursor.take(), cursor.index) == (None, 2)


async def test_what_wait_returns_is_the_next_record(kind):
    cursor, records = opened(kind, 2)

    async def again():
        await asyncio.sleep(0)
        return cursor.open(records, 0, 10**12)

    cursor.wait = again
    given = []
    async for record in cursor:
        given.append(record.offset)
        if len(given) == 7:
            break
    assert given == [1, 2, 1, 2, 1, 2, 1]


async def test_nothing_is_taken_before_it_is_awaited(kind):
    cursor, records = opened(kind)
    dropped = anext(cursor)
    dropped.close()
    assert await anext(cursor) is records[0]


async def test_cancelling_before_the_first_step_loses_nothing(kind):
    cursor, records = opened(kind)
    task = asyncio.ensure_future(anext(cursor))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await anext(cursor) is records[0]


async def test_cancelling_reaches_what_waits(kind):
    cursor, _ = opened(kind, turn_ns=0)
    entered, left = asyncio.Event(), []

    async def wait():
        try:
            entered.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            left.append(True)
            raise

    cursor.wait = wait
    task = asyncio.ensure_future(anext(cursor))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == [True]


async def test_what_was_awaited_cannot_be_awaited_again(kind):
    cursor, _ = opened(kind)
    step = anext(cursor)
    await step
    with pytest.raises(RuntimeError):
        await step


async def test_a_cursor_closed_between_request_and_await_gives_nothing_stale(kind):
    cursor, _ = opened(kind)
    step = anext(cursor)
    cursor.close()
    with pytest.raises(StopAsyncIteration):
        await step


async def test_steps_asked_for_at_once_give_different_records(kind):
    cursor, records = opened(kind)
    first, second = anext(cursor), anext(cursor)
    assert [await second, await first] == records[:2]


# Which of the two.


def test_the_environment_may_ask_for_python():
    asked = "from aiogroup._core import native; print(native.IS_COMPILED, native.Cursor.__module__)"
    environment = os.environ | {"AIOGROUP_PURE_PYTHON": "1"}
    done = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "aiogroup._core.native.pure"]


async def stepped_elsewhere(cursor):
    """What another task is given that steps the cursor, `None` where it is told to ask."""

    async def step():
        return [record async for record in cursor]

    return await asyncio.create_task(step())


async def test_a_cursor_gives_its_records_to_the_task_that_opened_it(kind):
    cursor, records = opened(kind)
    assert await stepped_elsewhere(cursor) == []
    assert (await anext(cursor), cursor.index) == (records[0], 2)


async def test_a_step_that_was_made_by_the_opener_may_be_awaited_elsewhere(kind):
    """As `asyncio.wait_for(anext(cursor), 1)` does before Python 3.12."""
    cursor, records = opened(kind)
    assert await asyncio.ensure_future(anext(cursor)) is records[0]


async def test_a_shared_cursor_gives_its_records_to_whoever_steps_it(kind):
    cursor, records = opened(kind, is_shared=True)
    assert await stepped_elsewhere(cursor) == records


async def test_a_closed_cursor_keeps_nobody_s_context(kind):
    cursor, records = opened(kind)
    variable = contextvars.ContextVar("kept")

    async def open_here():
        kept = Kept()
        variable.set(kept)
        cursor.open(records, 0, 1)
        return weakref.ref(kept)

    alive = await asyncio.create_task(open_here())
    cursor.close()
    await asyncio.sleep(0)  # the loop itself holds the task until then
    gc.collect()
    assert alive() is None


class Kept:
    """Something that a task's context holds."""
