"""docs/cli.md beside the parsers, and the command lines of all pages: what stands there can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aiogroup.cli.exits import Exit
from aiogroup.cli.parser import TOOLS, make_parser
from aiogroup.devkafka.__main__ import make_parser as make_devkafka_parser
from aiogroup.embedded.__main__ import make_parser as make_embedded_parser
from aiogroup.spark.__main__ import make_parser as make_spark_parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PARSERS = {
    "aiogroup": make_parser,
    "aiogroup.devkafka": make_devkafka_parser,
    "aiogroup.embedded": make_embedded_parser,
    "aiogroup.spark": make_spark_parser,
}
LINE = re.compile(r"(?:\$ )?(?:\.?[\w./]*python3? -m )?(aiogroup(?:\.(?:devkafka|embedded|spark))?)((?: .*)?)")
ENDS = {"|", ">", ">>", "&", "&&", ";"}
PLACES = {
    "STATE,...": "Stable,Empty",
    "NAME:PARTITIONS": "orders:2",
    "N,...": "0,1",
    "N": "1",
    "GROUP": "billing",
    "TOPIC": "orders",
    "PLACE": "@-1h",
    "NAME": "one",
    "TEXT": "why",
    "URL": "http://host:8000/aiogroup",
    "LEVEL": "info",
    "NAME: VALUE": "Authorization: Bearer x",
    "HOST:PORT": "host:9092",
    "PATH": "/var/log/billing",
    "...": None,
}
"""What stands for something that the reader chooses. In a row about `reset` the dots stand for more."""
TYPED = re.compile(rf" --|^aiogroup .*\b({'|'.join(place for place in PLACES if place.isalpha())})\b")
"""What tells a line to type, in the text, from the name of a command."""
WHERE = ["--bootstrap-server", "localhost:9092"]
GOAL = ["--all-topics", "--to-latest"]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The files that command lines of the pages name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").touch()
    (tmp_path / "before.csv").touch()


def code(text):
    """The lines of code: those of blocks; in the text those with an option or a place, as others name commands."""
    is_block = False
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("```"):
            is_block = not is_block
        elif is_block or line.startswith("    "):
            yield line.strip()
        else:
            yield from (each for each in re.findall(r"`([^`]+)`", line) if TYPED.search(each) and "[" not in each)


def command_lines(text):
    """The command lines in code, each as its program and its words."""
    for line in code(text):
        if found := LINE.fullmatch(line):
            yield found[1], words_of(found[2])


def words_of(text):
    words = shlex.split(text, comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in ENDS), len(words))]
    return [chosen for word in words if (chosen := PLACES.get(word, word)) is not None]


def parsed(program, words, capsys):
    """What the parser makes of the words; fails with what it says."""
    if program == "aiogroup" and words and words[0] in TOOLS:
        program, words = TOOLS[words[0]].room.removesuffix(".__main__"), words[1:]
    try:
        given = PARSERS[program]().parse_args(words)
    except SystemExit as ended:
        if ended.code:
            raise AssertionError(f"{program} {' '.join(words)}: {capsys.readouterr().err}") from None
        return
    check = getattr(given, "check", None)
    assert check is None or check(given) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_line_of_the_pages_can_be_typed(page, capsys):
    for program, words in command_lines(page.read_text()):
        parsed(program, words, capsys)


def test_the_lines_are_found():
    found = list(command_lines(PAGE))
    assert ("aiogroup", ["groups", *WHERE]) in found
    assert ("aiogroup", ["reset", "billing", *GOAL[:1], "--to-current", "--export"]) in found
    assert ("aiogroup.embedded", ["--port", "9092", "--topic", "orders"]) in found
    assert ("aiogroup.devkafka", ["up", "--port", "9092", "--topic", "orders"]) in found
    assert len(found) > 11


def test_a_line_in_the_text_is_found():
    assert list(command_lines("`aiogroup groups describe GROUP`, not `aiogroup lag`")) == [
        ("aiogroup", ["groups", "describe", "billing"])
    ]


@pytest.mark.parametrize("line", ["aiogroup kafka up --port 9092", "aiogroup broker --nodes 3"])
def test_a_line_of_another_command_line_can_be_typed(line, capsys):
    ((program, words),) = command_lines(f"```sh\n{line}\n```")
    parsed(program, words, capsys)


@pytest.mark.parametrize("line", ["aiogroup groups --nodes 3", "aiogroup lag", "aiogroup.devkafka start"])
def test_a_line_that_cannot_be_typed_is_told(line, capsys):
    ((program, words),) = command_lines(f"```sh\n{line}\n```")
    with pytest.raises(AssertionError, match=line):
        parsed(program, words, capsys)


def rows():
    """The commands of the two tables at the beginning."""
    of_tables = re.findall(r"^\| `(.+?)` \|", PAGE.split("\n## ")[0], re.MULTILINE)
    return [each.replace("[", "").replace("]", "") for each in of_tables if each != "aiogroup"]


@pytest.mark.parametrize("row", rows())
def test_each_command_of_the_tables_can_be_typed(row, capsys):
    program, words = "aiogroup", words_of(row)
    if words[0] in PARSERS:
        program, *words = words
    if words[0] == "reset":
        words += GOAL
    parsed(program, words, capsys)


def help_of(program, *words, capsys):
    with pytest.raises(SystemExit, match="0"):
        PARSERS[program]().parse_args([*words, "--help"])
    return capsys.readouterr().out


def commands(program, capsys, *words):
    """Each command of the program as its words, read off the help."""
    names = re.findall(r"^    ([a-z]+)(?: |$)", help_of(program, *words, capsys=capsys), re.MULTILINE)
    if not names:
        return [words]
    if program == "aiogroup" and not words:
        assert {*TOOLS} < {*names}, "they have parsers of their own"
        names = [each for each in names if each not in TOOLS]
    return [each for name in names for each in commands(program, capsys, *words, name)]


def options(program, capsys):
    """The options of all its commands, as the help writes them: `-o {table,json}, --output {table,json}`."""
    return {
        each
        for words in commands(program, capsys)
        for each in re.findall(r"^  (-\S.*?)(?:  .*)?$", help_of(program, *words, capsys=capsys), re.MULTILINE)
    }


OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def test_every_command_is_in_the_tables(capsys):
    told = {each.split()[0] for each in rows()}
    assert told == {words[0] for words in commands("aiogroup", capsys)} | PARSERS.keys() - {"aiogroup"}


@pytest.mark.parametrize("program", ["aiogroup", "aiogroup.devkafka", "aiogroup.embedded"])
def test_every_option_is_on_the_page(program, capsys):
    told = set(OPTION.findall(PAGE))
    missing = [each for each in options(program, capsys) if not told & set(OPTION.findall(each))]
    assert missing == []


def test_every_option_on_the_page_is_one(capsys):
    known = {form for program in PARSERS for each in options(program, capsys) for form in OPTION.findall(each)}
    told = {each for each in OPTION.findall(PAGE) if each.startswith("--")}
    assert told - known == {"--describe"}, "which is Kafka's"


def test_the_exit_codes_are_on_the_page():
    told = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert [int(each) for each in told] == sorted(Exit)


@pytest.mark.parametrize(
    ("option", "programs"),
    [
        *(
            (option, ("aiogroup", "aiogroup.spark"))
            for option in ("--bootstrap-server", "--command-config", "--output", "--group", "--catchup-group")
        ),
        *((option, ("aiogroup.devkafka", "aiogroup.embedded")) for option in ("--port", "--topic", "--partitions")),
    ],
)
def test_an_option_is_written_the_same_everywhere(option, programs, capsys):
    found = [{each for each in options(program, capsys) if option in each.split()} for program in programs]
    first, second = (each - {"-o {json}, --output {json}", "-o, --output {json}"} for each in found)
    assert first == second
    assert len(first) == 1
