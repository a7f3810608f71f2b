"""The pytest plug-in and consumers: a test fails that leaves one running, or that forgets an `await`."""

from __future__ import annotations

import re

import pytest

from tests.support.nested_pytest import run_pytest

HELPER = """
from aiogroup import Consumer

kept = []

def consumer_of(broker, keep=True, group="billing"):
    made = Consumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id=group)  # made here
    if keep:
        kept.append(made)
    return made
"""
OWN_LOOPS = """
import asyncio
import gc
import pytest
from helper import consumer_of

@pytest.fixture(autouse=True)
def topic(aiogroup_broker):
    aiogroup_broker.create_topic("orders")

@pytest.fixture
async def given(aiogroup_broker):
    consumer = consumer_of(aiogroup_broker)
    await consumer.start()
    yield consumer

@pytest.fixture
async def make(aiogroup_broker):
    made = []

    async def make():
        made.append(consumer_of(aiogroup_broker))
        await made[-1].start()
        return made[-1]

    yield make
    for each in made:
        await each.stop()

@pytest.fixture
async def never_stopped(make):
    consumer = await make()
    yield consumer
    consumer.stop()

async def test_stopped(aiogroup_broker):
    async with consumer_of(aiogroup_broker) as consumer:
        await consumer.commit()

async def test_new(aiogroup_broker):
    consumer_of(aiogroup_broker)

async def test_made(make):
    await make()

async def test_left(aiogroup_broker):
    await consumer_of(aiogroup_broker).start()

async def test_start_ended_with_the_loop(aiogroup_broker):
    task = asyncio.create_task(consumer_of(aiogroup_broker).start())
    aiogroup_broker.pause()
    await asyncio.sleep(0)

async def test_given(given):
    pass

async def test_forgotten(aiogroup_broker):
    await consumer_of(aiogroup_broker, keep=False).start()
    gc.collect()

def test_in_a_loop_of_its_own(aiogroup_broker):
    asyncio.run(consumer_of(aiogroup_broker).start())

async def test_left_and_failing(aiogroup_broker):
    await consumer_of(aiogroup_broker).start()
    assert 1 == 2

@pytest.mark.xfail(strict=True)
async def test_left_and_expected_to_fail(aiogroup_broker):
    await consumer_of(aiogroup_broker).start()
    assert 1 == 2

async def test_warned_of(aiogroup_broker):
    with pytest.warns(ResourceWarning, match="forgotten without stop"):
        await consumer_of(aiogroup_broker, keep=False).start()
        gc.collect()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        consumer_of(aiogroup_broker).commit()

@pytest.mark.expected_troubles("left_running")
async def test_as_expected(aiogroup_broker):
    await consumer_of(aiogroup_broker).start()

@pytest.mark.expected_troubles("left_running")
async def test_forgotten_as_expected(aiogroup_broker):
    await consumer_of(aiogroup_broker, keep=False).start()
    gc.collect()

@pytest.mark.expected_troubles("left_running")
async def test_too_little(aiogroup_broker):
    pass

async def test_no_await(make):
    consumer = await make()
    consumer.commit()  # no await

async def test_no_await_of_what_is_kept(make):
    kept = (await make()).commit()

async def test_no_await_of_anext(make):
    consumer = await make()
    anext(consumer)

async def test_no_await_of_the_broker(aiogroup_broker):
    aiogroup_broker.until(lambda: False)

async def test_no_await_and_failing(make):
    consumer = await make()
    consumer.commit()  # no await, and this fails
    assert 1 == 2

async def test_no_await_at_the_end(never_stopped):
    pass

async def test_no_await_of_ones_own():
    asyncio.sleep(0)

async def test_closed(make):
    (await make()).commit().close()
"""
OWN_ENDS = {
    "PASSED": "stopped new made as_expected forgotten_as_expected no_await_of_ones_own closed warned_of "
    "left start_ended_with_the_loop given in_a_loop_of_its_own too_little no_await_at_the_end",
    "FAILED": "forgotten left_and_failing no_await "
    "no_await_of_what_is_kept no_await_of_anext no_await_of_the_broker no_await_and_failing",
    "ERROR": "left given in_a_loop_of_its_own too_little no_await_at_the_end",
    "XFAIL": "left_and_expected_to_fail",
}
"""How the tests end. Those that pass and are errors, too, are judged when their fixtures have ended."""

ONE_LOOP = """
import asyncio
import pytest
from aiogroup import Consumer
from aiogroup.asgi import Loop, Service
from aiogroup.embedded import Broker
from helper import consumer_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

@pytest.fixture(scope="module")
def broker():
    with Broker(auto_create_topics=True) as broker:
        broker.create_topic("orders")
        yield broker

@pytest.fixture(scope="module")
async def shared(broker):
    async with consumer_of(broker, group="1") as consumer:
        yield consumer

@pytest.fixture(scope="module")
async def shared_and_left(broker):
    consumer = consumer_of(broker, group="2")
    await consumer.start()
    yield consumer

@pytest.fixture(scope="module")
async def service(broker):
    failed = []

    async def body(consumer):
        if not failed:
            failed.append(consumer)
            raise ValueError("once")
        async for _ in consumer:
            pass

    service = Service(billing=Loop(lambda: consumer_of(broker, group="3"), body))
    async with service.running():
        yield service

async def test_shared(shared, shared_and_left):
    pass

async def test_restarted(service, broker):
    await broker.until(lambda: service["billing"].restarts_count == 1 and service["billing"].health().is_ready)

async def test_left(broker):
    await consumer_of(broker, group="4").start()

async def test_left_by_a_task(broker):
    async def work():
        await consumer_of(broker, group="5").start()

    await asyncio.create_task(work())

async def test_last(shared):
    pass
"""
ONE_ENDS = {"PASSED": "shared restarted left left_by_a_task last", "ERROR": "left left_by_a_task last"}
IN_ANYIO = ("-p", "anyio.pytest_plugin", "-o", "anyio_mode=auto")
IN_ASYNCIO = (
    "-p",
    "pytest_asyncio.plugin",
    "-o",
    "asyncio_mode=auto",
    "-o",
    "asyncio_default_fixture_loop_scope=function",
)


def ran(folder, module, *options):
    """What pytest prints of this module."""
    (folder / "helper.py").write_text(HELPER)
    (folder / "test_it.py").write_text(module)
    return run_pytest(folder, *options).stdout


def ends_of(told):
    ends = {}
    for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR|XFAIL) test_it\.py::test_(\w+)", told, re.MULTILINE):
        ends.setdefault(outcome, []).append(name)
    return {outcome: sorted(names) for outcome, names in ends.items()}


def report_of(told, title):
    """The part of the output that has this title."""
    _, found = re.split(rf"^_+ {title}(?:\[asyncio\])? _+$", told, flags=re.MULTILINE)
    return re.split(r"^(?:_+ .+ _+|=+ .+ =+)$", found, flags=re.MULTILINE)[0]


def line_of(text, words):
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(words))


@pytest.mark.parametrize("options", [IN_ASYNCIO, IN_ANYIO], ids=["asyncio", "anyio"])
def test_each_test_that_leaves_a_consumer_or_forgets_an_await_fails(tmp_path, options):
    told = ran(tmp_path, OWN_LOOPS, *options)
    assert ends_of(told) == {outcome: sorted(names.split()) for outcome, names in OWN_ENDS.items()}, told
    made = rf"helper\.py:{line_of(HELPER, '# made here')}"
    consumer = r"<Consumer group='billing' topics=\['orders'\] running>"
    for name in ("left", "given", "in_a_loop_of_its_own"):
        said = report_of(told, f"ERROR at teardown of test_{name}")
        assert re.match(rf"\na consumer was started and never stopped: {consumer}, made at {made}\..*async with", said)
    assert re.search(rf"never stopped: {consumer}, made at {made}", report_of(told, "test_forgotten"))
    assert "left_running did not happen" in report_of(told, "ERROR at teardown of test_too_little")
    said = report_of(told, "test_no_await")
    line = line_of(OWN_LOOPS, "# no await")
    assert re.match(rf"\nConsumer\.commit\(\) .*without await.*: {consumer}, at test_it\.py:{line}\n", said)
    assert "Consumer.commit() was called without await" in report_of(told, "test_no_await_of_what_is_kept")
    assert "Broker.until() was called without await" in report_of(told, "test_no_await_of_the_broker")
    assert "Consumer.stop() was called without" in report_of(told, "ERROR at teardown of test_no_await_at_the_end")
    said = report_of(told, "test_no_await_and_failing")
    assert "assert 1 == 2" in said
    assert f"at test_it.py:{line_of(OWN_LOOPS, 'and this fails')}" in said


def test_in_a_shared_loop_the_test_that_leaves_a_consumer_is_told_from_what_the_module_has(tmp_path):
    told = ran(tmp_path, ONE_LOOP, *IN_ASYNCIO, "-o", "asyncio_default_fixture_loop_scope=module")
    assert ends_of(told) == {outcome: sorted(names.split()) for outcome, names in ONE_ENDS.items()}, told
    assert told.count("a consumer was started and never stopped") == 3
