"""Plants a bug in the process that runs: the functions that it changes get its code, and their own again afterwards.

A new process would import the library for each bug, which takes longer than to find it.
"""

from __future__ import annotations

import importlib
import inspect
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

LIMIT_S = 300


class NotInFunctionsError(Exception):
    """The bug changes what runs when the module is imported."""


class NeverEndsError(SystemExit):
    """An exit, as asyncio's tasks keep every other error to themselves."""


@contextmanager
def replanted(bug):
    """Plant the bug while the block runs.

    Raises:
        NotInFunctionsError: it is to be planted before the import (planted_bugs.plant).
    """
    changes = [change for name, text in bug.applied().items() for change in _changes(name, text)]
    assert changes, f"{bug.name}: nothing changes"
    kept = [(function, function.__code__) for function, _ in changes]
    former = signal.signal(signal.SIGALRM, _never_ends)
    signal.alarm(LIMIT_S)
    try:
        for function, code in changes:
            function.__code__ = code
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
        for function, code in kept:
            function.__code__ = code


def _never_ends(*_):
    raise NeverEndsError(f"not over after {LIMIT_S} s")


def _changes(name, text):
    """Each function of the module that the text changes, with its code there."""
    module = importlib.import_module(name)
    path = module.__file__
    alive: dict[CodeType, list[FunctionType]] = {}
    for function in functions_of(module):
        alive.setdefault(function.__code__, []).append(function)
    for before, after in _pairs(_compiled(Path(path).read_text(), path), _compiled(text, path)):
        if before not in alive:
            raise NotInFunctionsError(before.co_qualname)
        for function in alive[before]:
            yield function, after


@cache
def _compiled(text, path):
    return compile(text, path, "exec", dont_inherit=True)


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code of each function that differs, in the body of a module or of a class and the classes in it."""
    if before == after:
        return
    if before.co_flags & inspect.CO_NEWLOCALS:
        yield before, after
        return
    if _own(before) != _own(after):
        raise NotInFunctionsError(before.co_qualname)
    for one, other in zip(_inner(before), _inner(after), strict=True):
        yield from _pairs(one, other)


def _inner(code):
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _own(code):
    """What the body does, but for the functions and classes that it makes."""
    consts = [each.co_qualname if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.co_code, code.co_names, [(type(each), each) for each in consts]


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """Those that the module and its classes have, also behind decorators."""
    seen, waiting = set(), list(vars(module).values())
    while waiting:
        each: Any = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, FunctionType):
            yield each
        if isinstance(each, type) and each.__module__ == module.__name__:
            waiting += vars(each).values()
        elif isinstance(each, property):
            waiting += (each.fget, each.fset)
        elif isinstance(each, (classmethod, staticmethod)):
            waiting.append(each.__func__)
        elif isinstance(each, cached_property):
            waiting.append(each.func)
        elif isinstance(each, FunctionType) and hasattr(each, "__wrapped__"):
            waiting.append(each.__wrapped__)
