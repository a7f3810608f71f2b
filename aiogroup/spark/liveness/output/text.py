"""The advice as text for a terminal, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from aiogroup._command.printable import clean, document
from aiogroup.spark.liveness.advice import Findings, Proposal
from aiogroup.spark.liveness.job import Advice, Damaged

__all__ = ["as_json", "as_text", "effect_of", "interval", "missing", "proposed_of", "wrong"]

SHOWN_COUNT: Final = 20
"""How many damaged files are named on a terminal."""


def as_text(advice: Advice) -> str:
    """The damaged part of the log, then a table for each group."""
    lines = [*_of_damaged(advice)]
    lines += [line for found in advice.findings for line in _of_group(found)]
    if not advice.findings:
        lines.append("no event of a group is in this window")
    return "\n".join(map(clean, lines))  # a group's name is data


def as_json(advice: Advice) -> str:
    groups = {
        found.story.group: {
            "since_ms": found.story.started_at_ms,
            "until_ms": found.story.ended_at_ms,
            "rebalances": dict(sorted(_causes(found).items())),
            "clocks": [each._asdict() for each in found.story.skews],
            "advice": [each._asdict() for each in found.proposals],
        }
        for found in advice.findings
    }
    damaged = [each._asdict() for each in advice.damaged]
    return document("liveness", groups=groups, corrupt_count=advice.corrupt_count, damaged=damaged)


def _of_damaged(advice: Advice) -> Iterator[str]:
    if not (advice.corrupt_count or advice.damaged):
        return
    yield missing(advice)
    for each in advice.damaged[:SHOWN_COUNT]:
        yield f"  {each.file}: {wrong(each)}"
    if (more := len(advice.damaged) - SHOWN_COUNT) > 0:
        yield f"  and {more:,} files more, which -o json names"
    yield ""


def missing(advice: Advice) -> str:
    """How much of the log is not in the advice."""
    told = []
    if count := len(advice.damaged):
        told.append(f"{count:,} damaged {'file' if count == 1 else 'files'}")
    if advice.corrupt_count:
        told.append(_lines(advice.corrupt_count))
    return f"what is not in this advice: {', '.join(told)}"


def wrong(damaged: Damaged) -> str:
    """What is wrong with a file."""
    return "; ".join(filter(None, (damaged.why, _lines(damaged.corrupt_count) if damaged.corrupt_count else "")))


def _lines(count: int) -> str:
    return "1 line that is no event" if count == 1 else f"{count:,} lines that are no events"


def _causes(found: Findings) -> Counter[str]:
    return Counter(each.cause for each in found.story.rebalances)


def _of_group(found: Findings) -> Iterator[str]:
    story = found.story
    told = ", ".join(f"{count} {cause}" for cause, count in _causes(found).most_common())
    yield f"{story.group}: {len(story.rebalances)} rebalances in {story.span_ms / 3_600_000:.1f} h ({told or 'none'})"
    for skew in story.skews:
        if skew.ahead_ms:
            yield f"  the clock of {skew.host} is {skew.ahead_ms} ms ahead, within {skew.spread_ms} ms"
    width = max(len(each.setting) for each in found.proposals)
    for each in found.proposals:
        value = f"{each.current} -> {proposed_of(each)}" if each.verdict == "change" else str(each.current)
        yield f"  {each.setting:<{width}}  {each.verdict:<10}  {value:<18}  {each.why}{effect_of(each)}"
    yield ""


def proposed_of(proposal: Proposal) -> str:
    """The proposed value."""
    return "a name each" if proposal.proposed is None else str(proposal.proposed)


def effect_of(proposal: Proposal) -> str:
    """What the proposal would have changed in the window."""
    if proposal.verdict != "change":
        return ""
    told = f"; {interval(proposal.gained_least, proposal.gained_most)} rebalances fewer" if proposal.gained_most else ""
    if proposal.sooner_ms:
        how = "sooner" if proposal.sooner_ms > 0 else "later"
        told += f", failures and waits end {abs(proposal.sooner_ms) / 1000:.0f} s {how} in all"
    return f"{told}, from {proposal.observations_count:,} observations"


def interval(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
