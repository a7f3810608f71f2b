"""Tables and documents: what stands in them, and what no terminal may obey."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from aiogroup._command.printable import clean, document, shown, table
from aiogroup.cli.printing import duration
from tests.cli.shapes import SHAPES, names_in

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("orders", "orders"),
        ("größe 漢", "größe 漢"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x7f\x00", r"\x7f\x00"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_text(text, cleaned):
    assert clean(text) == cleaned


def test_a_table_shows_what_is_not_known_as_a_dash():
    rows = [["orders", 0, 10, None], ["b\x1b[0m", 12, None, ""]]
    assert table(("TOPIC", "PARTITION", "LAG", "HOST"), rows) == (
        "TOPIC     PARTITION  LAG  HOST\n"
        "orders            0   10  -\n"
        r"b\x1b[0m         12    -  -"
    )  # fmt: skip


def test_a_table_without_rows_has_its_columns():
    assert table(("GROUP", "STATE"), []) == "GROUP  STATE"


@pytest.mark.parametrize(
    ("left_ms", "text"),
    [
        (None, None),
        (0, "0s"),
        (1, "1s"),
        (59_000, "59s"),
        (61_000, "1m1s"),
        (12_000_000, "3h20m"),
        (90_000_000, "1d1h"),
    ],
)
def test_a_duration_has_its_two_greatest_units(left_ms, text):
    assert duration(left_ms) == text


def test_nothing_known_is_no_empty_text():
    assert [shown(each) for each in (None, "", 0, "x")] == ["-", "-", "0", "x"]


def test_a_document_is_one_line_of_ascii():
    text = document("tail", value="\x1b[2J\u202e漢\n")
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {"command": "tail", "version": 1, "value": "\x1b[2J\u202e漢\n"}


def test_the_page_has_the_fields_of_each_document():
    rows = dict(re.findall(r"^\| (`.+?`) \| (.+) \|$", PAGE.read_text().split("\n## JSON\n")[1], re.MULTILINE))
    told = {command: set(re.findall(r"`(\w+)`", fields)) for command, fields in rows.items()}
    for command, shape in SHAPES.items():
        (row,) = (each for each in told if f"`{command}`" in each)
        assert set(names_in(shape)) <= told[row] | {"topic", "partition", "node_id", "host", "port"}, command
