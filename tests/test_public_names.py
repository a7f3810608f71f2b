"""What `import aiogroup` promises: the names, and that moving from aiokafka is a change of import."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
import types
import typing

import aiokafka

import aiogroup
from tests.support.sources import sources

MOVED = [
    "start", "stop", "getone", "getmany", "commit", "committed", "position", "seek", "seek_to_beginning", "seek_to_end",
    "seek_to_committed", "assignment", "subscribe", "subscription", "unsubscribe", "assign", "pause", "resume",
    "paused", "highwater", "last_stable_offset", "beginning_offsets", "end_offsets", "offsets_for_times",
    "partitions_for_topic", "topics", "__aiter__", "__anext__", "__aenter__", "__aexit__",
]  # fmt: skip
NEW = ["poll", "lag", "current_lag", "lags", "group_metadata", "enforce_rebalance", "health", "metrics", "skip"]


def test_names_are_sorted_and_reported_once():
    assert list(aiogroup.__all__) == sorted(set(aiogroup.__all__))


def test_public_names_are_what_is_exported():
    there = {
        name
        for name, value in vars(aiogroup).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert there == set(aiogroup.__all__)


def test_public_name_says_what_it_is():
    for name in aiogroup.__all__:
        value = getattr(aiogroup, name)
        if inspect.isclass(value) and value.__module__.startswith("aiogroup"):
            assert value.__doc__, name
            assert not value.__doc__.startswith(f"{name}(")  # what dataclass writes by itself


def test_every_name_a_module_exports_exists():
    for source in sources():
        module = source.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        if not module.endswith("__main__"):
            loaded = importlib.import_module(module)
            missing = [name for name in getattr(loaded, "__all__", ()) if not hasattr(loaded, name)]
            assert missing == [], module


def test_method_of_aiokafkas_consumer_is_there_in_the_same_kind():
    for name in MOVED:
        ours, theirs = getattr(aiogroup.Consumer, name), getattr(aiokafka.AIOKafkaConsumer, name)
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), name


def test_no_method_of_aiokafkas_consumer_is_missing():
    theirs = {name for name, _ in inspect.getmembers(aiokafka.AIOKafkaConsumer, callable) if not name.startswith("_")}
    assert theirs - set(dir(aiogroup.Consumer)) == set()


def test_new_methods_are_there():
    for name in NEW:
        assert getattr(aiogroup.Consumer, name).__doc__, name


def test_every_public_method_promises_something():
    methods = [name for name, each in vars(aiogroup.Consumer).items() if callable(each) and not name.startswith("_")]
    assert methods
    for name in methods:
        doc = inspect.getdoc(getattr(aiogroup.Consumer, name))
        assert doc, name
        assert doc[0].isupper() or doc[0] == "`", name


def _functions(public):
    """Those that a public name has, as `typing.get_type_hints` takes them, also behind properties."""
    if not inspect.isclass(public):
        return
    yield public
    for kind in public.__mro__:
        if kind.__module__.partition(".")[0] == "aiogroup":
            for each in vars(kind).values():
                function = getattr(each, "fget", None) or getattr(each, "func", None) or inspect.unwrap(each)
                if inspect.isfunction(function) and function.__module__ == kind.__module__:
                    yield function


def test_type_hints_of_public_names_can_be_evaluated():
    """For frameworks that read them at run time, to inject, validate or document."""
    cannot = []
    for name in aiogroup.__all__:
        for each in _functions(getattr(aiogroup, name)):
            try:
                typing.get_type_hints(each)
            except (NameError, TypeError) as error:
                cannot.append(f"{each.__qualname__}: {error}")
    assert sorted(set(cannot)) == []


def test_type_checkers_know_the_types():
    assert (importlib.resources.files("aiogroup") / "py.typed").is_file()
