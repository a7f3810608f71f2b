"""The pytest plug-in of aiogroup: a test asks for `aiogroup_broker` and has a Kafka broker inside of its own process.

pytest loads it by itself where aiogroup is installed (entry point `pytest11`); `-p no:aiogroup_pytest` leaves it out.
It is a module beside the package: a plug-in inside of it would import the package before coverage is measured. It
imports nothing but pytest until a test asks for a fixture.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import ref

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from aiogroup import Consumer
    from aiogroup.embedded import Broker, Trouble, VirtualLoop
    from aiogroup.embedded.machine.faults.watch import Seen

__all__ = ["MakeBroker", "aiogroup_broker", "make_aiogroup_broker", "virtual_broker"]

EXPECTED: Final = "expected_troubles"
LEFT_RUNNING: Final = "left_running"
"""What a test with the marker EXPECTED may expect beside refusals."""
VIRTUAL: Final = "virtual_time"
REAL_TIME: Final = (
    f"@pytest.mark.{VIRTUAL}: the test ran in real time, in an event loop that was there before or is not pytest's. "
    "anyio keeps one event loop as long as an async fixture lives whose scope is larger than a function: give it the "
    "scope of a function. unittest has a loop of its own: call aiogroup.embedded.run_virtual there"
)
AWAITED: Final = frozenset(
    {
        "aiogroup.consumer",
        "aiogroup.embedded.broker",
        "aiogroup.embedded.shell.virtual_loop",  # `broker.clock`
        "aiogroup.eventlog.event_log",
        "aiogroup.testing.proxy",
    }
)
"""The modules of the classes whose calls a test awaits."""
UNAWAITED_HOOK: Final = "_warn_unawaited_coroutine"
"""What Python calls in the module `warnings`, before any filter. Typeshed has no such name."""
SHOWING: Final = "_showwarnmsg_impl"
"""What Python shows a warning by. `pytest.warns` and `catch_warnings(record=True)` put another in its place."""
STOP: Final = "Write `async with Consumer(...) as consumer:`, or `await consumer.stop()`"
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

    def describe(self, told: str) -> str:
        """What a failing test's report says of it, beside what was told already, as by the error of `broker.wait`."""
        from aiogroup.embedded.hints import hints  # noqa: PLC0415 (not for tests that need no broker)

        lines = [f"seed {self.seed} (seeds come from the test's name: the same test has the same)"]
        lines += [f"trouble: {each}" for each in self.broker.troubles if str(each) not in told]
        self.look()
        if any(str(each)[:LINE_LENGTH] in told for each in self._exchanges[-EXCHANGES_COUNT:]):
            return "\n".join(lines)
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


class _Made:
    """A consumer that was made while pytest runs: where, and for which test; `None`, for more than one."""

    def __init__(self, consumer: Consumer, where: str, item: pytest.Item | None) -> None:
        self.consumer = ref(consumer)
        self.where = where
        self.item = item


class _Consumers:
    """What tests did wrong with consumers. A consumer may be made and forgotten in any thread."""

    def __init__(self) -> None:
        self.whose: ContextVar[pytest.Item | None] = ContextVar("aiogroup_pytest", default=None)
        self.unawaited: list[str] = []
        self._made: dict[int, _Made] = {}
        self._forgotten: list[str] = []
        self._warn: Any = None
        self._showing: Any = None
        self._root = ""

    def begin(self, config: pytest.Config) -> None:
        """Hear of each coroutine that Python finds to be never awaited, as long as pytest runs."""
        before = getattr(warnings, UNAWAITED_HOOK, None)
        if before is not None and before != self._on_unawaited:  # pytester runs pytest inside of pytest
            self._warn, self._root = before, f"{config.rootpath}{os.sep}"
            setattr(warnings, UNAWAITED_HOOK, self._on_unawaited)
            config.add_cleanup(lambda: setattr(warnings, UNAWAITED_HOOK, before))

    def begin_phase(self) -> None:
        self._showing = getattr(warnings, SHOWING, None)

    @property
    def _is_expected(self) -> bool:
        """Whether the test looks for warnings itself: Python warns of what it takes away."""
        return bool(getattr(warnings, SHOWING, None) != self._showing)

    def on_made(self, consumer: Consumer) -> None:
        frame = sys._getframe(2)
        while _is_ours(frame.f_code.co_filename) and frame.f_back is not None:
            frame = frame.f_back
        where = f"{frame.f_code.co_filename.removeprefix(self._root)}:{frame.f_lineno}"
        self._made[id(consumer)] = _Made(consumer, where, self.whose.get())

    def on_forgotten(self, consumer: Consumer) -> None:
        made = self._made.pop(id(consumer), None)
        if made is not None and not self._is_expected:
            self._forgotten.append(f"{consumer!r}, made at {made.where}")

    def left(self, item: pytest.Item | None = None) -> list[str]:
        """Those that were forgotten. At the end of a test also those that it has left running, and those whose event
        loop is closed, which nobody can stop any more.
        """
        left, self._forgotten = self._forgotten, []
        for key, each in list(self._made.items()) if item is not None else ():
            consumer = each.consumer()
            loop = None if consumer is None else consumer._runs_in
            is_left = loop is not None and (each.item is item or loop.is_closed())
            if is_left:
                left.append(f"{consumer!r}, made at {each.where}")
            if is_left or consumer is None:
                self._made.pop(key, None)
        return left

    def _on_unawaited(self, coroutine: Any) -> None:  # noqa: ANN401 (a coroutine with its frame)
        """Called by Python with a coroutine that it takes away before its first step."""
        name, frame = coroutine.__name__, coroutine.cr_frame
        subject = None if frame is None else frame.f_locals.get("self")
        is_private = name.startswith("_") and not name.startswith("__")
        is_awaited = any(each.__module__ in AWAITED for each in type(subject).__mro__)
        if is_awaited and not is_private and not self._is_expected and _is_ours(coroutine.cr_code.co_filename):
            here = sys._getframe(1)  # where it was dropped: after the test's function has ended this is asyncio's
            file = here.f_code.co_filename
            where = f", at {file.removeprefix(self._root)}:{here.f_lineno}" if file.startswith(self._root) else ""
            call = f"{type(subject).__name__}.{name}()"
            self.unawaited.append(f"{call} was called without await, so it did nothing: {subject!r}{where}")
        if getattr(coroutine, "cr_origin", None) is not None:
            self._warn(coroutine)  # it shows where the coroutine was made
        else:
            text = f"coroutine '{coroutine.__qualname__}' was never awaited"
            warnings.warn(text, category=RuntimeWarning, stacklevel=2, source=coroutine)


def _is_ours(file: str) -> bool:
    package = sys.modules.get("aiogroup")
    return package is not None and file.startswith(package.__path__[0])


_CONSUMERS: Final = _Consumers()
_LENT: Final = pytest.StashKey[list[_Lent]]()
_HAS_FAILED: Final = pytest.StashKey[bool]()
_HAS_RAISED: Final = pytest.StashKey[bool]()
_HAS_LEFT: Final = pytest.StashKey[bool]()
_FAULTS: Final = pytest.StashKey[list[str]]()


def on_consumer_made(consumer: Consumer) -> None:
    """Called by each consumer that is made."""
    _CONSUMERS.on_made(consumer)


def on_consumer_forgotten(consumer: Consumer) -> None:
    """Called by a consumer that Python takes away while it runs."""
    _CONSUMERS.on_forgotten(consumer)


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
    config.pluginmanager.register(_Phases())
    _CONSUMERS.begin(config)
    config.addinivalue_line(
        "markers",
        f"{EXPECTED}(*names): the test's embedded broker gets requests that it refuses; each name of a refusal "
        f"(docs/embedded.md lists them) must occur, and no other may; {LEFT_RUNNING}: a consumer is never stopped",
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


class _Phases:
    """Fails a test that leaves a consumer running when all of its fixtures have ended, or that forgets an `await`."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        item.stash[_HAS_RAISED] = item.stash[_HAS_LEFT] = False
        return (yield from _judged(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        return (yield from _judged(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        return (yield from _judged(item, is_over=True))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Tell what a test has for itself from what it shares with others."""
        if fixturedef.scope == "function":
            return (yield)
        before = _CONSUMERS.whose.set(None)
        try:
            return (yield)
        finally:
            _CONSUMERS.whose.reset(before)


def _judged(item: pytest.Item, *, is_over: bool = False) -> Generator[None, None, None]:
    """A phase of a test, which fails for what was done wrong with consumers, unless the test has ended early anyway.

    In the second case the report of the failure has it: a call that was not awaited is often what a test waits for.
    """
    before = _CONSUMERS.whose.set(item)
    _CONSUMERS.begin_phase()
    try:
        result = yield
    except BaseException:  # skips and expected failures are among them
        item.stash[_HAS_RAISED] = True
        item.stash[_FAULTS] = _faults(item, is_over=is_over)
        raise
    finally:
        _CONSUMERS.whose.reset(before)
    if (faults := _faults(item, is_over=is_over)) and not item.stash.get(_HAS_RAISED, False):
        pytest.fail("\n".join(faults), pytrace=False)
    return result


def _faults(item: pytest.Item, *, is_over: bool) -> list[str]:
    """What was done wrong with consumers since the last call."""
    if "aiogroup" not in sys.modules:
        return []
    left = _CONSUMERS.left(item if is_over else None)
    faults, _CONSUMERS.unawaited = _CONSUMERS.unawaited, []
    if not any(LEFT_RUNNING in marker.args for marker in item.iter_markers(EXPECTED)):
        return faults + [f"a consumer was started and never stopped: {each}. {STOP}" for each in left]
    item.stash[_HAS_LEFT] = item.stash.get(_HAS_LEFT, False) or bool(left)
    if is_over and not item.stash[_HAS_LEFT]:
        faults.append(f"{EXPECTED}: {LEFT_RUNNING} did not happen")
    return faults


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
    if unknown := names - REFUSALS.keys() - {LEFT_RUNNING}:
        there = ", ".join(sorted([*REFUSALS, LEFT_RUNNING]))
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
    missing = sorted(_expected(item) - happened - {LEFT_RUNNING})
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
    """Append the troubles and the last exchanges of each broker that the test had, and calls that were not awaited."""
    report = yield
    if (faults := item.stash.get(_FAULTS, [])) and report.failed:
        item.stash[_FAULTS] = []
        report.sections.append(("aiogroup", "\n".join(faults)))
    if report.failed and _LENT in item.stash:
        item.stash[_HAS_FAILED] = True
        for lent in item.stash[_LENT]:
            report.sections.append((f"the embedded broker at {lent.address}", lent.describe(report.longreprtext)))
    return report
