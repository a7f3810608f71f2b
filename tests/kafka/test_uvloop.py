"""The same on uvloop, which FastAPI's servers run on where it is installed."""

from __future__ import annotations

import asyncio
import random

import pytest
import uvloop

from aiogroup._core.telemetry.events import EventLoopBlocked
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Listener, eventually, take


@pytest.fixture
def runner():
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


def noise(size_bytes: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_records_of_every_length_come_as_they_were_sent_and_go_on_where_they_were_committed(make_place, runner, codec):
    """Long ones are received apart; long compressed batches are decompressed in a thread."""
    sizes = [0, 1, 100, 20_000, 70_000, 300_000, 900_000] * 6
    sent = [noise(size, seed) for seed, size in enumerate(sizes)]
    place = make_place()

    async def produce() -> None:
        async with place.producer(compression_type=codec, max_batch_size=1_000_000) as producer:
            for value in sent:
                await producer.send(place.topic, value, partition=0)
            await producer.flush()

    async def read(count: int) -> list[bytes]:
        came: list[bytes] = []
        async with asyncio.timeout(60), place.consumer() as consumer:
            async for record in consumer:
                came.append(record.value)
                if len(came) == count:
                    break
            await consumer.commit()
        return came

    runner.run(produce())
    assert runner.run(read(20)) == sent[:20]
    assert runner.run(read(len(sent) - 20)) == sent[20:]


def test_two_members_share_and_one_takes_over(make_place, runner):
    place, listener = make_place(2), Listener()

    async def main() -> None:
        for partition in (0, 1):
            await place.produce(range(3), partition)
        async with place.consumer(listener=listener) as stays, asyncio.timeout(60):
            await take(stays, 6)
            asking = asyncio.ensure_future(stays.getone())  # with a record in hand it would hold the other one up
            async with place.consumer() as leaves:
                await eventually(lambda: len(leaves.assignment()) == len(stays.assignment()) == 1)
            await eventually(lambda: len(stays.assignment()) == 2)
            await place.produce(["last"])
            assert (await asking).value == b"last"
            await stays.commit()
            assert await place.committed_is(4, 3)

    runner.run(main())
    assert listener.names()[:3] == ["assigned", "revoked", "assigned"]


def test_what_a_silent_broker_is_asked_ends_in_time(make_place, runner):
    place, ears = make_place(), Ears()

    async def main() -> None:
        async with Proxy(place.cluster.bootstrap_servers) as proxy:
            consumer = place.consumer(bootstrap_servers=proxy.bootstrap_servers, observers=[ears])
            await place.produce(range(3))
            await consumer.start()
            await take(consumer, 3)
            proxy.drop(before=True)
            loop = asyncio.get_running_loop()
            since = loop.time()
            report = await consumer.stop(timeout_ms=1_000)
            assert loop.time() - since <= 1.4
            assert report.not_committed == {place.tp(): 2}

    runner.run(main())
    assert not ears.heard(EventLoopBlocked)
