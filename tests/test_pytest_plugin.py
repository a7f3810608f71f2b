"""The pytest plug-in, as an empty project has it: what it loads and gives, when it fails a test, what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest

import aiogroup
import aiogroup_pytest
from tests.support.nested_pytest import run_pytest

ROOT = Path(__file__).parents[1]
PROJECT = {
    "pytest.ini": """
[pytest]
addopts = -p no:cacheprovider --strict-markers
""",
    "client.py": """
import socket

def ask(broker, frame):
    with socket.create_connection(("127.0.0.1", broker.nodes[0].port), timeout=10) as peer:
        peer.sendall(len(frame).to_bytes(4, "big") + frame)
        return peer.recv(4)

def ask_for_what_is_not_there(broker):
    assert ask(broker, b"\\0\\x24\\0\\1\\0\\0\\0\\1\\0\\4mine") == b""  # SASL's second step
""",
    "test_a_first.py": """
import sys

def loaded():
    return {name for name in sys.modules if name.split(".")[0] == "aiogroup"}

def test_without():
    assert "aiogroup_pytest" in sys.modules
    assert loaded() == set()

def test_with(aiogroup_broker):
    assert "aiogroup.embedded.broker" in loaded()
""",
    "test_brokers.py": """
import socket, threading
from contextlib import suppress
import pytest

connections = []

def test_one(aiogroup_broker):
    assert threading.active_count() == 2
    aiogroup_broker.create_topic("orders")
    connections.append(socket.create_connection(("127.0.0.1", aiogroup_broker.nodes[0].port), timeout=20))

def test_many(aiogroup_broker, make_aiogroup_broker):
    with connections[0] as former, suppress(ConnectionResetError):  # as where it was not accepted yet
        assert former.recv(1) == b"", "the broker of the test before has ended"
    aiogroup_broker.create_topic("orders")
    other = make_aiogroup_broker(nodes=3, failover_ms=10)
    assert len(other.nodes) == 3
    assert other.cluster_id != aiogroup_broker.cluster_id
    assert len({aiogroup_broker.bootstrap_servers, other.bootstrap_servers}) == 2

def test_none():
    assert threading.active_count() == 1

@pytest.mark.parametrize("n", [1, 2])
def test_given(make_aiogroup_broker, n):
    make_aiogroup_broker(seed=7)
    assert n == 2
""",
    "test_troubles.py": """
import pytest
from client import ask, ask_for_what_is_not_there

@pytest.fixture
def application(aiogroup_broker):
    yield
    ask_for_what_is_not_there(aiogroup_broker)

def test_refused(aiogroup_broker):
    ask_for_what_is_not_there(aiogroup_broker)

def test_refused_at_the_end(application):
    pass

@pytest.mark.expected_troubles("api")
def test_as_expected(aiogroup_broker):
    ask_for_what_is_not_there(aiogroup_broker)

@pytest.mark.expected_troubles("api")
def test_too_little(aiogroup_broker):
    pass

@pytest.mark.expected_troubles("api")
def test_another(aiogroup_broker):
    ask_for_what_is_not_there(aiogroup_broker)
    ask(aiogroup_broker, b"?")

@pytest.mark.expected_troubles("apis")
def test_misspelt(aiogroup_broker):
    pass

@pytest.mark.expected_troubles
def test_unnamed(aiogroup_broker):
    pass

def test_not_marked(virtual_broker):
    pass

def test_vain(aiogroup_broker):
    names = b"".join(b"\\0\\5" + name for name in (b"bills", b"never"))
    ask(aiogroup_broker, b"\\0\\3\\0\\1\\0\\0\\0\\1\\0\\4mine\\0\\0\\0\\2" + names)
    aiogroup_broker.create_topic("bills")
    ask(aiogroup_broker, b"\\0\\3\\0\\1\\0\\0\\0\\1\\0\\4mine\\0\\0\\0\\1\\0\\5bills")
    for _ in range(3):
        ask(aiogroup_broker, b"\\0\\x12\\0\\0\\0\\0\\0\\0\\0\\4mute")
    ask(aiogroup_broker, b"\\0\\x0a\\0\\1\\0\\0\\0\\0\\0\\4next\\0\\7billing\\0")
    assert 1 == 2

def test_failing(aiogroup_broker, make_aiogroup_broker):
    for number in range(12):  # ApiVersions 0, with its correlation id
        ask(aiogroup_broker, b"\\0\\x12\\0\\0\\0\\0\\0" + bytes([number]) + b"\\0\\4mine")
    ask_for_what_is_not_there(aiogroup_broker)
    make_aiogroup_broker()
    assert 1 == 2

@pytest.mark.parametrize("wanted", [1, 2])
def test_closed_by_itself(aiogroup_broker, wanted):
    ask(aiogroup_broker, b"\\0\\x12\\0\\0\\0\\0\\0\\0\\0\\4mine")
    aiogroup_broker.close()
    assert aiogroup_broker.count("ApiVersions") == len(aiogroup_broker.requests()) == wanted
""",
}
OUTCOMES = {
    "PASSED": "without with one many none given[2] refused_at_the_end as_expected closed_by_itself[1]",
    "FAILED": "given[1] refused too_little another failing vain closed_by_itself[2]",
    "ERROR": "refused_at_the_end misspelt unnamed not_marked",
}
"""Which tests of the project end how. The last test but one passes, and its fixture's end is an error."""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What pytest prints there; started once for all tests, as that takes longer than they do."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in PROJECT.items():
        folder.joinpath(name).write_text(text)
    ended = run_pytest(folder, "-v")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stdout


def report_of(told, test):
    """The part of the output about one test."""
    _, found = re.split(rf"^_+ {test} _+$", told, flags=re.MULTILINE)
    return re.split(r"^(?:_+ .+ _+|=+ .+ =+)$", found, flags=re.MULTILINE)[0]


def brokers_in(report):
    """What a report says of each broker."""
    return re.split(r"^-+ the embedded broker at 127\.0\.0\.1:\d+ -+\n", report, flags=re.MULTILINE)[1:]


def test_each_test_ends_as_it_should(told):
    """Also: nothing of the package is loaded before a fixture is asked for, and a broker is its test's alone."""
    for outcome, tests in OUTCOMES.items():
        ended = re.findall(rf"^{outcome} test_\w+\.py::test_(\S+)", told, re.MULTILINE)
        assert sorted(ended) == sorted(tests.split()), told


def test_its_module_imports_pytest_alone():
    code = "import sys, pytest; before = set(sys.modules); import aiogroup_pytest; print(*set(sys.modules) - before)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert {name for name in told.split() if name.lstrip("_") != "contextvars"} == {"aiogroup_pytest"}


def test_ids_come_from_the_tests_name_or_from_the_seed_that_is_given(told):
    (given,) = brokers_in(report_of(told, r"test_given\[1\]"))
    assert given.startswith("seed 7 ")
    for number, told_of in enumerate(brokers_in(report_of(told, "test_failing"))):
        assert told_of.startswith(f"seed {crc32(b'test_troubles.py::test_failing#%d' % number)} ")


def test_a_passing_test_prints_nothing_of_its_broker(told):
    assert len(brokers_in(told)) == 9


def test_what_a_client_asks_in_vain_fails_a_test_that_passed_otherwise(told):
    report = report_of(told, "test_refused")
    assert re.match(r"\nthe embedded broker: mine asked for what is not offered.*What helps: ", report)
    assert len(brokers_in(report)) == 1


def test_a_refusal_while_fixtures_end_is_an_error_of_the_test(told):
    report = report_of(told, "ERROR at teardown of test_refused_at_the_end")
    assert re.match(r"\nthe embedded broker: mine asked for what is not offered.*What helps: ", report)
    assert len(brokers_in(report)) == 1


def test_a_refusal_that_is_expected_must_happen_and_no_other_may(told):
    assert report_of(told, "test_too_little").startswith("\nexpected_troubles: api did not happen\n")
    assert re.match("\nthe embedded broker: .*no request", report_of(told, "test_another"))
    assert "expected_troubles: there is no refusal apis, but api, " in report_of(
        told, "ERROR at setup of test_misspelt"
    )


def test_a_failing_tests_report_has_the_seed_the_troubles_and_the_last_exchanges(told):
    report = report_of(told, "test_failing")
    assert "assert 1 == 2" in report
    first, second = brokers_in(report)
    assert re.search("^trouble: the embedded broker: mine asked for", first, re.MULTILINE)
    assert "the last 10 exchanges:" in first
    assert len(re.findall("ms, mine to node 1: ApiVersionsRequest", first)) == 10
    assert "nobody has asked anything" in second


def test_a_failing_tests_report_says_what_leaves_no_trouble(told):
    (said,) = brokers_in(report_of(told, "test_vain"))
    assert "asked for in vain: the topics never; create_topic makes them" in said
    assert "mute asked 3 times for the versions and for nothing else: the broker has neither TLS nor SASL" in said
    assert "next looked for the coordinator of the group billing, and asked it for nothing" in said
    assert "trouble:" not in said


AGAIN = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):  # as pytest-rerunfailures does
    runtestprotocol(item, nextitem=nextitem, log=False)
    item._initrequest()
    runtestprotocol(item, nextitem=nextitem)
    return True
"""
TWICE = """
from client import ask_for_what_is_not_there

seen = []

def test_it(aiogroup_broker, request):
    seen.append(aiogroup_broker.cluster_id)
    if len(seen) == 1:
        ask_for_what_is_not_there(aiogroup_broker)
        assert 1 == 2
    assert len(set(seen)) == 1  # the same seed
    ask_for_what_is_not_there(aiogroup_broker)
"""


def test_a_test_that_runs_again_begins_anew(tmp_path):
    for name, text in {"conftest.py": AGAIN, "client.py": PROJECT["client.py"], "test_twice.py": TWICE}.items():
        tmp_path.joinpath(name).write_text(text)
    told = run(tmp_path, "test_twice.py").stdout
    assert "assert 1 == 2" not in told
    assert len(brokers_in(told)) == 1
    assert re.search("^the embedded broker: mine asked for what is not offered", told, re.MULTILINE)


WAITS = """
import asyncio
from client import ask

def test_wait(aiogroup_broker):
    aiogroup_broker.wait(lambda: False, timeout_s=0.05)

def test_until(aiogroup_broker):
    ask(aiogroup_broker, b"\\0\\x12\\0\\0\\0\\0\\0\\7\\0\\4mine")
    asyncio.run(aiogroup_broker.until(lambda: False, timeout_s=0.05))
"""


def test_a_wait_in_vain_is_shown_at_the_tests_own_line(tmp_path):
    (tmp_path / "client.py").write_text(PROJECT["client.py"])
    (tmp_path / "test_waits.py").write_text(WAITS)
    told = run(tmp_path, "test_waits.py").stdout
    assert "\ntest_waits.py:6: TimeoutError\n" in told
    assert "\ntest_waits.py:10: \n" in told
    assert "def wait(" not in told
    assert "def until(" not in told
    assert told.count("mine to node 1: ApiVersionsRequest") == 1, "the error has told it"
    assert len(brokers_in(told)) == 2


def test_virtual_time_is_asked_for_by_the_marker(told):
    report = report_of(told, "ERROR at setup of test_not_marked")
    assert report.startswith("\nthe fixture virtual_broker is for tests with @pytest.mark.virtual_time\n")


def test_a_broker_that_the_test_closed_is_told_of_as_well(told):
    (closed,) = brokers_in(report_of(told, r"test_closed_by_itself\[2\]"))
    assert "the last 1 exchanges:\n" in closed
    assert "mine to node 1: ApiVersionsRequest" in closed


VIRTUAL = """
import pytest

@pytest.mark.virtual_time
async def test_it(virtual_broker):
    pass

@pytest.mark.virtual_time
async def test_thread(aiogroup_broker):
    pass

@pytest.mark.virtual_time
def test_no_coroutine(aiogroup_broker):
    pass

@pytest.mark.virtual_time
async def test_unreached(virtual_broker):
    assert 1 == 2

def test_other():
    pass
"""


OTHER_LOOPS = """
import asyncio, unittest
import pytest

@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"

@pytest.fixture(scope="module")
async def database():
    yield "it keeps anyio's event loop"

async def test_before(database):
    pass

@pytest.mark.virtual_time
async def test_silent():
    await asyncio.sleep(0)

@pytest.mark.virtual_time
async def test_clock(virtual_broker):
    await virtual_broker.clock.pass_s(3_600)

@pytest.mark.virtual_time
async def test_call(virtual_broker):
    virtual_broker.create_topic("orders")

@pytest.mark.virtual_time
async def test_unreached(virtual_broker):
    await asyncio.get_running_loop().create_connection(asyncio.Protocol, *virtual_broker.bootstrap_servers.split(":"))

async def test_behind(database):
    pass

@pytest.mark.virtual_time
class TestOther(unittest.IsolatedAsyncioTestCase):
    async def test_of_unittest(self):
        await asyncio.sleep(0)
"""


def run(folder, *options, module=VIRTUAL):
    """pytest in a folder with a module, with no plug-in but those that are named."""
    folder.joinpath("test_it.py").write_text(module)
    return run_pytest(folder, *options)


def test_the_marker_says_what_it_needs_and_other_tests_run(tmp_path):
    ended = run(tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert re.findall(r"(\w+) test_it\.py::test_(it|other)", ended.stdout) == [("PASSED", "other"), ("ERROR", "it")]
    assert "needs pytest-asyncio 1.4 or newer, or anyio's plug-in and @pytest.mark.anyio;" in ended.stdout


def test_a_broker_of_the_wrong_time_is_told(tmp_path):
    told = run(tmp_path, "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto").stdout
    ends = dict(map(reversed, re.findall(r"^(PASSED|FAILED|ERROR) test_it\.py::test_([a-z_]+)", told, re.MULTILINE)))
    assert ends == {
        "it": "PASSED",
        "no_coroutine": "PASSED",
        "other": "PASSED",
        "unreached": "FAILED",
        "thread": "ERROR",
    }, told
    assert "virtual_time cannot reach a broker in a thread: it has the fixture virtual_broker" in told
    assert "nobody has asked anything: what runs in the test's own event loop reaches this broker" in told


def test_a_marked_test_that_runs_in_real_time_fails_and_is_told_why(tmp_path):
    told = run(tmp_path, "-p", "anyio.pytest_plugin", "-o", "anyio_mode=auto", module=OTHER_LOOPS).stdout
    assert re.findall(r"^(PASSED|FAILED|ERROR) test_it\.py::(?:\w+::)?test_(\w+)", told, re.MULTILINE) == [
        ("PASSED", "before"),
        ("PASSED", "behind"),
        ("FAILED", "silent"),
        ("FAILED", "clock"),
        ("FAILED", "call"),
        ("FAILED", "unreached"),
        ("FAILED", "of_unittest"),
    ], told
    failures = told.partition("short test summary info")[0]
    assert len(re.findall(r"^(?:E +)?@pytest.mark.virtual_time: the test ran in real", failures, re.MULTILINE)) == 5
    assert "VirtualTimeError: another event loop runs here, in real time" in told
    assert "BrokerRefusal: another event loop runs here, in real time" in told
    assert "node1.virtual.invalid" in told


def test_another_name_of_the_plug_in_is_refused(tmp_path):
    ended = run(tmp_path, "-p", "no:aiogroup")
    assert ended.returncode == 4
    assert ended.stderr.startswith("ERROR: aiogroup's plug-in has the name aiogroup_pytest: -p no:aiogroup_pytest")


def test_the_package_is_not_compiled_anew(pytestconfig, monkeypatch):
    """pytest marks every package of a distribution with a plug-in, so that its asserts are rewritten."""
    hook = type(pytestconfig.pluginmanager.rewrite_hook)(pytestconfig)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "aiogroup")  # as it is when pytest starts
        hook.mark_rewrite("aiogroup", "aiogroup_pytest")
    aiogroup_pytest.pytest_addoption(SimpleNamespace(rewrite_hook=hook))
    assert hook.find_spec("aiogroup._core.values", aiogroup.__path__) is None
    assert hook.find_spec("aiogroup_pytest", None) is not None
    aiogroup_pytest.pytest_addoption(SimpleNamespace())


def test_the_artifacts_have_the_module_and_the_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (name,) = project["tool"]["setuptools"]["py-modules"]
    assert (ROOT / f"{name}.py").exists()
    # Under its own name, so that `pytest_plugins` in a conftest.py does not load it twice.
    assert project["project"]["entry-points"]["pytest11"] == {name: name}
    assert f"{name}.py" in project["tool"]["mypy"]["files"]
