"""`python docs/order_picture.py` draws docs/order.svg: what each `max_task_idle_ms` does with the same records.

There are two partitions; B's broker is slow, and later B has no records for a while. The picture shows which records
the application gets, and when.
"""

from __future__ import annotations

from pathlib import Path

TARGET = Path(__file__).with_name("order.svg")
WIDTH, ROW, LEFT, STEP = 900, 46, 190, 44
STYLE = (
    "<style>.t{font-size:11px;fill:#fff;text-anchor:middle}.n{font-size:13px;font-weight:bold}"
    ".s{font-size:11px;fill:#475569}</style>"
)
A, B, LATE, WAIT = "#2563eb", "#d97706", "#dc2626", "#94a3b8"

# (partition, timestamp, when it can be read); B's producer is silent from 6 to 13.
RECORDS = [
    ("A", 1, 1), ("B", 2, 5), ("A", 3, 2), ("B", 4, 5), ("A", 5, 3), ("B", 6, 6), ("A", 8, 8), ("A", 10, 9),
    ("B", 9, 13), ("A", 12, 12),
]  # fmt: skip
ROWS = [
    ("-1", "never waits", [(1, "A1"), (2, "A3"), (3, "A5"), (5, "B2!"), (5.8, "B4!"), (6.6, "B6"), (8, "A8"),
                           (9, "A10"), (12, "A12"), (13, "B9!")]),
    ("0", "waits for what the broker has", [(5, "A1"), (5.6, "B2"), (6.2, "A3"), (6.8, "B4"), (7.4, "A5"), (8, "B6"),
                                            (8.6, "A8"), (9.4, "A10"), (12, "A12"), (13, "B9!")]),
    ("5", "and 5 ms for producers", [(5, "A1"), (5.6, "B2"), (6.2, "A3"), (6.8, "B4"), (7.4, "A5"), (8, "B6"),
                                     (13, "A8"), (13.6, "B9"), (14.2, "A10"), (14.8, "A12")]),
]  # fmt: skip


def x_of(at: float) -> float:
    return LEFT + at * STEP


def dot(at: float, y: float, name: str) -> list[str]:
    is_late, name = name.endswith("!"), name.rstrip("!")
    fill = A if name.startswith("A") else B
    edge = f' stroke="{LATE}" stroke-width="3"' if is_late else ""
    x = x_of(at)
    return [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="12" fill="{fill}"{edge}/>',
        f'<text x="{x:.0f}" y="{y + 4:.0f}" class="t">{name[1:]}</text>',
    ]


def line(y: float, title: str, below: str) -> list[str]:
    return [
        f'<text x="12" y="{y - 2:.0f}" class="n">{title}</text>',
        f'<text x="12" y="{y + 13:.0f}" class="s">{below}</text>',
        f'<line x1="{LEFT}" y1="{y:.0f}" x2="{WIDTH - 20}" y2="{y:.0f}" stroke="{WAIT}"/>',
    ]


def picture() -> str:
    height = 70 + ROW * (2 + len(ROWS)) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        STYLE,
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        '<text x="12" y="24" class="n">What comes from the brokers, and when</text>',
    ]
    y = 56.0
    for partition, below in (("A", "a quick broker"), ("B", "a slow one; silent after 6")):
        parts += line(y, f"partition {partition}", below)
        seen: dict[float, int] = {}
        for owner, at, there_at in RECORDS:
            if owner == partition:
                shift = seen.get(there_at, 0)
                seen[there_at] = shift + 1
                parts += dot(there_at + 0.6 * shift, y, f"{owner}{at}")
        y += ROW
    parts.append(f'<text x="12" y="{y - 4:.0f}" class="n">What merged(max_task_idle_ms) hands out, and when</text>')
    y += 28
    for setting, below, given in ROWS:
        parts += line(y, f"max_task_idle_ms={setting}", below)
        for at, name in given:
            parts += dot(at, y, name)
        y += ROW
    parts.append(
        f'<text x="12" y="{y:.0f}" class="s">Numbers are timestamps. A red edge: late, handed out behind a higher one. '
        "Time goes to the right.</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    TARGET.write_text(picture())
