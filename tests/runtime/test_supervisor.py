"""Tasks live and end together, and whoever waits for one is never left waiting."""

from __future__ import annotations

import asyncio
import gc

import anyio
import pytest

from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup._runtime.loop.supervisor import Supervisor
from aiogroup.errors import ConsumerStoppedError


class Watched(Supervisor):
    """Keeps what it was told of failures."""

    def __init__(self):
        self.told = []
        super().__init__(lambda name, error: self.told.append((name, error)))


@pytest.fixture
async def supervisor():
    watched = Watched()
    await watched.start()
    yield watched
    await watched.close()


async def forever(ended):
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(now_ms())


async def fail(after_ms=0, error=None):
    await sleep_ms(after_ms)
    raise error or ValueError("broken")


async def test_when_one_task_dies_all_end_and_the_failure_is_reported_once(supervisor):
    ended = []
    supervisor.spawn("one", forever, ended)
    supervisor.spawn("two", forever, ended)
    supervisor.spawn("broken", fail, 100)
    supervisor.spawn("broken too", fail, 100)
    await sleep_ms(200)
    assert len(ended) == 2
    assert [name for name, _ in supervisor.told] == ["broken"]
    assert isinstance(supervisor.failure, ValueError)
    with pytest.raises(RuntimeError, match="cannot start late"):
        supervisor.spawn("late", forever, ended)


async def test_a_task_that_dies_of_what_is_no_exception_is_reported_too(supervisor):
    class Unusual(BaseException):
        pass

    ended = []
    supervisor.spawn("one", forever, ended)
    supervisor.spawn("broken", fail, 100, Unusual())
    await sleep_ms(200)
    assert len(ended) == 1
    assert [name for name, _ in supervisor.told] == ["broken"]
    assert isinstance(supervisor.failure, Unusual)


async def test_close_waits_no_longer_than_it_may():
    supervisor, may_end = Watched(), asyncio.Event()
    await supervisor.start()

    async def stubborn():
        with anyio.CancelScope(shield=True):
            await may_end.wait()

    supervisor.spawn("stubborn", stubborn)
    await sleep_ms(0)
    began_at_ms = now_ms()
    assert not await supervisor.close(100)
    assert 90 <= now_ms() - began_at_ms < 1_000
    may_end.set()
    assert await supervisor.close()


async def test_task_that_returns_ends_alone(supervisor):
    ended = []
    supervisor.spawn("short", sleep_ms, 10)
    supervisor.spawn("long", forever, ended)
    await sleep_ms(50)
    assert ended == []
    assert supervisor.failure is None


async def test_scope_ends_its_task_alone(supervisor):
    ended, others = [], []
    scope = supervisor.spawn("one", forever, ended)
    supervisor.spawn("two", forever, others)
    await sleep_ms(10)
    scope.cancel()
    await sleep_ms(10)
    assert (len(ended), len(others)) == (1, 0)
    assert supervisor.told == []


async def test_start_and_close_may_come_from_different_tasks():
    supervisor, ended = Watched(), []
    await asyncio.create_task(supervisor.start())
    supervisor.spawn("one", forever, ended)
    await sleep_ms(1)
    await asyncio.create_task(supervisor.close())
    await supervisor.close()
    assert len(ended) == 1
    assert supervisor.failure is None


async def test_close_before_start_returns():
    await Watched().close()


async def test_finish_gives_the_result_or_the_error(supervisor):
    async def answer():
        await sleep_ms(10)
        return 42

    assert await supervisor.finish("answer", answer) == 42
    with pytest.raises(ValueError, match="broken"):
        await supervisor.finish("broken", fail)
    assert supervisor.failure is None
    assert supervisor.told == []


async def test_what_a_callback_of_the_loop_begins_is_carried_out(supervisor):
    """Where sniffio is installed, as many packages bring it along, it knows of no event loop outside of tasks."""
    pytest.importorskip("sniffio", reason="comes with litestar")
    begun = asyncio.get_running_loop().create_future()

    async def work():
        return 7

    asyncio.get_running_loop().call_soon(lambda: begun.set_result(supervisor.begin("work", work)))
    async with asyncio.timeout(10):
        assert await (await begun) == 7


async def test_finish_goes_on_when_its_caller_is_cancelled(supervisor):
    done = []

    async def work():
        await sleep_ms(100)
        done.append(True)

    caller = asyncio.create_task(supervisor.finish("work", work))
    await sleep_ms(10)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await sleep_ms(200)
    assert done == [True]


async def test_error_that_a_cancelled_caller_never_sees_is_not_logged_as_forgotten(supervisor, caplog):
    caller = asyncio.create_task(supervisor.finish("work", lambda: fail(100)))
    await sleep_ms(10)
    caller.cancel()
    await sleep_ms(200)
    assert caller.cancelled()
    del caller
    gc.collect()
    assert caplog.records == []
    assert supervisor.failure is None


@pytest.mark.parametrize("how", ["closed", "failed"])
async def test_nothing_waits_for_ever_when_the_supervisor_ends(supervisor, how):
    async def work():
        await asyncio.Event().wait()

    waiting = [asyncio.create_task(supervisor.finish("work", work)) for _ in range(3)]
    await sleep_ms(10)
    if how == "closed":
        await supervisor.close()
    else:
        supervisor.spawn("broken", fail)
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in ended] == [ConsumerStoppedError] * 3


@pytest.mark.parametrize("moment", ["before start", "after close"])
async def test_finish_without_a_running_supervisor_says_that_it_is_stopped(moment):
    supervisor = Watched()
    if moment == "after close":
        await supervisor.start()
        await supervisor.close()
    with pytest.raises(ConsumerStoppedError):
        await supervisor.finish("work", fail)


async def test_work_that_takes_its_time_to_end_is_waited_for(supervisor):
    ended = []

    async def slow_to_end():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    supervisor.spawn("slow", slow_to_end)
    await sleep_ms(1)
    await supervisor.close()
    assert ended == [True]


@pytest.mark.parametrize("who", ["a task", "all tasks"])
async def test_a_stranger_that_cancels_our_tasks_is_a_failure_and_not_a_silent_end(supervisor, who):
    ended = []
    supervisor.spawn("one", forever, ended)
    supervisor.spawn("two", forever, ended)
    await sleep_ms(1)
    here = asyncio.current_task()
    ours = [task for task in asyncio.all_tasks() if task is not here and task.get_name().startswith("aiogroup")]
    for task in ours if who == "all tasks" else [task for task in ours if task.get_name() == "aiogroup one"]:
        task.cancel()
    await sleep_ms(1)
    assert len(ended) == 2
    assert len(supervisor.told) == 1
    assert "cancelled from outside" in str(supervisor.failure)


async def test_a_stranger_that_cancels_the_owner_alone_is_one_too(supervisor):
    ended = []
    supervisor.spawn("one", forever, ended)
    await sleep_ms(1)
    (owner,) = [task for task in asyncio.all_tasks() if task.get_name() == "aiogroup"]
    owner.cancel()
    await sleep_ms(1)
    assert len(ended) == 1
    assert [name for name, _ in supervisor.told] == ["owner"]


@pytest.mark.parametrize("way", ["finish", "spawn"])
async def test_what_is_begun_after_a_stranger_cancelled_all_tasks_ends_at_once(supervisor, way):
    begun = []

    async def slow_to_end():
        try:
            await asyncio.Event().wait()
        finally:
            with anyio.CancelScope(shield=True):
                await sleep_ms(50)

    async def commit():
        begun.append(True)

    supervisor.spawn("slow", slow_to_end)
    await sleep_ms(1)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await sleep_ms(1)
    assert not supervisor.is_running
    if way == "finish":
        with pytest.raises(ConsumerStoppedError):
            await asyncio.wait_for(supervisor.finish("commit", commit), 0.04)
    else:
        supervisor.spawn("commit", commit)
        await sleep_ms(10)
    assert not begun
