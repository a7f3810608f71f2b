"""What members tell each other, in bytes that Java writes too."""

from __future__ import annotations

import pytest
from aiokafka.structs import TopicPartition

from aiogroup._core.membership.classic.requests import (
    read_subscription,
    write_assignment,
    write_subscription,
)
from aiogroup._core.protocol.consumer_protocol import read_assignment
from aiogroup.assignors import Held, MemberSubscription
from aiogroup.errors import ProtocolError


def test_a_subscription_carries_what_is_owned_since_when_and_where():
    owned = Held((TopicPartition("u", 3), TopicPartition("t", 10), TopicPartition("t", 2)), 7)
    blob = write_subscription(["u", "t"], b"data", "rack-1", owned)
    # ConsumerProtocol.serializeSubscription: version 3; topics and partitions sorted.
    assert blob == bytes.fromhex(
        "0003"
        "00000002" "000174" "000175"
        "00000004" "64617461"
        "00000002" "000174" "00000002" "00000002" "0000000a" "000175" "00000001" "00000003"
        "00000007"
        "0006" "7261636b2d31"
    )  # fmt: skip
    assert read_subscription(blob, "name") == MemberSubscription(
        ("t", "u"),
        b"data",
        (TopicPartition("t", 2), TopicPartition("t", 10), TopicPartition("u", 3)),
        7,
        "rack-1",
        "name",
    )


def test_a_member_that_owns_nothing_says_so():
    assert read_subscription(write_subscription(["t"], None, None), None) == MemberSubscription(("t",))


def test_an_empty_rack_is_none():
    blob = write_subscription(["t"], None, "")
    assert blob == write_subscription(["t"], None, None)
    assert read_subscription(blob[:-2] + b"\x00\x00", None).rack is None


def test_an_assignment_keeps_its_order():
    tps = (TopicPartition("u", 1), TopicPartition("t", 4), TopicPartition("t", 0))
    assert read_assignment(write_assignment(tps)) == tps


@pytest.mark.parametrize("tp", [TopicPartition("", 0), TopicPartition("orders", -1)])
def test_an_assignment_of_what_cannot_exist_is_none(tp):
    with pytest.raises(ProtocolError, match="cannot exist"):
        read_assignment(write_assignment([TopicPartition("orders", 0), tp]))
