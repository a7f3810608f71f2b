"""What the brute force is worth: each bug, one line of the merge changed, must be found, and none without it."""

from __future__ import annotations

import types

import pytest

from tests.support.merge_scripts import differences, random_script
from tests.support.sources import ROOT

MERGE, MERGING = "merge", "merging"
CLEAN_SEEDS, SEEDS = 60, 2_000

BUGS = {
    "a partition that is behind is not waited for": (
        MERGE, "if sight.lag:", "if sight.lag is None and sight.lag:",
    ),
    "an unknown lag counts as 0": (MERGE, "elif sight.lag == 0:", "elif not sight.lag:"),
    "the deadline moves with every look": (
        MERGE, "if deadline_at_ms is None:\n                deadline", "if True:\n                deadline",
    ),
    "a deadline begins a millisecond late": (
        MERGE, "now_ms + max(0, self.max_idle_ms)", "now_ms + max(0, self.max_idle_ms) + 1",
    ),
    "given up only after the deadline": (MERGE, "if now_ms < deadline_at_ms else", "if now_ms <= deadline_at_ms else"),
    "a deadline outlives records": (
        MERGE,
        "self._missing = {tp: self._see(former.get(tp), sight, now_ms) for tp, sight in sights.items()}",
        "self._missing = former | {tp: self._see(former.get(tp), sight, now_ms) for tp, sight in sights.items()}",
    ),
    "only the first that blocks is looked at": (
        MERGE,
        "for tp, sight in sights.items()}\n        return",
        "for tp, sight in list(sights.items())[:1]}\n        return",
    ),
    "one that is given up is enough": (
        MERGE,
        "has_record and not self.waiting_for",
        "has_record and (len(self.waiting_for) < len(self._missing) or not self._missing)",
    ),
    "never waiting waits": (
        MERGE,
        "if self.max_idle_ms == NEVER_WAIT:\n            return {}",
        "if self.max_idle_ms < NEVER_WAIT:\n            return {}",
    ),
    "a partition that is back has its old deadline": (
        MERGE, "former.ownership != sight.ownership", "former.ownership > sight.ownership",
    ),
    "stream time goes back": (MERGE, "if highest > self.max_time:", "if True:"),
    "the same time is late": (MERGE, "if at < highest:", "if at <= highest:"),
    "what is late moves stream time": (
        MERGE, "late.append((index, highest - at))", "late.append((index, highest - at)); highest = at",
    ),
    "lateness is of the last record only": (
        MERGE, "            else:\n                highest = at", "            highest = at",
    ),
    "enforced counts turns": (MERGE, "self.enforced_count += len(times)", "self.enforced_count += 1"),
    "enforced counts everything": (MERGE, "if is_enforced:", "if True:"),
    "ties go by arrival": (
        MERGING, "sorted(self._assignment, key=lambda each: each.tp)", "list(self._assignment)",
    ),
    "a new partition is not seen": (
        MERGING, "self._seen_changes_count != self._assignment.changes_count", "self._seen_changes_count < 0",
    ),
    "a paused partition is waited for": (
        MERGING, "elif not (partition.is_paused or Bar.LEAVING in partition.bars):", "else:",
    ),
    "a paused partition is read": (
        MERGING, "buffer.slice, partition.is_open", "buffer.slice, True",
    ),
    "lag is of what was fetched": (
        MERGING,
        "lag = partition.lag(read_committed=self._read_committed) if is_open else None",
        "lag = partition.log.end_offset and partition.log.end_offset - partition.target.offset",
    ),
    "what arrives is not looked at": (MERGING, "is_enforced=bool(sights)", "is_enforced=False"),
    "what lies behind what was laid out is handed out first": (
        MERGING, "place[2] -= former_index - slice_.index", "place[2] -= 0",
    ),
    "what was handed out once is counted twice": (
        MERGING, "first, upto = layout.settled_count,", "first, upto = 0,",
    ),
    "what is processed is in hand": (MERGING, "if layout.processed_count < upto:", "if True:"),
    "what is in hand is forgotten by a request": (
        MERGING, "layout is None or layout.settled_count > layout.processed_count", "layout is None",
    ),
    "a turn begins again": (
        MERGING, "layout.turn_at = layout.processed_count", "layout.turn_at = 0",
    ),
    "the hand holds the wrong partition": (
        MERGING, "in_hand = layout.sources[layout.order[upto - 1]][0]", "in_hand = layout.sources[layout.order[0]][0]",
    ),
    "no record is late": (MERGING, "layout.records[index].lateness_ms = lateness_ms", "pass"),
    "times stay when their records go": (
        MERGING, "if is_open and (slice_ is None or slice_.index >= len(slice_.keys)):",
        "if is_open and slice_ is None:",
    ),
}  # fmt: skip


def planted(name, old, new):
    """The two modules, the bug in one of them.

    Raises:
        LookupError: the text is not there, or not once: somebody changed the place, and the bug must be planted again.
    """
    modules = []
    for each in (MERGE, MERGING):
        text = (ROOT / f"aiogroup/_core/delivery/{each}.py").read_text()
        if each == name:
            if text.count(old) != 1:
                raise LookupError(f"{old!r} is {text.count(old)} times in {each}.py")
            text = text.replace(old, new)
        made = types.ModuleType(f"aiogroup._core.delivery.{each}")
        exec(compile(text, f"{each}.py", "exec", dont_inherit=True), made.__dict__)
        modules.append(made)
    return tuple(modules)


def found_by(modules):
    """The first seed at which the merge and the brute force part, or the merge breaks."""
    for seed in range(SEEDS):
        try:
            told = differences(*random_script(seed), modules=modules)
        except Exception as error:  # noqa: BLE001 (whatever the bug breaks)
            told = repr(error)
        if told is not None:
            return seed
    return None


def test_without_a_bug_nothing_is_found():
    for seed in range(CLEAN_SEEDS):
        assert differences(*random_script(seed)) is None, seed


@pytest.mark.simulation
@pytest.mark.parametrize(("name", "old", "new"), BUGS.values(), ids=BUGS)
def test_bug_is_found(name, old, new):
    seed = found_by(planted(name, old, new))
    assert seed is not None
    assert differences(*random_script(seed)) is None


def test_a_bug_that_can_no_longer_be_planted_is_reported():
    with pytest.raises(LookupError):
        planted(MERGE, "nothing of this kind", "")
