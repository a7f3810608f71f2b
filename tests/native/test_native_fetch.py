"""Makers of structures and the usual request, compiled and in Python: what both refuse, and what neither keeps."""

from __future__ import annotations

import sys
import weakref
from uuid import UUID

import pytest

from aiogroup._core import native
from aiogroup._core.native import fetch
from aiogroup._core.protocol.compiler import maker
from aiogroup._core.protocol.constants import NO_HIGH_WATERMARK, NO_REPLICA
from aiogroup._core.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from aiogroup._core.values import dataclass

ZERO = UUID(int=0)
TOPIC_ID = UUID(int=5)
MAKERS = maker(FetchRequest), maker(FetchTopic), maker(FetchPartition)

both = pytest.mark.parametrize("kind", [native, fetch], ids=["as it is used", "in Python"])


@dataclass(frozen=True, slots=True)
class Pair:
    one: object
    two: object


class Open:
    """Weak references to it are possible."""


def written(kind, message, *, client=b"me", version=17, correlation_id=1, makers=MAKERS):
    return kind.write_fetch(message, version, correlation_id, client, b"end", *makers, NO_REPLICA, ZERO)


def request(**changed):
    partition = FetchPartition(3, 4, 5, partition_max_bytes=6)
    asked = {"max_wait_ms": 500, "min_bytes": 1, "topics": (FetchTopic("t", TOPIC_ID, (partition,)),)} | changed
    return FetchRequest(**asked)


@both
def test_a_maker_makes_what_the_class_makes(kind):
    made = kind.Maker(Pair, ("one", "two"))(1, "2")
    assert (type(made), made, hash(made)) == (Pair, Pair(1, "2"), hash(Pair(1, "2")))
    assert kind.Maker(Pair, ("two", "one"))(1, 2) == Pair(2, 1)


@both
def test_a_maker_refuses_what_has_no_such_slots(kind):
    for structure, names in ((Pair, ("one", "three")), (Open, ("__doc__",)), (str, ("upper",))):
        with pytest.raises((TypeError, AttributeError)):
            kind.Maker(structure, names)


@both
@pytest.mark.parametrize("values", [(), (1,), (1, 2, 3)])
def test_a_maker_refuses_too_few_values_and_too_many(kind, values):
    with pytest.raises(TypeError):
        kind.Maker(Pair, ("one", "two"))(*values)
    with pytest.raises(TypeError):
        kind.Maker(Pair, ("one", "two"))(1, two=2)


@both
def test_what_a_maker_made_lets_go_of_its_values(kind):
    value = Open()
    gone = weakref.ref(value)
    made = kind.Maker(Pair, ("one", "two"))(value, value)
    del value
    assert gone() is made.one
    del made
    assert gone() is None


@both
def test_nothing_of_a_request_is_kept(kind):
    message = request()
    counted = (message, message.topics, message.topics[0].partitions[0], NO_REPLICA, ZERO, TOPIC_ID, *MAKERS)
    before = [sys.getrefcount(each) for each in counted]
    assert {len(written(kind, message)) for _ in range(100)} == {89}
    assert written(kind, request(rack_id=0, session_id="1")) is None
    assert [sys.getrefcount(each) for each in counted] == before


@both
@pytest.mark.parametrize(
    "changed",
    [
        {"topics": None},
        {"topics": [FetchTopic("t", TOPIC_ID, ())] * 127},
        {"topics": (3,)},
        {"topics": (FetchTopic("t", TOPIC_ID, (3,)),)},
        {"topics": (FetchTopic("t", "no id", (FetchPartition(1, fetch_offset=2, partition_max_bytes=3),)),)},
        {"topics": (FetchTopic("t", ZERO, ()),)},
        {"topics": (FetchTopic("t", TOPIC_ID, (FetchPartition(2**31, fetch_offset=2, partition_max_bytes=3),)),)},
        {"topics": (FetchTopic("t", TOPIC_ID, (FetchPartition(1, fetch_offset=2**63, partition_max_bytes=3),)),)},
        {"max_wait_ms": 2**31},
        {"max_wait_ms": 1.5},
        {"isolation_level": 128},
        {"session_epoch": -(2**31) - 1},
        {"replica_id": 0},
        {"cluster_id": "c"},
        {"forgotten_topics_data": (1,)},
        {"replica_state": None},
    ],
    ids=str,
)
def test_what_is_unusual_is_left_to_the_general_encoder(kind, changed):
    assert written(kind, request(**changed)) is None


@both
def test_the_least_and_the_most_of_each_number_are_written(kind):
    told = [
        written(
            kind,
            request(
                max_wait_ms=end32, min_bytes=end32, max_bytes=end32, isolation_level=end8, session_id=end32,
                session_epoch=end32,
                topics=(FetchTopic("t", TOPIC_ID, (FetchPartition(end32, end32, end64, end32, end64, end32),)),),
            ),
        )
        for end8, end32, end64 in ((127, 2**31 - 1, NO_HIGH_WATERMARK), (-128, -(2**31), -(2**63)))
    ]  # fmt: skip
    most, least = (each[12:] for each in told)
    assert most[1:14].hex() == "7fffffff" * 3 + "7f"
    assert least[1:14].hex() == "80000000" * 3 + "80"
    assert most[40:73].hex() == "7fffffff" * 2 + "7fffffffffffffff" + "7fffffff" + "7fffffffffffffff" + "7fffffff00"
    assert least[40:73].hex() == "80000000" * 2 + "8000000000000000" + "80000000" + "8000000000000000" + "8000000000"


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
@pytest.mark.parametrize("makers", [MAKERS[::-1], (len, len, len), (maker(PartitionData),) * 3])
def test_makers_of_something_else_are_refused(makers):
    with pytest.raises(TypeError, match="write_fetch"):
        written(native, request(), makers=makers)
    with pytest.raises(TypeError, match="read_fetch"):
        native.read_fetch(b"", *makers)


@pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")
def test_a_structure_with_an_empty_slot_is_left_to_the_general_encoder():
    for structure in (FetchRequest, FetchTopic, FetchPartition):
        empty = object.__new__(structure)
        message = {
            FetchRequest: empty,
            FetchTopic: request(topics=(empty,)),
            FetchPartition: request(topics=(FetchTopic("t", TOPIC_ID, (empty,)),)),
        }[structure]
        assert written(native, message) is None


@both
def test_an_error_of_what_makes_the_answer_is_raised(kind):
    frame = bytes.fromhex("00000001 00 00000000 0000 00000001 02".replace(" ", "")) + TOPIC_ID.bytes + b"\1\0\0"

    def fails(*_):
        raise LookupError

    makes = [lambda *values: values] * 3 + [bytes.hex]
    assert kind.read_fetch(frame, *makes, (1, 2, 3)) == (1, (0, 0, 1, (("", TOPIC_ID.hex, ()),), ()))
    for place in (0, 1, 3):
        with pytest.raises(LookupError):
            kind.read_fetch(frame, *makes[:place], fails, *makes[place + 1 :], (1, 2, 3))
