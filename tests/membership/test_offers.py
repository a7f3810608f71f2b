"""What JoinGroup says of each assignor: what the member reads, held last, and keeps while it joins."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aiogroup._core.membership.classic.requests import Offers, read_subscription
from aiogroup.assignors import Held
from aiogroup.structs import TopicPartition

ORDERS = frozenset({"orders"})
GIVEN = tuple(TopicPartition("orders", number) for number in range(2))
KEPT = frozenset(GIVEN[:1])


class Asked:
    """An assignor that keeps what it is asked with."""

    def __init__(self, name):
        self.name = name
        self.held = None

    def subscription_user_data(self, topics, held):
        self.held = held
        return b"data"


@pytest.fixture
def assignors():
    return [Asked("first"), Asked("second")]


def offered(assignors, claim, held=Held()):  # noqa: B008 (frozen)
    offers = Offers(assignors, "rack", SimpleNamespace(names=KEPT))
    offers.last_held = held
    return {name: read_subscription(blob, None) for name, blob in offers.of(ORDERS, claim)}


def test_every_assignor_is_offered_in_order_of_preference(assignors):
    read = offered(assignors, -1)
    assert list(read) == ["first", "second"]
    assert {(each.topics, each.user_data, each.rack) for each in read.values()} == {(("orders",), b"data", "rack")}


def test_what_was_held_last_is_for_the_assignor_alone_unless_it_is_kept(assignors):
    last = Held(GIVEN, 4)
    read = offered(assignors, -1, last)["first"]
    assert (tuple(read.owned), read.generation) == ((), 4)
    assert assignors[0].held == last


def test_what_is_kept_is_claimed_under_the_generation_of_the_claim(assignors):
    read = offered(assignors, 5, Held(GIVEN, 4))["second"]
    assert (frozenset(read.owned), read.generation) == (KEPT, 5)
    assert assignors[1].held == Held(tuple(KEPT), 5)
