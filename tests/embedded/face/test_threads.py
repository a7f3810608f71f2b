"""Calls from many threads at once, while clients are at work: each is done when it returns."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aiogroup import Consumer
from aiogroup.embedded import Broker, BrokerRefusal, asked, caught_up, stable

THREADS, ROUNDS = 8, 40


async def test_a_function_that_never_returns_does_not_outlast_the_timeout():
    async def wait_for_nothing():
        await asyncio.Event().wait()

    async def raise_an_error():
        raise TimeoutError("its own")

    with Broker() as broker:
        async with asyncio.timeout(30):
            with pytest.raises(TimeoutError, match=r"still not .*wait_for_nothing"):
                await broker.until(wait_for_nothing, timeout_s=0.01)
            with pytest.raises(TimeoutError, match="its own"):
                await broker.until(raise_an_error, timeout_s=0.01)


@pytest.mark.filterwarnings("ignore")
def test_a_loop_that_was_closed_while_it_waited_does_not_end_the_broker():
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # the waiting task is destroyed while it is pending
    with Broker() as broker:
        waiting = loop.create_task(broker.until(stable("billing"), timeout_s=100))
        loop.call_later(0.01, loop.stop)
        loop.run_forever()
        loop.close()
        assert not waiting.done()

        async def list_topics():
            async with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
                return await consumer.topics()

        assert asyncio.run(asyncio.wait_for(list_topics(), 30)) == set()
        assert broker.troubles == []


async def test_calls_from_many_threads():
    with Broker(nodes=3, seed=1) as broker:
        broker.create_topic("orders", partitions=THREADS)
        begin = threading.Barrier(THREADS)

        def work(number):
            begin.wait()
            for count in range(ROUNDS):
                offset = broker.produce("orders", b"%d-%d" % (number, count), partition=number)
                assert offset == count
                assert broker.records("orders", number)[-1].offset == count
                topic = f"own-{number}"
                broker.create_topic(topic)
                with broker.error("Fetch", "UNKNOWN_SERVER_ERROR", topic=topic):
                    assert broker.lag("billing") is not None
                with broker.delay("Metadata", ms=1, times=1):
                    broker.wait(asked("ApiVersions"))
                broker.group("billing")
                broker.delete_topic(topic)

        async def read():
            async with Consumer(
                "orders",
                group_id="billing",
                bootstrap_servers=broker.bootstrap_servers,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                seen = [bytes((await anext(consumer)).value) for _ in range(THREADS * ROUNDS)]
                await consumer.commit()
            return seen

        with ThreadPoolExecutor(THREADS) as pool:
            loop = asyncio.get_running_loop()
            reading = asyncio.create_task(read())
            await asyncio.gather(*(loop.run_in_executor(pool, work, number) for number in range(THREADS)))
            async with asyncio.timeout(60):
                seen = await reading
        assert sorted(seen) == sorted(b"%d-%d" % (n, c) for n in range(THREADS) for c in range(ROUNDS))
        await broker.until(caught_up("billing"))
        assert [str(each) for each in broker.troubles] == []
        assert not broker.snapshot().topics[1:]


def test_a_port_taken_while_the_node_was_down_is_refused_at_start():
    with Broker() as broker, socket.socket() as other:
        (node,) = broker.nodes
        node.stop()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", node.port))
        other.listen()
        with pytest.raises(BrokerRefusal, match=f"cannot have the port {node.port}"):
            node.start()
