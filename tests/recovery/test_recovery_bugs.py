"""One-line bugs that the random sequences must find: what they do not find they do not look for."""

from __future__ import annotations

import pytest

from tests.recovery.test_nothing_is_skipped import ATTEMPTS, play, random_ops
from tests.simulation.planted_bugs import Bug
from tests.simulation.replanted import replanted

OFFSETS = "aiogroup/_core/recovery/lane_offsets.py"
RECOVERY = "aiogroup/_core/recovery/lane_starts.py"
BOOK = "aiogroup/_core/recovery/book.py"
TOKEN = "aiogroup/_core/recovery/token.py"
RANGES = "aiogroup/_core/recovery/ranges.py"

BUGS = (
    Bug(
        "the low-water mark is the last range's",
        f"{OFFSETS}:PartitionOffsets.low_water",
        "return pending[0].start if",
        "return pending[-1].start if",
    ),
    Bug(
        "delivered is done", f"{OFFSETS}:LaneOffsets.is_done", "self.processed >= self.end", "self.position >= self.end"
    ),
    Bug(
        "a commit covers what was not delivered",
        f"{OFFSETS}:LaneOffsets.takes",
        "not self.start < offset <= min(self.position, self.end)",
        "not self.start < offset <= self.end",
    ),
    Bug(
        "a seek back to before the live lane is forgotten",
        f"{OFFSETS}:PartitionOffsets.seek",
        "union(pending, (Range(offset, live.start),))",
        "pending",
    ),
    Bug(
        "the live lane goes into a range",
        f"{OFFSETS}:PartitionOffsets.seek",
        "if offset >= live.start: if lane",
        "if True:\n    if lane",
    ),
    Bug(
        "a seek back keeps the id",
        f"{OFFSETS}:PartitionOffsets.seek",
        "CATCH_UP, is_new_id=True",
        "CATCH_UP",
    ),
    Bug(
        "a truncation keeps the ranges",
        f"{OFFSETS}:PartitionOffsets.truncate",
        "below(self.pending, offset), LIVE",
        "self.pending, LIVE",
    ),
    Bug(
        "the ranges of a token are forgotten", f"{RECOVERY}:recover", "token.pending if token is not None else ()", "()"
    ),
    Bug(
        "a backlog is passed over",
        f"{RECOVERY}:recover",
        "pending=pending if added is None else union(pending, (added,))",
        "pending=pending",
    ),
    Bug(
        "a small backlog is passed over",
        f"{RECOVERY}:recover",
        "(base, base_epoch) if added is None",
        "(log.end, log.end_epoch) if added is None",
    ),
    Bug(
        "a truncation is not believed",
        f"{RECOVERY}:recover",
        "if cut is not None:\n        pending",
        "if False:\n        pending",
    ),
    Bug(
        "the epoch after a truncation is not known", f"{RECOVERY}:recover", "cut, log.truncated_epoch", "cut, NO_EPOCH"
    ),
    Bug(
        "the epoch of the end is not known",
        f"{RECOVERY}:recover",
        "else (log.end, log.end_epoch)",
        "else (log.end, NO_EPOCH)",
    ),
    Bug(
        "an id outlives a truncation",
        f"{RECOVERY}:recover",
        "id=fresh_id if token is None or cut is not None else token.id",
        "id=fresh_id if token is None else token.id",
    ),
    Bug("what retention removed is not reported", f"{RECOVERY}:recover", "gone=gone", "gone=()"),
    Bug(
        "a job's result counts under another id",
        f"{RECOVERY}:fold",
        "done is None or done.id != token_id",
        "done is None",
    ),
    Bug(
        "a job's result says that what is in hand is done",
        f"{BOOK}:Book._without",
        "self._reported[at] = reported",
        "self._reported[at] = at",
    ),
    Bug(
        "a job's result counts for what it has not done",
        f"{BOOK}:Book._without",
        "made = self._make_all(above(left, at))",
        "made = self._make_all(above(left, at)[1:])",
    ),
    Bug(
        "closing a gap loses the range behind it",
        f"{RANGES}:close_smallest_gap",
        "Range(ranges[index].start, ranges[index + 1].end)",
        "ranges[index]",
    ),
    Bug(
        "a token counts with any offset and checksum",
        f"{TOKEN}:read_token",
        'if match["checksum"] != _checksum(body, log_id, offset):',
        "if False:",
        seeds=(2_132,),
    ),
    Bug(
        "done ranges are widened",
        f"{TOKEN}:write_done",
        "ranges = join(done.done)",
        "ranges = (Range(done.done[0].start, done.done[-1].end),)",
    ),
    Bug(
        "where the live lane is committed is its position",
        f"{BOOK}:Book._offsets",
        "processed(live, self._reported_live), live.position",
        "live.position, live.position",
    ),
    Bug(
        "a range is done as soon as it is read",
        f"{BOOK}:Book.offsets",
        "max(ledger.committable, reported)",
        "max(ledger.position, reported)",
    ),
    Bug(
        "what a seek cut off of a range is left to be named by itself",
        f"{OFFSETS}:PartitionOffsets.commit",
        "before = tuple(lower.all_done() for lower in self.ranges[:index])",
        "before = self.ranges[:index]",
    ),
    Bug(
        "offsets without a record are to be named, too",
        f"{BOOK}:Book._pass",
        "each if each.end is None or each.processed < ledgers[each.end].delivered else",
        "each if True else",
    ),
    Bug(
        "where all was named that was delivered, the whole range is done",
        f"{BOOK}:Book._pass",
        "else each.done_up_to(each.position)",
        "else each.done_up_to(each.end)",
    ),
    Bug(
        "a late answer covers what a seek took back",
        f"{BOOK}:Book.note_durable",
        "if commit.seeks_count != self.seeks_count:",
        "if False:",
    ),
)

SEEDS, STEPS_COUNT = 6_000, 50


@pytest.mark.simulation
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug):
    with replanted(bug):
        found = next((name for name, ops in ATTEMPTS.items() if play(ops)), None)
        if found is None:
            found = next((seed for seed in (*bug.seeds, *range(SEEDS)) if play(random_ops(seed, STEPS_COUNT))), None)
    assert found is not None
    assert not play(random_ops(found, STEPS_COUNT) if isinstance(found, int) else ATTEMPTS[found])


def test_the_places_of_the_planted_bugs_are_there():
    for bug in BUGS:
        assert bug.applied()
