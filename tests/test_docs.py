"""The pages in docs/ say what the code says."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from aiogroup import ConsumerConfig, Event, HealthStatus, errors
from aiogroup._core.telemetry import events
from aiogroup.cli.parser import make_parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
CODE_COLUMNS = 88  # what docs/site.css leaves room for
KINDS = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)} - {Event}


def rows(page: str, columns: int) -> list[list[str]]:
    """The cells of every table row of a page that begins with code and has so many columns."""
    lines = (DOCS / page).read_text().splitlines()
    found = [
        [cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines if line.startswith("| `")
    ]
    return [row for row in found if len(row) == columns]


def rows_of(page: str) -> list[list[str]]:
    """The cells of every row with three columns of the tables with a header of words."""
    lines = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines if len(line) == 3 and line[0].strip() != "you see"]


def test_settings_has_every_setting_with_its_default():
    told = {name.strip("`"): default.strip("`") for name, default, _ in rows("settings.md", 3)}
    told = {name: default for name, default in told.items() if re.fullmatch(r"[a-z_]+", name)}
    assert told == {each.name: repr(each.default) for each in dataclasses.fields(ConsumerConfig)}


def test_every_page_is_in_the_navigation_and_on_the_start_page():
    """A new page needs a line in the nav of mkdocs.yml and a link on docs/index.md, in one of the four parts."""
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "index.md").read_text())) == set()
    assert pages - set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)) == set()


def test_errors_has_every_error_and_whether_a_retry_may_help():
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    ours = {name: kind for name, kind in kinds.items() if issubclass(kind, errors.AiogroupError)}
    told = {name.strip("`"): retriable for name, retriable, _, _ in rows("errors.md", 4)}
    words = {name: "yes" if kind.retriable else "no" for name, kind in ours.items()}
    assert told == words | {"BrokerError": "its own", "DeadLetterError": "its own"}


def test_events_has_every_event_with_level_and_fields():
    told = {name.strip("`"): (level, re.findall(r"`(\w+)`", fields)) for name, level, fields, _ in rows("events.md", 4)}
    # The key of an event in the log is a property of its instances; what they hold does not matter to it.
    assert told == {
        kind.name.fget(object.__new__(kind)): (kind.LEVEL, [each.name for each in dataclasses.fields(kind)])
        for kind in KINDS
    }


def test_what_a_page_calls_reserved_is_emitted_by_nothing_and_the_rest_is():
    source = "\n".join(path.read_text() for path in (ROOT / "aiogroup").rglob("*.py"))
    reserved = {name.strip("`") for name, _, _, when in rows("events.md", 4) if when.startswith("reserved")}
    silent = {
        kind.name.fget(object.__new__(kind)) for kind in KINDS if not re.search(rf"events\.{kind.__name__}[(.]", source)
    }
    assert reserved == silent


def test_the_architecture_stays_short():
    assert len((DOCS / "architecture.md").read_text().splitlines()) <= 350


def marks(text: str) -> set[str]:
    """What a link can name of a page: its headings, as GitHub and the site spell them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, mark = target.partition("#")
        if "://" in path:
            continue
        goal = page.parent / path if path else page
        assert goal.exists(), target
        if mark:
            assert mark in marks(goal.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_are_python(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        ast.parse(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_fits_the_column_of_the_site(page):
    text = page.read_text()
    fenced = re.findall(r"^ *```.*?^ *```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"\n\n((?:    .*\n)+)", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))
    lines = [line for block in [*fenced, *indented] for line in block.splitlines()]
    assert [line for line in lines if len(line) > CODE_COLUMNS] == []


def test_what_to_look_at_is_there():
    """Each sign on the page of symptoms is a command, an event, a field of `/state`, or what an error or a state is."""
    page = (DOCS / "something-is-wrong.md").read_text()
    signs = [look for _, look, _ in rows_of(page) for look in re.findall(r"`([^`]+)`", look)]
    commands = [sign for sign in signs if sign.startswith("aiogroup ")]
    for line in [*commands, *re.findall(r"^aiogroup .*?(?=\s+#|$)", page, re.MULTILINE)]:
        make_parser().parse_args(line.split()[1:])
    known = {kind.name.fget(object.__new__(kind)) for kind in KINDS}
    known |= {each.name for kind in KINDS for each in dataclasses.fields(kind)}
    known |= set(re.findall(r"`(\w+)`", (DOCS / "service.md").read_text())) | {"aiogroup", "/state", "clean=False"}
    assert set(signs) - set(commands) - known == set()
    states = {state for seen, _, _ in rows_of(page) for state in re.findall(r"`([a-z_]+)`", seen)}
    assert states <= set(HealthStatus)
    assert len(signs) > 40


def test_paths_that_pages_name_exist():
    for page in PAGES:
        named = set(re.findall(r"`((?:aiogroup|_core|_runtime|_command)/[\w/]*(?:\.\w+)?)`", page.read_text()))
        missing = {name for name in named if not (ROOT / name).exists() and not (ROOT / "aiogroup" / name).exists()}
        assert missing == set(), page.name


def test_what_the_architecture_names_stands_in_the_file_beside_it():
    page = (DOCS / "architecture.md").read_text()
    named = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) \(`([\w/]+\.py)`", page)
    pairs = [(name, path) for names, path in named for name in re.findall(r"`([\w.]+)`", names)]
    assert len(pairs) > 40
    for name, path in pairs:
        last = re.escape(name.rpartition(".")[2])
        defined = rf"^ *(?:(?:async )?def|class) {last}\b|^ *(?:self\.)?{last}\b(?:: .*)? = |^    {last}: "
        assert re.search(defined, (ROOT / "aiogroup" / path).read_text(), re.MULTILINE), f"{name} in {path}"


def members_of(kind: ast.ClassDef) -> set[str]:
    """What the class defines: its methods, its fields, and the attributes that it sets on itself."""
    functions = {each.name for each in kind.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    targets = [
        target
        for each in ast.walk(kind)
        if isinstance(each, ast.Assign | ast.AnnAssign)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    ]
    names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return functions | names | {each.attr for each in targets if isinstance(each, ast.Attribute)}


def test_what_the_architecture_names_of_a_class_is_there():
    page = (DOCS / "architecture.md").read_text()
    named = {(kind, name) for kind, name in re.findall(r"`([A-Z]\w+)\.(\w+)", page)}
    rooms = [ROOT / "aiogroup" / room for room in ("_core", "_runtime")]
    files = [*(ROOT / "aiogroup").glob("*.py"), *(each for room in rooms for each in room.rglob("*.py"))]
    kinds = [each for path in files for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.ClassDef)]
    members = {kind.name: members_of(kind) for kind in kinds}
    known = {(kind, name) for kind, name in named if kind in members}
    assert len(known) > 40
    assert {(kind, name) for kind, name in known if name not in members[kind]} == set()
