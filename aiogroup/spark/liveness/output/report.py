"""The report: one page of HTML without any script, and without anything from elsewhere. Everything is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import Final

from aiogroup.spark.liveness.advice import Findings, Proposal
from aiogroup.spark.liveness.counterfactuals import Counterfactual
from aiogroup.spark.liveness.episodes import Rebalance
from aiogroup.spark.liveness.job import Advice
from aiogroup.spark.liveness.output.text import effect_of, interval, missing, proposed_of, wrong

__all__ = ["page"]

COLORS: Final = {
    "poll_interval_exceeded": "#c0392b",
    "process_paused": "#b9770e",
    "loop_blocked": "#d35400",
    "session_expired": "#e67e22",
    "crashed": "#8e44ad",
    "failed": "#6c3483",
    "left": "#2980b9",
    "rejoined": "#16a085",
    "returned": "#1abc9c",
    "joined": "#27ae60",
    "asked": "#7f8c8d",
    "unknown": "#bdc3c7",
}
SHOWN_COUNT: Final = 500
"""How many rebalances of a group the timeline shows, the last ones: a browser cannot show more at once."""
WIDTH: Final = 900
HEIGHT: Final = 150
CURVE: Final = 300
MARGIN: Final = 28
STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; } td, th { text-align: left; padding: .3rem .6rem;
border-bottom: 1px solid #ddd; vertical-align: top; } .change td:nth-child(4) { font-weight: 600; color: #a93226; }
.not td { color: #888; } .bad { font-weight: 600; color: #a93226; }
svg { background: #fafafa; border: 1px solid #e5e5e5; } figure { margin: 0 1rem 1rem 0; }
.curves { display: flex; flex-wrap: wrap; } figcaption, .note { color: #666; font-size: 13px; }
.key span { display: inline-block; margin-right: 1rem; } text { font: 10px sans-serif; fill: #555; }
"""


def page(advice: Advice) -> str:
    """The whole page."""
    bad = "\n".join(_damaged(advice))
    groups = "\n".join(part for found in advice.findings for part in _group(found))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Time-outs</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{STYLE}</style></head>\n<body><h1>What the event log says about the time-outs</h1>{bad}\n"
        f"{groups or '<p>No event of a group is in this window.</p>'}\n</body></html>\n"
    )


def _damaged(advice: Advice) -> Iterator[str]:
    if advice.corrupt_count or advice.damaged:
        yield f'<p class="bad">{escape(missing(advice))}</p>'
    if advice.damaged:
        yield "<table><tr><th>file</th><th>what is wrong</th></tr>"
        for each in advice.damaged:
            yield f"<tr><td>{escape(each.file)}</td><td>{escape(wrong(each))}</td></tr>"
        yield "</table>"


def _group(found: Findings) -> Iterator[str]:
    story = found.story
    yield f"<h2>{escape(story.group)}</h2>"
    yield (
        f"<p>{_time(story.started_at_ms)} to {_time(story.ended_at_ms)} (UTC): {len(story.rebalances)} rebalances, "
        f"{len(story.of('life'))} lives of members.</p>"
    )
    yield from _table(found.proposals)
    yield from _timeline(story.rebalances, story.started_at_ms, story.ended_at_ms)
    yield "<div class=curves>"
    proposals = {each.setting: each for each in found.proposals}
    for setting, curve in groupby(found.counterfactuals, key=lambda each: each.setting):
        yield from _curve(setting, [*curve], proposals[setting])
    yield "</div>"
    for skew in story.skews:
        yield (
            f"<p class=note>The clock of {escape(skew.host)} is {skew.ahead_ms} ms ahead of the group's middle, within "
            f"{skew.spread_ms} ms over {skew.generations_count} generations.</p>"
        )


def _table(proposals: Sequence[Proposal]) -> Iterator[str]:
    yield (
        "<table><tr><th>setting</th><th>now</th><th>advice</th><th>proposed</th><th>rebalances it caused</th>"
        "<th>why</th></tr>"
    )
    for each in proposals:
        proposed = proposed_of(each) if each.verdict == "change" else ""
        yield (
            f'<tr class="{each.verdict.split()[0]}"><td>{escape(each.setting)}</td><td>{each.current}</td>'
            f"<td>{each.verdict}</td><td>{proposed}</td>"
            f"<td>{interval(each.rebalances_least, each.rebalances_most)}</td>"
            f"<td>{escape(each.why + effect_of(each))}</td></tr>"
        )
    yield "</table>"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def _timeline(rebalances: Sequence[Rebalance], start_ms: int, end_ms: int) -> Iterator[str]:
    """A bar for each rebalance: its width and height show the duration, its color the cause."""
    shown = rebalances[-SHOWN_COUNT:]
    if not shown:
        return
    if len(shown) < len(rebalances):
        start_ms = shown[0].started_at_ms
        yield f"<p class=note>The last {len(shown)} of {len(rebalances)} rebalances.</p>"
    scale = (WIDTH - 2 * MARGIN) / max(1, end_ms - start_ms)
    longest = max(1, *(each.duration_ms for each in shown))
    yield f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="rebalances">'
    for each in reversed(shown):  # if two follow each other closely, the first one's cause is on top
        height = 6 + (HEIGHT - MARGIN - 16) * each.duration_ms / longest
        width = max(2.0, each.duration_ms * scale)
        told = (
            f"{_time(each.started_at_ms)} generation {each.generation}: {each.cause} {each.caused_by}, "
            f"{each.duration_ms} ms, last {each.last_member}; {each.why}"
        )
        x = MARGIN + (each.started_at_ms - start_ms) * scale
        yield (
            f'<rect x="{x:.1f}" y="{HEIGHT - MARGIN - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}" fill="{COLORS[each.cause]}">'
            f"<title>{escape(told)}</title></rect>"
        )
    yield f'<text x="{MARGIN}" y="{HEIGHT - 10}">{_time(start_ms)}</text>'
    yield f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 10}" text-anchor="end">{_time(end_ms)}</text>'
    yield f'<text x="2" y="12">up to {longest} ms</text></svg><p class="key note">'
    for cause, count in Counter(each.cause for each in rebalances).most_common():
        yield f'<span><b style="color:{COLORS[cause]}">&#9632;</b> {escape(cause)} {count}</span>'
    yield "</p>"


def _curve(setting: str, curve: Sequence[Counterfactual], proposal: Proposal) -> Iterator[str]:
    """Rebalances by value as a band from the least to the most; the time that the value costs as a dashed line."""
    step = (CURVE - 2 * MARGIN) / max(1, len(curve) - 1)
    xs = {each.value: MARGIN + step * place for place, each in enumerate(curve)}
    most = max(1, *(each.rebalances_most for each in curve))
    latest = max(1, *(each.late_ms for each in curve))

    def line(heights: Sequence[float]) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs.values(), heights, strict=True))

    def at(share: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share

    upper = line([at(each.rebalances_most / most) for each in curve])
    lower = line([at(each.rebalances_least / most) for each in curve]).split()
    late = line([at(each.late_ms / latest) for each in curve])
    yield f'<figure><svg width="{CURVE}" height="{HEIGHT}" role="img" aria-label="{escape(setting)}">'
    yield f'<polygon points="{upper} {" ".join(reversed(lower))}" fill="#e6b0aa" stroke="#c0392b"/>'
    yield f'<polyline points="{late}" fill="none" stroke="#2471a3" stroke-dasharray="4 3"/>'
    now = next((each.value for each in curve if each.is_current), None)
    proposed = proposal.proposed if proposal.verdict == "change" else None
    for value, color, name, anchor in ((now, "#555", "now", "end"), (proposed, "#1e8449", "proposed", "start")):
        if value in xs:
            yield f'<line x1="{xs[value]:.1f}" x2="{xs[value]:.1f}" y1="14" y2="{HEIGHT - MARGIN}" stroke="{color}"/>'
            yield f'<text x="{xs[value]:.1f}" y="10" text-anchor="{anchor}">{name}</text>'
    for each in (curve[0], curve[-1]):
        yield f'<text x="{xs[each.value]:.1f}" y="{HEIGHT - 12}" text-anchor="middle">{each.value}</text>'
    yield (
        f"</svg><figcaption>{escape(setting)}: up to {most} rebalances (red), up to {latest / 1000:.0f} s late "
        "(blue)</figcaption></figure>"
    )
