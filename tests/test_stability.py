"""docs/stability.md: what is public, which versions go together, and what is used of aiokafka below its surface."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import sys
import tomllib
from pathlib import Path

import pytest
from aiokafka.conn import AIOKafkaConnection
from packaging.requirements import Requirement

from aiogroup._runtime.net.authentication import Authenticated
from aiogroup._runtime.net.connection import Connection
from tests.support.sources import Source, sources

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/stability.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SURFACE = {"aiokafka", "aiokafka.abc", "aiokafka.errors", "aiokafka.helpers", "aiokafka.structs"}
"""The modules that aiokafka documents."""
CONNECTION = "aiokafka.conn.AIOKafkaConnection"
ASSIGNORS = "aiokafka.coordinator.assignors"
MODULES = sources() + tuple(Source(path.name, path.read_text()) for path in [ROOT / "aiogroup_pytest.py"])


def table(head: str) -> dict[str, list[str]]:
    """The rows of the table with this first line: the first cell, and the others."""
    _, _, behind = PAGE.partition(f"\n{head}\n")
    lines = behind.split("\n\n")[0].splitlines()[1:]
    assert lines, head
    cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
    return {first.strip("`"): others for first, *others in cells}


# What is public.

PUBLIC = table("| module | is for | needs the extra |")


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_module_says_what_it_exports(name):
    extra = PUBLIC[name][1].strip("`")
    try:
        module = importlib.import_module(name)
        assert module.__all__
        assert [each for each in module.__all__ if not hasattr(module, each)] == []
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None) or "aiogroup"
        if not extra or missing.startswith("aiogroup"):
            raise
        pytest.skip(f"needs {missing}: pip install '.[{extra}]'")


def shown() -> dict[str, str]:
    """The code that users copy: that of the pages and the examples."""
    found = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)):
            found[f"{path.name}, block {number}"] = block
    return found


def test_what_the_pages_and_examples_import_is_public():
    asked = set()
    for where, code in shown().items():
        for each in ast.walk(ast.parse(code)):
            if isinstance(each, ast.ImportFrom) and (each.module or "").split(".")[0] == "aiogroup":
                asked |= {(where, each.module)}
                exported = importlib.import_module(each.module).__all__
                assert {name.name for name in each.names} <= set(exported), where
            elif isinstance(each, ast.Import):
                asked |= {(where, name.name) for name in each.names if name.name.split(".")[0] == "aiogroup"}
    assert len(asked) > 30
    assert {(where, name) for where, name in asked if name not in PUBLIC} == set()


# Which versions go together.


def test_the_changelog_has_the_version_and_what_is_not_released_above_it():
    """The section of a release has what a user must know; details are in git."""
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## \[(.+?)\](.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    (unreleased, _), (released, body), *_ = sections
    assert (unreleased, released) == ("Unreleased", PROJECT["version"])
    assert re.match(r" - \d{4}-\d\d-\d\d\n", body)
    assert len(body.splitlines()) <= 150


def test_the_pythons_are_those_that_the_package_says_it_is_for():
    row = table("| of | works with | what the tests run on |")["Python"]
    told = re.findall(r"3\.\d+", row[0])
    assert [f"Programming Language :: Python :: {each}" for each in told] == [
        each for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)
    ]
    assert PROJECT["requires-python"] == f">={told[0]}"


def minor(version: str) -> tuple[int, int]:
    first, second, *_ = version.split(".")
    return int(first), int(second)


def test_the_range_of_aiokafka_is_what_was_tested():
    """A version is added to the page when all tests ran with it, and the list below holds."""
    (needed,) = [each for each in map(Requirement, PROJECT["dependencies"]) if each.name == "aiokafka"]
    row = table("| of | works with | what the tests run on |")["aiokafka"]
    tested = re.findall(r"\d+\.\d+", row[1])
    (first, oldest), (_, newest) = minor(tested[0]), minor(tested[-1])
    assert [minor(each) for each in tested] == [(first, number) for number in range(oldest, newest + 1)]
    assert row[0].strip("`") == f">={first}.{oldest},<{first}.{newest + 1}"
    assert needed.specifier == Requirement(f"aiokafka{row[0].strip('`')}").specifier
    assert minor(importlib.metadata.version("aiokafka")) in map(minor, tested)


# What is used of aiokafka below its surface.

LISTED = {
    (place, name.partition("(")[0]): name
    for place, (names, _) in table("| of aiokafka | names | for |").items()
    for name in re.findall(r"`([^`]+)`", names)
}


def imported() -> set[tuple[str, str]]:
    """What is imported from a module below the surface."""
    names = {name for source in MODULES for name in source.imports() if name.startswith("aiokafka.")}
    pairs = {tuple(name.rsplit(".", 1)) for name in names if name not in SURFACE}
    return {(module, name) for module, name in pairs if module not in SURFACE}


def classes(tree: ast.AST) -> dict[str, ast.ClassDef]:
    return {each.name: each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}


def tree_of(kind: type) -> ast.ClassDef:
    return classes(ast.parse(inspect.getsource(sys.modules[kind.__module__])))[kind.__name__]


def attributes(tree: ast.ClassDef, *, only_set: bool) -> set[str]:
    """The methods of a class, and the attributes of `self` that it sets, or uses in any way."""
    of_self = {
        each.attr
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute)
        and ast.unparse(each.value) in ("self", "super()")
        and (not only_set or isinstance(each.ctx, ast.Store))
    }
    return of_self | names_of_class(tree)


def names_of_class(tree: ast.ClassDef) -> set[str]:
    """What the body of a class defines: methods and attributes."""
    names = {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    targets = [each.target for each in tree.body if isinstance(each, ast.AnnAssign)]
    targets += [target for each in tree.body if isinstance(each, ast.Assign) for target in each.targets]
    return names | {each.id for each in targets if isinstance(each, ast.Name)}


THEIRS = attributes(tree_of(AIOKafkaConnection), only_set=True)
OURS = tree_of(Connection)
AUTHENTICATORS = {each for each in vars(Authenticated) if each.startswith(("authenticator_", "sasl_"))}
"""What `aiogroup/_runtime/net/authentication.py` asks the connection for."""


def test_the_list_has_what_is_imported_and_no_more():
    assert imported() - LISTED.keys() == set(), "add it to docs/stability.md"
    of_modules = {(place, name) for place, name in LISTED if not place.rpartition(".")[2].strip("_")[0].isupper()}
    named_only = {pair for pair in of_modules if pair[1] == "time" or pair[0].startswith(f"{ASSIGNORS}.")}
    assert of_modules - imported() - named_only == set(), "not used any more"


def test_what_is_only_named_is_named():
    strings = {
        each.value
        for source in MODULES
        for each in source.nodes
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    asked_for_the_time = {each for each in strings if re.fullmatch(r"aiokafka(\.\w+)+", each)}
    assert {place for place, name in LISTED if name == "time"} == asked_for_the_time - {ASSIGNORS}
    replaced = {(place, name) for place, name in LISTED if place.startswith(f"{ASSIGNORS}.")} - imported()
    assert len(replaced) == 3
    for place, name in replaced:
        assert {place.removeprefix(ASSIGNORS), name} <= strings


def test_the_list_has_what_the_connection_uses_of_its_base():
    used = attributes(OURS, only_set=False) & THEIRS
    assert {name for place, name in LISTED if place == CONNECTION} == used | AUTHENTICATORS


def listed_for(place: str) -> set[str]:
    return {name for each, name in LISTED if each == place}


def test_the_list_has_what_our_classes_use_of_theirs():
    """Each class of aiokafka's that one of ours extends, other than the documented ones and the connection."""
    for source in MODULES:
        theirs = dict(name.rsplit(".", 1)[::-1] for name in source.imports() if name.startswith("aiokafka."))
        for kind in classes(source.tree).values():
            for base in {ast.unparse(each) for each in kind.bases} & theirs.keys():
                place = f"{theirs[base]}.{base}"
                owner = getattr(importlib.import_module(theirs[base]), base)
                if place == CONNECTION or owner.__module__ in SURFACE:
                    continue
                inherited = {name for each in owner.__mro__[:-1] for name in attributes(tree_of(each), only_set=True)}
                used = (attributes(kind, only_set=False) & inherited) - {"__init__"}
                assert listed_for(place) == used, f"{source.path}: {kind.name}"


OF_OTHERS = {"_handed_out", "_make", "_origin", "_replace", "_started", "_values"}
"""Private names that the files which import from aiokafka ask of objects of aiogroup's, and of named tuples."""


def test_the_list_has_the_private_names_that_are_asked_of_theirs():
    asked = {
        each.attr
        for source in MODULES
        if any(name.split(".")[0] == "aiokafka" for name in source.imports())
        for each in source.nodes
        if isinstance(each, ast.Attribute)
        and re.match("_[a-z]", each.attr)
        and ast.unparse(each.value) not in ("self", "cls", "super()")
    }
    assert asked == OF_OTHERS | listed_for("aiokafka.conn.BaseSaslAuthenticator")


def found(place: str, name: str) -> object:
    """What aiokafka has there; an attribute of objects is found in the source of their class."""
    module, _, kind = place.rpartition(".")
    if not kind[0].isupper():
        return getattr(importlib.import_module(place), name)
    owner = getattr(importlib.import_module(module), kind)
    if hasattr(owner, name):
        return getattr(owner, name)
    assert name in attributes(tree_of(owner), only_set=True)
    return None


@pytest.mark.parametrize(("place", "name"), sorted(LISTED))
def test_the_installed_aiokafka_has_what_is_used(place, name):
    there = found(place, name)
    _, has_parameters, told = LISTED[place, name].partition("(")
    if has_parameters:
        expected = [each for each in told.rstrip(")").split(", ") if each]
        assert [each for each in inspect.signature(there).parameters if each != "self"] == expected


def test_the_base_of_the_connection_takes_what_it_is_given():
    calls = [each for each in ast.walk(OURS) if isinstance(each, ast.Call)]
    (call,) = [each for each in calls if ast.unparse(each.func) == "super().__init__"]
    given = {each.arg: None for each in call.keywords if each.arg}
    assert len(given) > 10
    inspect.signature(AIOKafkaConnection).bind("127.0.0.1", 9092, **given)


def test_what_is_gone_would_be_seen():
    with pytest.raises(AttributeError):
        found("aiokafka.protocol.admin", "SaslAuthenticateRequest_v9")
    with pytest.raises(AssertionError):
        found(CONNECTION, "_writer_of_another_version")
