"""What a type checker says to an application that uses the installed package, outside of this repository.

`tests/typed` has the applications. In one of them every line that ends in `# mistake` has one mistake. The code of the
README and of all pages in docs is an application, too.
"""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import inspect
import json
import pickle
import re
import shutil
import subprocess
import sys
import types
import typing
import venv
from pathlib import Path

import aiokafka
import aiokafka.abc
import aiokafka.errors
import aiokafka.structs
import pytest

import aiogroup
from aiogroup import Consumer, Record, structs
from aiogroup._core import errors_for_mypy, structs_for_checkers
from aiogroup._core.native import pure
from aiogroup._core.typed import K, V
from aiogroup.config import OBSOLETE, ConsumerConfig, ConsumerSettings

ROOT = Path(__file__).parents[1]
FILES = ["mistakes.py", "right.py", "kinds.py", "beside_aiokafka.py"]
MISTAKES = {
    ("mistakes.py", number)
    for number, line in enumerate((ROOT / "tests/typed/mistakes.py").read_text().splitlines(), 1)
    if line.endswith("# mistake")
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder with the applications, and with a virtual environment that has a copy of the package installed."""
    folder = tmp_path_factory.mktemp("application")
    venv.create(folder / ".venv", with_pip=False)
    (installed,) = folder.glob(".venv/lib/python*/site-packages")
    shutil.copytree(ROOT / "aiogroup", installed / "aiogroup", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    others = [path for path in sys.path if path.endswith("site-packages")]
    (installed / "others.pth").write_text("\n".join(others))
    for name in FILES:
        shutil.copy(ROOT / "tests/typed" / name, folder)
    return folder


AIRFLOWS = re.compile(r'"airflow\.[\w.]+"')
"""A module that is not installed: it does not go beside the versions of what else is."""
ONE_SERVICE = {"tutorial-fastapi", "tutorial-testing", "tutorial-kubernetes"}
"""These pages go on in one folder."""
FIRST_LINE = re.compile(r"# (in )?(\w+\.py)\n")
"""Of a block that is to be saved under a name, or added to what was saved; it takes the place of what it defines."""


@pytest.fixture(scope="module")
def pages(elsewhere):
    """The code of all pages as files, and the folders that they are in: one for each page that names its files."""
    folders = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        named = any(map(FIRST_LINE.match, blocks))
        name = "one_service" if page.stem in ONE_SERVICE else page.stem if named else "others"
        files = folders.setdefault(elsewhere / "pages" / name, {})
        for number, block in enumerate(blocks):
            is_added, file = first.groups() if (first := FIRST_LINE.match(block)) else ("", "")
            file = file or f"{page.stem.replace('-', '_')}_{number}.py"
            assert is_added or file not in files, f"{page.name}: another block is {file}"
            files[file] = without(files[file], block) + block if is_added else block
    for folder, files in folders.items():
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    shutil.copy(ROOT / "examples/fastapi_worker.py", elsewhere / "pages/testing")  # docs/testing.md tests it
    return {folder: sorted(path.name for path in folder.iterdir()) for folder in folders if folder.exists()}


def without(text, block):
    """The text without the functions that the block defines anew."""
    defined = {each.name for each in ast.parse(block).body if hasattr(each, "name")}
    lines = text.splitlines(keepends=True)
    for each in reversed(ast.parse(text).body):
        if getattr(each, "name", "") in defined:
            del lines[each.lineno - 1 : each.end_lineno]
    return "".join(lines)


def run(folder, *command):
    return subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)


def found_by_mypy(elsewhere, folder, files):
    # aiokafka has no py.typed, which an application has to say to mypy.
    (elsewhere / "for_pages.ini").write_text(
        "[mypy]\nstrict = True\nuntyped_calls_exclude = aiokafka\n[mypy-aiokafka.*]\nfollow_untyped_imports = True\n"
    )
    own = ("--config-file", elsewhere / "for_pages.ini") if folder != elsewhere else ("--strict",)
    python, cache = elsewhere / ".venv/bin/python", elsewhere / ".mypy_cache"
    ran = run(folder, "mypy", *own, "--python-executable", python, "--cache-dir", cache, *files)
    assert ran.stderr == ""
    return {
        (file, int(line)): said
        for file, line, said in re.findall(r"^([\w.]+):(\d+): error: (.*)$", ran.stdout, re.MULTILINE)
    }


def found_by_pyright(elsewhere, folder, files):
    # Its own default. Its warnings are about style: 199 of 300 say that something is Any.
    settings = {"typeCheckingMode": "recommended", "reportUnusedCoroutine": "error"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    python = elsewhere / ".venv/bin/python"
    ran = run(folder, "basedpyright", "--pythonpath", python, "--outputjson", *files)
    told = json.loads(ran.stdout)["generalDiagnostics"]
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in told
        if each["severity"] == "error"
    }


@pytest.mark.kafka  # not for Kafka: a type checker without a cache takes as long as its tests
@pytest.mark.parametrize("find", [found_by_mypy, found_by_pyright])
def test_every_mistake_of_an_application_is_found_and_nothing_else(elsewhere, find):
    found = find(elsewhere, elsewhere, FILES)
    assert len(MISTAKES) >= 10
    assert {at: said for at, said in found.items() if at not in MISTAKES} == {}, "said of what is right"
    assert MISTAKES - found.keys() == set(), "not found"


@pytest.mark.kafka  # as above
@pytest.mark.parametrize("find", [found_by_mypy, found_by_pyright])
def test_all_code_of_the_readme_and_of_docs_is_right(elsewhere, pages, find):
    assert sum(map(len, pages.values())) >= 50
    found = {
        (folder.name, *at): said
        for folder, files in pages.items()
        for at, said in find(elsewhere, folder, files).items()
        if not AIRFLOWS.search(said)
    }
    assert found == {}


KINDS = {
    "consumer": Consumer,
    "record": Record,
    "record in Python": pure.Record,
    "records": aiogroup.Records,
    "merged": aiogroup.Merged,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_annotations_of_an_application_can_be_evaluated(kind):
    """`Consumer[str, Order]`, also with one type alone, as the other one has a default, and in a class of one's own."""
    whole, one = kind[str, int], kind[str]
    assert (typing.get_origin(whole), typing.get_args(whole)) == (kind, (str, int))
    assert (typing.get_origin(one), typing.get_args(one)) == (kind, (str,))
    assert typing.get_args(kind[K, V][str, int]) == (str, int)
    assert typing.get_args(collections.abc.Callable[[whole], None])[0][0] == whole
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert isinstance(kind[str, int] | None, types.UnionType)


def test_a_consumer_and_a_record_can_be_made_with_their_types():
    class Own(Consumer[str, int]):
        pass

    assert type(Consumer[str, int]("orders")) is Consumer
    assert isinstance(Own("orders"), Consumer)
    tp = aiogroup.TopicPartition("orders", 0)
    for kind in (Record, pure.Record):
        assert kind[str, int](tp, 0, 0, 0, "a", 1, ()) == kind(tp, 0, 0, 0, "a", 1, ())


def test_the_classes_are_aiokafkas_own():
    homes = {"ConsumerRebalanceListener": aiokafka.abc}
    for name in set(structs.__all__) - {"aiokafka_errors"}:
        theirs = getattr(homes.get(name, aiokafka.structs), name)
        assert getattr(structs, name) is getattr(aiogroup, name) is theirs, name
    assert structs.aiokafka_errors is aiokafka.errors


@pytest.mark.parametrize("name", ["TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp"])
def test_type_checkers_read_the_same_fields(name):
    said, theirs = getattr(structs_for_checkers, name), getattr(aiokafka.structs, name)
    assert list(typing.get_type_hints(said).items()) == list(typing.get_type_hints(theirs).items())
    defaults = [[each.default for each in inspect.signature(kind).parameters.values()] for kind in (said, theirs)]
    assert defaults[0] == defaults[1]


def test_type_checkers_read_the_same_callbacks():
    said, theirs = structs_for_checkers.ConsumerRebalanceListener, aiokafka.abc.ConsumerRebalanceListener
    assert said.__abstractmethods__ == theirs.__abstractmethods__
    for name in said.__abstractmethods__:
        taken = [list(inspect.signature(getattr(each, name)).parameters) for each in (said, theirs)]
        assert taken[0] == taken[1], name


def test_mypy_reads_the_same_errors():
    said = {name: kind for name, kind in vars(errors_for_mypy).items() if inspect.isclass(kind)}
    assert len(said) > 20
    for name, kind in said.items():
        theirs = getattr(aiokafka.errors, name)
        assert [each.__name__ for each in kind.__mro__] == [each.__name__ for each in theirs.__mro__], name
        attributes = {each for each in kind.__annotations__ if not each.startswith("_")}
        assert attributes == {each for each in {**vars(theirs), **theirs.__annotations__} if each in attributes}, name


def test_type_checkers_know_the_settings_with_the_same_types():
    told, taken = typing.get_type_hints(ConsumerSettings), typing.get_type_hints(ConsumerConfig)
    assert {each.name for each in dataclasses.fields(ConsumerConfig)} | OBSOLETE == told.keys()
    assert {name: told[name] for name in taken if name not in OBSOLETE} == taken
    assert ConsumerSettings.__required_keys__ == frozenset()
