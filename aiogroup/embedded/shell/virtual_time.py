"""Replaces, while a virtual loop runs, code that reads the time without the loop, or depends on memory addresses."""

from __future__ import annotations

import asyncio
import contextlib
import random
import weakref
from collections.abc import Coroutine, Iterator
from functools import partial
from importlib import import_module
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, TypeAlias, TypeVar

from aiogroup.embedded.shell.virtual_loop import VirtualLoop, VirtualTimeError

__all__ = ["run_virtual", "virtual_time"]

T = TypeVar("T")
_Layer: TypeAlias = "dict[tuple[Any, str], object]"
"""Replacements: the new value for each attribute of a module or a class."""

CLOCKS = (
    "aiokafka.client",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.consumer.subscription_state",
    "aiokafka.producer.message_accumulator",
    "aiogroup._runtime.delivery.turn",
    "aiogroup._runtime.loop.clock",
)
"""Modules that read `time` where they could ask the loop."""
NANOSECOND_S = 1e-9
NANOSECONDS_IN_A_MS = 1_000_000
TURN_MS = 3_600_000
"""The length of a cursor's turn, which is measured by the real clock even here. It is so long that no turn ends because
of a busy machine.
"""
UNORDERED = (("anyio._backends._asyncio", "CancelScope"), ("aiogroup._runtime.net.connection", "Connection"))
"""Classes whose objects are in sets that are iterated."""


class _Rising:
    """The loop's clock, which rises by a nanosecond with each read: aiokafka retries without a wait until a deadline
    has passed.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._last_s = 0.0

    def time(self) -> float:
        self._last_s = max(self._loop.time(), self._last_s + NANOSECOND_S)
        return self._last_s


class _Replacements:
    """The replacements of all virtual loops.

    The newest loop's replacement applies. Loops may end in any order: an older loop's replacement never outlives it,
    and the originals come back when the last loop has ended.
    """

    def __init__(self) -> None:
        self._layers: list[_Layer] = []
        self._originals: dict[tuple[Any, str], Any] = {}

    def add(self, layer: _Layer) -> None:
        for place, name in layer:
            self._originals.setdefault((place, name), getattr(place, name))
        self._layers.append(layer)
        self._apply()

    def remove(self, layer: _Layer) -> None:
        self._layers = [each for each in self._layers if each is not layer]
        self._apply()

    def _apply(self) -> None:
        for at, original in self._originals.items():
            setattr(*at, next((each[at] for each in reversed(self._layers) if at in each), original))
        if not self._layers:
            self._originals.clear()


_replacements = _Replacements()


@contextlib.contextmanager
def virtual_time(loop: VirtualLoop, *modules: ModuleType) -> Iterator[None]:
    """Replace `time` in the clients' modules that ask it, and in `modules`, by the loop's clock.

    A broker in a virtual loop does this by itself, as long as it lives. The replacement applies to the whole process,
    so two virtual loops must not run at the same time.
    """
    clock = SimpleNamespace(
        monotonic=_Rising(loop).time, time=loop.wall_s, time_ns=lambda: loop.now_ms() * NANOSECONDS_IN_A_MS
    )
    layer: _Layer = {(own, "time"): clock for own in modules}

    def replace(module: str, name: str, new: object) -> None:
        if _found(module, name):
            layer[import_module(module), name] = new

    for module in CLOCKS:
        replace(module, "time", clock)
    replace("aiogroup._runtime.build", "TURN_MS", TURN_MS)
    for each in _found("aiogroup._runtime.delivery.turn", "Turn"):
        layer[each, "left_ns"] = lambda _turn: TURN_MS * NANOSECONDS_IN_A_MS
    replace("aiogroup._runtime.recovery.catch_up", "secrets", SimpleNamespace(token_bytes=random.randbytes))
    for each in _found("aiogroup._runtime.membership.heartbeat_thread", "HeartbeatThread"):
        layer[each, "__init__"] = _refuse_thread
    with contextlib.ExitStack() as stack:
        for module, name in UNORDERED:
            for each in _found(module, name):
                stack.enter_context(_numbered(each))
        _replacements.add(layer)
        end = partial(_replacements.remove, layer)
        loop.at_close.append(end)  # the loop may be closed before its brokers are
        try:
            yield
        finally:
            end()
            if not loop.is_closed():
                loop.at_close.remove(end)


def _found(module: str, name: str) -> list[Any]:
    """The module's attribute as a list; empty if another package's version has no such attribute."""
    missing = () if module.startswith("aiogroup.") else (ImportError, AttributeError)
    with contextlib.suppress(*missing):
        return [getattr(import_module(module), name)]
    return []


def _refuse_thread(*_args: object) -> NoReturn:
    raise VirtualTimeError(
        "heartbeat_thread=True needs the real clock, by which its thread lives: leave it out in virtual time"
    )


class _Numbers:
    """Lets the objects of a class that are made in virtual time hash by number. All others keep their usual hash.

    It stays in the class for good: objects in sets must keep their hash.
    """

    def __init__(self, kind: type[Any]) -> None:
        self.virtual_times_count = 0
        self._numbers = count()
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        make = kind.__init__

        def init(made: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401
            if self.virtual_times_count:
                self._known[id(made)] = (weakref.ref(made, partial(self._forget, id(made))), next(self._numbers))
            make(made, *args, **options)

        def number(made: Any) -> int:  # noqa: ANN401
            known = self._known.get(id(made))
            return object.__hash__(made) if known is None else known[1]

        kind.__init__ = init
        kind.__hash__ = number  # type: ignore[assignment]

    def begin(self) -> None:
        if not self.virtual_times_count:
            self._numbers = count()
        self.virtual_times_count += 1

    def _forget(self, place: int, _gone: object) -> None:
        self._known.pop(place, None)


_numbers_of: dict[type[Any], _Numbers] = {}


@contextlib.contextmanager
def _numbered(kind: type[Any]) -> Iterator[None]:
    numbers = _numbers_of.get(kind)
    if numbers is None:
        numbers = _numbers_of[kind] = _Numbers(kind)
    numbers.begin()
    try:
        yield
    finally:
        numbers.virtual_times_count -= 1


def _is_in_a_loop() -> bool:
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def run_virtual(work: Coroutine[Any, Any, T], *, seed: int = 0, begin_ms: int | None = None) -> T:
    """As `asyncio.run`, in virtual time.

    Args:
        work: the coroutine to run.
        seed: the seed of the `random` module meanwhile, which clients use to choose brokers and to wait.
        begin_ms: the time of day at which it begins, in ms since 1970; now, if it is `None`.

    Raises:
        StuckError: every task waits and no timer will wake one, or time does not go on.
        VirtualTimeError: an event loop runs in this thread already.
    """
    if _is_in_a_loop():
        work.close()
        raise VirtualTimeError(
            "run_virtual() makes an event loop, and an event loop runs in this thread already: call it from a plain "
            "function (in pytest `def test_...`), or mark the test with virtual_time"
        )
    state = random.getstate()
    random.seed(seed)
    try:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(begin_ms)) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            with virtual_time(loop):
                return runner.run(work)
    finally:
        random.setstate(state)
