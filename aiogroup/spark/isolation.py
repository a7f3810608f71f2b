"""Finds what makes `process` fail, so that everything else is processed and committed. Pure."""

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
"""Then it is not the records: the sink may be down. The round itself is the first."""
SUSPICIOUS_FAILURES: Final = 12
"""Then single records are tried, from different places: one that succeeds shows that it is the records."""
MOST_ATTEMPTS: Final = 256
"""Besides the round, and one for each partition: it ends, however many bad records there are."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Offsets of one partition that are still pending, as `process` raised `error` when it was given them.

    A single record if it could be found; more where records fail one beside the other.
    """

    tp: TopicPartition
    ranges: Ranges
    error: Exception


def isolate(
    slices: Mapping[TopicPartition, Slice],
    error: Exception,
    work: Callable[[Mapping[TopicPartition, Slice]], bool | Exception],
) -> tuple[Failed, ...]:
    """Repeat a round that ended in `error`: partition by partition, and what fails in halves.

    `work` processes and commits what it is given, and returns whether that is durable, or why it failed. If it is not
    durable, nothing more of this round can be committed, and the rest stays pending without being failed. What `work`
    raises is no failure of the records, and ends it.

    Returns:
        What has failed.

    Raises:
        Exception: `error`, if there was nothing but failures, so that it is not the records.
    """
    failed: list[Failed] = []
    waiting = deque((part, error) for part in slices.values())
    attempts_left, failures, has_worked = len(waiting) + MOST_ATTEMPTS, 1, False
    if len(slices) == 1:  # it has just been tried alone
        waiting.extend(_halves(*waiting.popleft(), failed))
    while waiting and attempts_left and failures < FAILURES_IN_A_ROW:
        part, why = waiting.popleft()
        if failures >= SUSPICIOUS_FAILURES and len(part) > 1:
            part, rest = part.divided(1)
            waiting.append((rest, why))
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


def _halves(part: Slice, why: Exception, failed: list[Failed]) -> list[tuple[Slice, Exception]]:
    """What to try after `part` has failed: nothing if it had one record, which then stands in `failed`."""
    if len(part) > 1:
        return [(half, why) for half in part.divided(len(part) // 2)]
    failed.append(Failed(part.tp, part.ranges, why))
    return []
