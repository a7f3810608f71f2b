"""A fatal error is raised by every call: what it holds must not grow with them."""

from __future__ import annotations

import traceback

import pytest

from aiogroup._core.telemetry import events
from aiogroup._runtime.inbox import ERRORS_LIMIT, Inbox
from aiogroup.errors import ConnectionLostError


def failed_in_a_task(error):
    try:
        raise error
    except type(error) as raised:
        return raised


@pytest.mark.parametrize("error", [ValueError("an observer's"), ConnectionLostError("ours")])
def test_a_fatal_error_does_not_grow_with_the_calls_that_raise_it(error):
    inbox = Inbox(lambda: None, print)
    inbox.fail(failed_in_a_task(error))
    lengths = set()
    for _ in range(5):
        with pytest.raises(type(error)) as raised:
            inbox.raise_fatal()
        lengths.add(len(traceback.extract_tb(raised.value.__traceback__)))
    assert len(lengths) == 1


def test_the_place_where_another_error_was_raised_is_kept():
    inbox = Inbox(lambda: None, print)
    inbox.fail(failed_in_a_task(ValueError("an observer's")))
    with pytest.raises(ValueError, match="an observer's") as raised:
        inbox.raise_fatal()
    assert "failed_in_a_task" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


def test_an_error_that_no_call_will_raise_any_more_is_reported():
    told = []
    inbox = Inbox(lambda: None, told.append)
    for number in range(ERRORS_LIMIT):
        inbox.put(ValueError(number))
    assert told == []
    inbox.put(ValueError("one more"))
    assert told == [events.ErrorDropped("ValueError(0)")]
    assert [error.args[0] for error in inbox.take_rest()] == [*range(1, ERRORS_LIMIT), "one more"]


def test_an_error_of_ours_that_waits_already_is_not_raised_twice():
    """It comes again and again while the application makes no call; one of its own code may mean another thing."""
    inbox = Inbox(lambda: None, print)
    for error in (ConnectionLostError("a"), ConnectionLostError("a"), ConnectionLostError("b"), ValueError("a")):
        inbox.put(error)
    inbox.put(ValueError("a"))
    assert [str(error) for error in inbox.take_rest()] == ["a", "b", "a", "a"]
    inbox.put(ConnectionLostError("a"))
    assert len(inbox.take_rest()) == 1
