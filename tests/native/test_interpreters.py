"""The C keeps nothing for the process: it is loaded again, into another interpreter too, and freed with its types."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
import tracemalloc
import weakref
from functools import partial

import pytest

from aiogroup._core import native
from tests.native.test_native import HEADER, TP, made, w

pytestmark = pytest.mark.skipif(not native.IS_COMPILED, reason="about the C")

NAME = "aiogroup._core.native._native"


def loaded_again():
    """A module of its own from the same file; the one that the package uses stays as it is."""
    there = importlib.util.find_spec(NAME)
    spec = importlib.util.spec_from_file_location(NAME, there.origin)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records_of(module, count=10, acknowledge=None):
    batch = memoryview(w.batch(w.Sent(offset, None, b"v" * 100) for offset in range(count)))
    return module.Reader(batch[:HEADER], batch[HEADER:], (TP, 0, "live", acknowledge)).read(count, 0)


def test_two_modules_of_one_process_have_nothing_in_common():
    one, two = loaded_again(), loaded_again()
    for name in ("Record", "Reader", "Cursor", "Heads", "Maker"):
        assert len({getattr(each, name) for each in (one, two, native)}) == 3
    mine, theirs = records_of(one), records_of(two)
    assert {type(each) for each in mine} == {one.Record}
    assert mine[0] != theirs[0]
    assert one.read_times(mine, [])
    with pytest.raises(TypeError):
        one.read_times(theirs, [])
    del one, mine
    gc.collect()
    assert records_of(two) == theirs


def test_a_module_that_nobody_uses_is_freed_with_its_types():
    gone = []
    for _ in range(3):
        module = loaded_again()
        records = records_of(module, 3_000)
        cursor = module.Cursor()
        cursor.open(records, 0, 10**12)
        aiter(cursor).__anext__().close()
        gone += [
            weakref.ref(each)
            for each in (module, module.Record, module.Reader, module.Cursor, module.Heads, module.Maker)
        ]
        del module, records, cursor
    gc.collect()
    assert not any(each() for each in gone)


@pytest.mark.parametrize("held", [b"bytes", [], partial(print)], ids=["bytes", "list", "function"])
def test_what_outlives_its_module_still_works(held):
    """A record in hand keeps all that its type needs, whether the collector sees it or not."""
    module = loaded_again()
    gone = weakref.ref(module)
    record, other = records_of(module, 2)
    record.value = held
    del module
    gc.collect()
    assert gone() is not None
    assert record.value is held
    assert record != other
    del record, other
    gc.collect()
    assert gone() is None


def test_a_cycle_through_a_module_is_freed_with_it():
    """What is spare, what is tracked and the module itself are collected in one pass, in any order."""
    for _ in range(5):
        module = loaded_again()
        gone = weakref.ref(module.Record)
        records = records_of(module, 50, acknowledge=[module].append)
        for record in records:
            record.value = [record, module, records]
        del module, record, records
        gc.collect()
        assert gone() is None


def test_what_modules_took_is_given_back():
    def load_and_use():
        module = loaded_again()
        records = records_of(module, 2_000)
        del module, records
        gc.collect()

    load_and_use()
    tracemalloc.start()
    try:
        load_and_use()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            load_and_use()
        # The spare records of one module take 180,000 bytes; the interpreter's own tables grow now and then.
        assert tracemalloc.get_traced_memory()[0] - before < 180_000
    finally:
        tracemalloc.stop()


def test_records_do_not_pile_up_references_to_their_type():
    records_of(native, 3_000)
    gc.collect()  # what other tests left behind refers to it, too
    before = sys.getrefcount(native.Record)
    for _ in range(20):
        records_of(native, 3_000)
        made(native, value=[])
        native.Record.__new__(native.Record, TP, 1, 2, 0, None, b"", ())
    gc.collect()
    assert abs(sys.getrefcount(native.Record) - before) <= 1


def test_the_types_cannot_be_changed_as_if_they_were_one_interpreter_s_own():
    for kind in (native.Record, native.Reader, native.Cursor, native.Heads):
        with pytest.raises(TypeError, match="immutable"):
            kind.anything = 1
        with pytest.raises(TypeError, match="acceptable base"):
            type("Mine", (kind,), {})


OTHER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def run_in_another(code, is_isolated):
    if sys.version_info >= (3, 13):
        other = interpreters.create("isolated" if is_isolated else "legacy")
    elif sys.version_info >= (3, 12):
        other = interpreters.create(isolated=is_isolated)
    else:
        other = interpreters.create()
    failed = interpreters.run_string(other, code)
    assert failed is None, failed
    interpreters.destroy(other)
"""

ALONE = """
there = sys.argv[1]
CODE = f'''
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("aiogroup._core.native._native", {there!r})
module = module_from_spec(spec)
spec.loader.exec_module(module)
batch = memoryview({sys.argv[2]})
for _ in range(5):
    reader = module.Reader(batch[:61], batch[61:], (("orders", 3), 0, "live", None))
    records = reader.read(3_000, 0)
    assert [each.offset for each in records] == list(range(3_000))
    records[0].value = [records, module]
'''
exec(CODE)
for _ in range(3):
    run_in_another(CODE, is_isolated=True)
exec(CODE)
"""
"""From 3.12 on an isolated interpreter has a lock of its own."""

WHOLE = """
run_in_another(f'''
import sys
sys.path[:] = {sys.path!r}
import aiogroup
from aiogroup._core import native
assert native.IS_COMPILED is {sys.argv[1]}
record = native.Record(("orders", 3), 7, 1_700, 1, b"k", b"v", ())
assert type(record) is aiogroup.Record
assert repr(record).startswith("Record(topic=")
''', is_isolated=False)
"""
"""In one interpreter alone: cramjam, which aiokafka decompresses with, lets no second one of a process import it."""


def in_another(code, *args, **variables):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    command = [sys.executable, "-W", "ignore", "-c", OTHER + code, *args]
    subprocess.run(command, env=environment, check=True, timeout=60)


def test_other_interpreters_load_the_c_with_a_lock_of_their_own():
    batch = w.batch(w.Sent(offset) for offset in range(3_000))
    in_another(ALONE, importlib.util.find_spec(NAME).origin, repr(batch))


def test_another_interpreter_imports_the_package_with_the_c():
    in_another(WHOLE, "True", AIOGROUP_PURE_PYTHON="")


def test_another_interpreter_imports_the_package_without_the_c():
    in_another(WHOLE, "False", AIOGROUP_PURE_PYTHON="1")
