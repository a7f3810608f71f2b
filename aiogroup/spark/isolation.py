"""Finds the records that make `process` fail, so that all others are processed and committed. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiogroup._core.recovery.ranges import Ranges
from aiogroup.spark.slices import Slice
from aiogroup.structs import TopicPartition

__all__ = ["Failed", "isolate"]

FAILURES_IN_A_ROW: Final = 16
"""After so many failures the records are not the cause: the sink may be down. The round itself counts as the first."""
SUSPICIOUS_FAILURES: Final = 12
"""After this number of failures single records are tried, from different places. If one succeeds, the records are the
cause.
"""
GOLDEN: Final = 0.6180339887498949
"""Multiples of it, less their whole part, lie apart from each other and from halves and quarters."""
MOST_ATTEMPTS: Final = 256
"""The limit of attempts, besides the round itself and one for each partition: the search ends, however many bad records
there are.
"""


@dataclass(frozen=True, slots=True)
class Failed:
    """Offsets of one partition that are still pending, as `process` raised `error` when it was given them.

    A single record where it could be isolated; a longer range where the attempts ended before that.
    """

    tp: TopicPartition
    ranges: Ranges
    error: Exception


def isolate(
    slices: Mapping[TopicPartition, Slice],
    error: Exception,
    work: Callable[[Mapping[TopicPartition, Slice]], bool | Exception],
) -> tuple[Failed, ...]:
    """Repeat a round that ended in `error` partition by partition, and halve each slice that fails again.

    `work` processes and commits slices. It returns whether they are durable, or the error that it met. If they are not
    durable, nothing more of this round can be committed, and the other slices stay pending without counting as failed.
    An exception that `work` raises is not a failure of the records, and ends the search.

    Returns:
        The offsets that failed.

    Raises:
        Exception: `error`, if no attempt succeeded, so that the records are not the cause.
    """
    failed: list[Failed] = []
    waiting = deque((part, error) for part in slices.values())
    attempts_left, failures, has_worked = len(waiting) + MOST_ATTEMPTS, 1, False
    if len(slices) == 1:  # it has just been tried alone
        waiting.extend(_halves(*waiting.popleft(), failed))
    while waiting and attempts_left and failures < FAILURES_IN_A_ROW:
        part, why = waiting.popleft()
        if failures >= SUSPICIOUS_FAILURES and len(part) > 1:
            part, rests = _one_of(part, attempts_left)
            waiting.extend((rest, why) for rest in rests)
        attempts_left -= 1
        outcome = work({part.tp: part})
        if isinstance(outcome, Exception):
            failures += 1
            waiting.extend(_halves(part, outcome, failed))
            continue
        failures, has_worked = 0, True
        if not outcome:
            return tuple(failed)
    if waiting and not has_worked:
        raise error
    return (*failed, *(Failed(part.tp, part.ranges, why) for part, why in waiting))


def _one_of(part: Slice, number: int) -> tuple[Slice, list[Slice]]:
    """One record of the part, and the parts before and behind it. The number says where it lies: in another place each
    time, which is not where halves begin, since bad records often come at equal distances.
    """
    at = int(len(part) * (number * GOLDEN % 1))
    rests = []
    if at:
        before, part = part.divided(at)
        rests.append(before)
    one, after = part.divided(1)
    return one, [*rests, *([after] if len(after) else [])]


def _halves(part: Slice, why: Exception, failed: list[Failed]) -> list[tuple[Slice, Exception]]:
    """The slices to try after `part` has failed. If it had a single record, it is added to `failed` instead."""
    if len(part) > 1:
        return [(half, why) for half in part.divided(len(part) // 2)]
    failed.append(Failed(part.tp, part.ranges, why))
    return []
