"""What a consumer is given is checked at the call, before it needs a broker, and the error says what to give."""

from __future__ import annotations

import pytest

from aiogroup import ConfigError, Consumer, RebalanceListener, TopicPartition
from aiogroup.listener import call_listener

TP = TopicPartition("orders", 0)


class Observer:
    def on_event(self, event):
        pass


class Listener:
    def on_partitions_assigned(self, assigned):
        pass


@pytest.mark.parametrize("observers", [3, None, [3], [Observer(), "loud"], [Observer], ["on_event"]])
def test_an_observer_that_is_none(observers):
    with pytest.raises(ConfigError, match=r"observers.*on_event"):
        Consumer("orders", observers=observers)


def test_observers_may_come_from_anything_that_can_be_gone_through_once():
    Consumer("orders", observers=iter([Observer()]))


@pytest.mark.parametrize("topics", [(), ("orders",)])
@pytest.mark.parametrize("listener", [object(), 3, Listener])
def test_a_listener_that_is_none(topics, listener):
    with pytest.raises(TypeError, match="listener"):
        Consumer(*topics, listener=listener)
    with pytest.raises(TypeError, match="listener"):
        Consumer().subscribe(["orders"], listener=listener)


@pytest.mark.parametrize("call", ["end_offsets", "beginning_offsets"])
@pytest.mark.parametrize("given", ["abc", TP, 3, None, ["abc"], [("orders", 0)], [TP, 3]])
async def test_partitions_that_are_none(call, given):
    with pytest.raises(TypeError, match=rf"{call}: .*TopicPartition\(topic, number\)"):
        await getattr(Consumer(), call)(given)


@pytest.mark.parametrize("given", ["abc", TP, 3, None, ["abc"]])
def test_self_assigned_partitions_that_are_none(given):
    with pytest.raises(TypeError, match=r"assign: .*TopicPartition\(topic, number\)"):
        Consumer().assign(given)


@pytest.mark.parametrize("number", [-1, "0", 1.5, True, None])
async def test_a_partition_whose_number_is_none(number):
    tp = TopicPartition("orders", number)
    with pytest.raises(ValueError, match="a partition is a number"):
        Consumer().assign([tp])
    with pytest.raises(ValueError, match="a partition is a number"):
        await Consumer().end_offsets([tp])
    with pytest.raises(ValueError, match="a partition is a number"):
        await Consumer().committed(tp)


@pytest.mark.parametrize("given", ["a", None, ("orders", 0), [TP]])
async def test_a_committed_partition_that_is_none(given):
    with pytest.raises(TypeError, match=r"committed: .*TopicPartition\(topic, number\)"):
        await Consumer().committed(given)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ([TP], TypeError, "mapping of TopicPartition to timestamp"),
        (TP, TypeError, "mapping of TopicPartition to timestamp"),
        ({"orders": 1}, TypeError, "TopicPartition"),
        ({TP: "1"}, TypeError, "whole milliseconds"),
        ({TP: None}, TypeError, "whole milliseconds"),
        ({TP: 1.5}, TypeError, "whole milliseconds"),
        ({TP: -1}, ValueError, "must lie between 0 and"),
    ],
)
async def test_timestamps_that_are_none(given, error, says):
    with pytest.raises(error, match=f"offsets_for_times: .*{says}"):
        await Consumer().offsets_for_times(given)


@pytest.mark.parametrize("timeout", ["5", True, [5]])
@pytest.mark.parametrize("call", ["getmany", "poll", "stop"])
async def test_a_time_out_that_is_none(call, timeout):
    with pytest.raises(TypeError, match=f"{call}: timeout_ms is a number of milliseconds, not"):
        await getattr(Consumer("orders"), call)(timeout_ms=timeout)


async def test_getmany_has_no_time_out_without_end_as_poll_has():
    with pytest.raises(TypeError, match="getmany: timeout_ms is a number of milliseconds, not None"):
        await Consumer("orders").getmany(timeout_ms=None)


async def test_a_listener_that_says_nothing_of_lost_partitions_hears_of_them_as_revoked():
    heard = []

    class Derived(RebalanceListener):
        async def on_partitions_revoked(self, revoked):
            heard.append(revoked)

    class Alone:
        def on_partitions_revoked(self, revoked):
            heard.append(revoked)

    for listener in (Derived(), Alone()):
        await call_listener(listener, "on_partitions_lost", frozenset({TP}))
        await call_listener(listener, "on_partitions_assigned", frozenset({TP}))
    assert heard == [{TP}, {TP}]
