"""FastStream on aiogroup's consumer, on the broker that the tests run on."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("faststream.kafka")

from faststream import AckPolicy

from aiogroup.faststream import KafkaBroker


@pytest.mark.parametrize("max_workers", [1, 3])
@pytest.mark.parametrize("policy", [AckPolicy.ACK_FIRST, AckPolicy.NACK_ON_ERROR], ids=lambda policy: policy.value)
async def test_services_come_and_go_and_no_record_is_lost(make_place, policy, max_workers):
    """Handlers fail, are cancelled by a stop, and hold records while another service joins."""
    place = make_place(4)
    for partition in range(4):
        await place.produce([f"r{number}" for number in range(partition, 200, 4)], partition)
    handled, failed = [], set()
    half, all_handled = asyncio.Event(), asyncio.Event()

    def service(hangs_at):
        stream = KafkaBroker(place.cluster.bootstrap_servers, graceful_timeout=0.1)

        @stream.subscriber(
            place.topic,
            group_id=place.group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            ack_policy=policy,
            max_workers=max_workers,
        )
        async def handle(body: str) -> None:
            if len(set(handled)) == hangs_at:
                half.set()
                await asyncio.Event().wait()
            if body.endswith("7") and body not in failed and policy is AckPolicy.NACK_ON_ERROR:
                failed.add(body)
                raise ValueError(body)
            handled.append(body)
            if len(set(handled)) == 200:
                all_handled.set()

        return stream

    first, second = service(hangs_at=60), service(hangs_at=-1)
    await first.start()
    await half.wait()
    joining = asyncio.create_task(second.start())
    await first.stop()
    await joining
    async with asyncio.timeout(60):
        await all_handled.wait()
    await second.stop()
    assert set(handled) == {f"r{number}" for number in range(200)}
    assert await place.committed_is(50, 50, 50, 50)
