"""Ctrl-C and SIGTERM while something runs that must not be left half done."""

from __future__ import annotations

import signal

import pytest

from aiogroup.spark.interrupts import putting_off_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_handled_at_the_end_and_a_second_one_at_once(number):
    heard = []
    before = signal.signal(number, lambda *call: heard.append(call[0]))
    try:
        with putting_off_interrupts():
            signal.raise_signal(number)
            assert not heard
            signal.raise_signal(number)
            assert heard == [number]
        assert heard == [number] * 2
        signal.raise_signal(number)
        assert heard == [number] * 3
    finally:
        signal.signal(number, before)


def test_ctrl_c_is_raised_behind_the_block():
    reached = []

    def interrupted():
        with putting_off_interrupts():
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached
