"""The pytest plug-in of aiogroup: a test asks for `aiogroup_broker` and has a Kafka broker inside of its own process.

pytest loads it by itself where aiogroup is installed (entry point `pytest11`); `-p no:aiogroup_pytest` leaves it out.
It is a module beside the package: a plug-in inside of it would import the package before coverage is measured. It
imports nothing but pytest until a test asks for a fixture.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from aiogroup.embedded import Broker, Trouble, VirtualLoop
    from aiogroup.embedded.machine.faults.watch import Seen

__all__ = ["MakeBroker", "aiogroup_broker", "make_aiogroup_broker", "virtual_broker"]

EXPECTED: Final = "expected_troubles"
VIRTUAL: Final = "virtual_time"
REAL_TIME: Final = (
    f"@pytest.mark.{VIRTUAL}: the test ran in real time, in an event loop that was there before or is not pytest's. "
    "anyio keeps one event loop as long as an async fixture lives whose scope is larger than a function: give it the "
    "scope of a function. unittest has a loop of its own: call aiogroup.embedded.run_virtual there"
)
EXCHANGES_COUNT: Final = 10
LINE_LENGTH: Final = 300


class MakeBroker(Protocol):
    """What the fixture `make_aiogroup_broker` is."""

    def __call__(self, nodes: int = 1, **settings: Any) -> Broker:  # noqa: ANN401 (those of Broker, by name)
        """A broker that runs until the test ends; the arguments are those of `aiogroup.embedded.Broker`."""


class _Lent:
    """A broker that a test has."""

    def __init__(self, broker: Broker, seed: int, *, is_virtual: bool = False) -> None:
        self.broker = broker
        self.seed = seed
        self.is_virtual = is_virtual
        self.address = broker.bootstrap_servers
        self.troubles_seen = 0
        self._is_over = False
        self._exchanges: Sequence[Seen] = ()

    def look(self) -> None:
        """Note what it was asked last, as long as it runs."""
        if not self._is_over:
            self._exchanges = self.broker.requests()

    def end(self) -> None:
        """It is closed next."""
        self.look()
        self._is_over = True

    def new_troubles(self) -> Sequence[Trouble]:
        """Those since the last call."""
        new = self.broker.troubles[self.troubles_seen :]
        self.troubles_seen += len(new)
        return new

    def describe(self) -> str:
        """What a failing test's report says of it."""
        from aiogroup.embedded.hints import hints  # noqa: PLC0415 (not for tests that need no broker)

        lines = [f"seed {self.seed} (seeds come from the test's name: the same test has the same)"]
        lines += [f"trouble: {each}" for each in self.broker.troubles]
        self.look()
        lines += hints(self._exchanges)
        last = self._exchanges[-EXCHANGES_COUNT:]
        lines.append(f"the last {len(last)} exchanges:" if last else self._nothing())
        for each in last:
            line = str(each)
            lines.append(line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]} ...")
        return "\n".join(lines)

    def _nothing(self) -> str:
        told = "nobody has asked anything"
        if self.is_virtual:
            told += (
                ": what runs in the test's own event loop reaches this broker; other threads (such as TestClient's), "
                "other processes and clients in C do not"
            )
        return told


_LENT: Final = pytest.StashKey[list[_Lent]]()
_HAS_FAILED: Final = pytest.StashKey[bool]()


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Leave the package as it is installed.

    pytest rewrites the asserts of everything in a distribution that has a plug-in: the package would be compiled anew
    when a test imports it, in each run where no bytecode may be written. Another version of pytest that keeps this
    elsewhere is only slower.
    """
    marked = getattr(getattr(pluginmanager, "rewrite_hook", None), "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("aiogroup")


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.is_blocked("aiogroup"):
        raise pytest.UsageError("aiogroup's plug-in has the name aiogroup_pytest: -p no:aiogroup_pytest leaves it out")
    config.addinivalue_line(
        "markers",
        f"{EXPECTED}(*names): the test's embedded broker gets requests that it refuses; each name of a refusal "
        "(docs/embedded.md lists them) must occur, and no other may",
    )
    config.addinivalue_line(
        "markers",
        f"{VIRTUAL}: the test's event loop jumps to the next timer when nothing is ready, so that minutes take "
        "milliseconds; see the fixture virtual_broker",
    )


@pytest.fixture
def make_aiogroup_broker(request: pytest.FixtureRequest) -> Iterator[MakeBroker]:
    """Makes embedded brokers, each in a thread of its own: `make_aiogroup_broker(nodes=3)`. They end with the test."""
    from aiogroup.embedded import Broker  # noqa: PLC0415 (nothing is imported for tests that need no broker)

    item = request.node
    if item.get_closest_marker(VIRTUAL) is not None and iscoroutinefunction(getattr(item, "function", None)):
        pytest.fail(
            f"a test with @pytest.mark.{VIRTUAL} cannot reach a broker in a thread: it has the fixture virtual_broker, "
            "or `async with Broker(...)` for one with other settings",
            pytrace=False,
        )
    with ExitStack() as brokers, _watched(item) as lent:

        def make(nodes: int = 1, **settings: Any) -> Broker:  # noqa: ANN401 (those of Broker)
            seed = settings.pop("seed", None)
            if seed is None:
                seed = _seed_of(item, len(lent))
            broker = brokers.enter_context(Broker(nodes, seed=seed, **settings))
            lent.append(_Lent(broker, seed))
            return broker

        yield make


@pytest.fixture
def aiogroup_broker(make_aiogroup_broker: MakeBroker) -> Broker:
    """An embedded broker of one node, in a thread of its own, for this test alone.

    Its ids come from the test's name. The test fails if a client asked it for something that it refuses: the marker
    `expected_troubles` names what is meant to be refused.
    """
    return make_aiogroup_broker()


@pytest.fixture
def virtual_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An embedded broker of one node in virtual time, for a test with the marker `virtual_time`.

    Its connections are in memory, on the test's own event loop, and `virtual_broker.clock` has the time. The module
    `random` begins with the broker's seed, so that the same test does the same each time; pytest-randomly, if it is
    there, has a seed of its own for the test.
    """
    import random  # noqa: PLC0415 (not for tests that need no broker)

    from aiogroup.embedded import Broker  # noqa: PLC0415 (not for tests that need no broker)

    item = request.node
    if item.get_closest_marker(VIRTUAL) is None:
        pytest.fail(f"the fixture virtual_broker is for tests with @pytest.mark.{VIRTUAL}", pytrace=False)
    with ExitStack() as end, _watched(item) as lent:
        seed = _seed_of(item, len(lent))
        end.callback(random.setstate, random.getstate())
        random.seed(seed)
        end.callback(_LOOPS.drop)
        broker = Broker(seed=seed)
        _LOOPS.current().run_until_complete(broker.__aenter__())
        end.callback(broker.close)
        lent.append(_Lent(broker, seed, is_virtual=True))
        yield broker


class _Loops:
    """The virtual loops of tests. The one that a broker is put on before the test's runner asks for a loop is the one
    that the runner gets.
    """

    def __init__(self) -> None:
        self._last: VirtualLoop | None = None
        self._is_taken = False

    def current(self) -> VirtualLoop:
        """The loop that the test has, or will have."""
        if self._last is None or self._last.is_closed():
            from aiogroup.embedded import VirtualLoop  # noqa: PLC0415 (not for tests in real time)

            self._last, self._is_taken = VirtualLoop(), False
        return self._last

    def make(self) -> VirtualLoop:
        """For a runner, which closes it."""
        if self._is_taken:
            self._last = None  # another runner's, whose scope is larger
        loop = self.current()
        self._is_taken = True
        return loop

    def drop(self) -> None:
        """Close a loop that no runner has asked for."""
        if self._last is not None and not self._is_taken:
            self._last.close()


_LOOPS: Final = _Loops()


class _LoopFactories:
    """Answers pytest-asyncio for marked tests. It is no hook of the whole plug-in, since pytest-asyncio takes no
    `None` from one: whoever has one has to know the loop of each test.
    """

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_asyncio_loop_factories(self) -> Mapping[str, Callable[[], VirtualLoop]]:
        return {"virtual": _LOOPS.make}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Give marked tests their loop, whichever plug-in runs them."""
    if metafunc.definition.get_closest_marker(VIRTUAL) is None:
        return (yield)
    plugins = metafunc.config.pluginmanager
    if "anyio_backend" in metafunc.fixturenames:
        backend = ("asyncio", {"loop_factory": _LOOPS.make})
        metafunc.parametrize("anyio_backend", [backend], ids=["virtual"], scope="function")
    elif not hasattr(metafunc.config.hook, "pytest_asyncio_loop_factories"):
        return (yield)  # its set-up fails
    factories = _LoopFactories()
    plugins.register(factories)
    try:
        return (yield)
    finally:
        plugins.unregister(factories)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin anew, as a test may run again (pytest-rerunfailures); and fail a marked test that would have another loop.
    While tests are collected it would fail those beside it, too.
    """
    item.stash[_HAS_FAILED] = False
    if _LENT in item.stash:
        del item.stash[_LENT]
    if (
        item.get_closest_marker(VIRTUAL) is not None
        and "anyio_backend" not in getattr(item, "fixturenames", ())
        and not hasattr(item.config.hook, "pytest_asyncio_loop_factories")
    ):
        pytest.fail(
            f"@pytest.mark.{VIRTUAL} needs pytest-asyncio 1.4 or newer, or anyio's plug-in and @pytest.mark.anyio; "
            "elsewhere use aiogroup.embedded.run_virtual",
            pytrace=False,
        )


@contextmanager
def _watched(item: pytest.Item) -> Iterator[list[_Lent]]:
    """The brokers that the test has. At the end of the fixture the test fails for what was refused meanwhile."""
    _expected(item)
    lent = item.stash.setdefault(_LENT, [])
    yield lent
    for each in lent:
        each.end()
    unexpected = _unexpected(item)
    if unexpected and not item.stash.get(_HAS_FAILED, False):
        pytest.fail(unexpected, pytrace=False)


def _seed_of(item: pytest.Item, number: int) -> int:
    """The same for a test wherever it runs: a node id has pytest-xdist's group at its end."""
    from zlib import crc32  # noqa: PLC0415 (not for tests that need no broker)

    path, _, name = item.location
    return crc32(f"{path}::{name}#{number}".encode())


def _expected(item: pytest.Item) -> set[str]:
    """The refusals that the test's markers name."""
    from aiogroup.embedded.machine.refusals import REFUSALS  # noqa: PLC0415 (not for tests that need no broker)

    names = {name for marker in item.iter_markers(EXPECTED) for name in marker.args}
    if any(marker.kwargs or not marker.args for marker in item.iter_markers(EXPECTED)):
        there = ", ".join(sorted(REFUSALS))
        pytest.fail(f'{EXPECTED} names what is expected, as {EXPECTED}("api") does: {there}', pytrace=False)
    if unknown := names - REFUSALS.keys():
        there = ", ".join(sorted(REFUSALS))
        pytest.fail(f"{EXPECTED}: there is no refusal {', '.join(sorted(unknown))}, but {there}", pytrace=False)
    return names


def _unexpected(item: pytest.Item) -> str:
    """Why the test fails because of what its brokers refused since the last look; empty: it does not."""
    expected = _expected(item)
    new = [trouble for lent in item.stash.get(_LENT, []) for trouble in lent.new_troubles()]
    return "\n".join(str(each) for each in new if each.refusal.name not in expected)


def _missing(item: pytest.Item) -> str:
    """Which expected refusals did not happen."""
    happened = {each.refusal.name for lent in item.stash.get(_LENT, []) for each in lent.broker.troubles}
    missing = sorted(_expected(item) - happened)
    return f"{EXPECTED}: {', '.join(missing)} did not happen" if missing else ""


def _in_virtual_time() -> Generator[None, None, None]:
    """The call of a marked test, which has to run in a virtual loop."""
    from aiogroup.embedded import VirtualLoop  # noqa: PLC0415 (not for tests in real time)

    before = VirtualLoop.runs_count
    try:
        yield
    except Exception as error:
        if VirtualLoop.runs_count == before:
            error.add_note(REAL_TIME)
        raise
    if VirtualLoop.runs_count == before:
        pytest.fail(REAL_TIME, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that passed although its brokers refused something, or although it ran in real time."""
    if item.get_closest_marker(VIRTUAL) is not None and iscoroutinefunction(getattr(item, "function", None)):
        yield from _in_virtual_time()
    else:
        yield
    if _LENT in item.stash and (why := _unexpected(item) or _missing(item)):
        pytest.fail(why, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append the troubles and the last exchanges of each broker that the test had."""
    report = yield
    if report.failed and _LENT in item.stash:
        item.stash[_HAS_FAILED] = True
        for lent in item.stash[_LENT]:
            report.sections.append((f"the embedded broker at {lent.address}", lent.describe()))
    return report
