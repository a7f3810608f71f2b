"""The offsets of a stream: nothing is skipped, and only what a batch has read is marked, whenever Spark ends."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiogroup import ConfigError, TopicPartition
from aiogroup._core.recovery.ranges import Range
from aiogroup.spark.source.offsets import StreamOffset, Taken, next_offset

TP = TopicPartition("orders", 0)
TOPIC_ID = "00000000-0000-0000-0000-000000000001"


def taken(*pairs, id="a"):  # noqa: A002
    return StreamOffset("read_committed", {TP: Taken(id, tuple(Range(*pair) for pair in pairs), TOPIC_ID)})


def test_an_offset_is_json_and_comes_back():
    offset = taken((0, 10), (10, 20)).marked()
    told = json.loads(json.dumps(offset.as_json("billing")))
    assert StreamOffset.of(told, "billing") == offset
    assert StreamOffset().as_json("billing") == {}
    assert StreamOffset.of({}, "billing") == StreamOffset()


def test_a_checkpoint_of_another_group_is_refused():
    with pytest.raises(ConfigError, match="of the group 'billing', and the stream is to read what 'orders' has left"):
        StreamOffset.of(taken((0, 10)).as_json("billing"), "orders")


def test_a_batch_is_what_the_end_has_and_the_start_has_not():
    end = taken((0, 30), (40, 50))
    assert end.without(taken((0, 10), (40, 50)))[TP].ranges == ((10, 30),)
    assert end.without(end) == {}
    assert end.without(taken((0, 50), id="b"))[TP].ranges == ((0, 30), (40, 50))


def test_a_batch_without_news_is_made_once_so_that_the_last_one_is_marked():
    last = taken((0, 10)).marked()
    again = next_offset(last, taken((0, 10)), {})
    assert (again.taken, again.mark != last.mark) == (last.taken, True)
    assert next_offset(again, StreamOffset(), last.taken) == again
    assert next_offset(again, taken((0, 10)), last.taken) == again  # the second commit log had no room for all of it
    assert next_offset(again, taken((0, 10)), {}) != again  # the commit was refused


class Spark:
    """A group's ranges, and a query that keeps its checkpoint through crashes, as MicroBatchExecution of 4.0.5 does."""

    def __init__(self):
        self.id, self.pending, self.done = 0, set(), set()
        self.read, self.completed = {}, {}  # by id
        self.log, self.committed_count = [], 0
        self.restart()

    def restart(self):
        self.last = self.offset(-1) if self.log else None
        self.settled = {}

    def offset(self, at):
        return StreamOffset.of(self.log[at], "billing") if len(self.log) >= abs(at) else StreamOffset()

    def recover(self):
        """The service has a new token: what is done under the former one does not count."""
        self.id, self.pending, self.done = self.id + 1, self.pending - self.done, set()

    def trigger(self, ends_at="", refuses=False):
        if self.committed_count == len(self.log):
            ranges = tuple(Range(each, each + 1) for each in sorted(self.pending - self.done))
            pending = StreamOffset("", {TP: Taken(str(self.id), ranges, TOPIC_ID)} if ranges else {})
            text = next_offset(self.last, pending, self.settled).as_json("billing")
            if self.log and text == self.log[-1]:
                return
            self.log.append(text)
            if ends_at == "planned":
                self.restart()
                return
            if len(self.log) > 1:
                self.mark(self.offset(-2), refuses)
        self.last, start = self.offset(-1), self.offset(-2)
        for each in self.last.without(start).values():
            offsets = {offset for start, end in each.ranges for offset in range(start, end)}
            self.read.setdefault(each.id, set()).update(offsets)
            if ends_at != "read":
                self.completed.setdefault(each.id, set()).update(offsets)
        self.committed_count += ends_at != "read"
        if ends_at:
            self.restart()

    def mark(self, offset, refuses):
        for each in offset.taken.values():
            offsets = {offset for start, end in each.ranges for offset in range(start, end)}
            assert offsets <= self.completed[each.id]
            if each.id == str(self.id) and not refuses:
                self.done |= offsets
        self.settled = {} if refuses else offset.taken


STEPS = st.one_of(
    st.tuples(st.just("crash of the service"), st.sets(st.integers(0, 20), min_size=1)),
    st.just(("recover",)),
    st.tuples(st.just("trigger"), st.sampled_from(["", "planned", "read", "completed"]), st.booleans()),
)


@given(st.lists(STEPS, max_size=30))
def test_whatever_ends_each_offset_is_read_and_then_marked(steps):
    spark = Spark()
    for kind, *more in steps:
        if kind == "crash of the service":
            spark.pending |= more[0]
        elif kind == "recover":
            spark.recover()
        else:
            spark.trigger(*more)
    for _ in range(4):
        spark.trigger()
    assert spark.pending <= spark.done
    count = len(spark.log)
    spark.trigger()
    assert len(spark.log) == count  # and it rests
