"""What a heartbeat that failed is told as: one missed heartbeat, which need not be the end of anything."""

from __future__ import annotations

import dataclasses

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.heartbeat import HeartbeatRequest
from aiogroup._core.telemetry.events import HeartbeatAcknowledged, HeartbeatMissed, PartitionsLost
from aiogroup.testing import Proxy
from tests.support.kafka import Ears, Place, eventually


async def test_a_request_that_times_out_is_not_reported_as_the_sessions_end(cluster_1, unique_name):
    place = Place(cluster_1, unique_name("topic"), unique_name("group"))
    cluster_1.create_topic(place.topic)
    ears = Ears()
    (node,) = cluster_1.nodes
    # The broker's own clock stands still meanwhile, so the membership survives.
    async with place.consumer(session_timeout_ms=20_000, request_timeout_ms=1_000, observers=[ears]):
        await eventually(lambda: ears.heard(HeartbeatAcknowledged))
        node.pause()
        try:
            await eventually(lambda: len(ears.heard(HeartbeatMissed)) >= 2, 15)
        finally:
            node.resume()
        acknowledged_count = len(ears.heard(HeartbeatAcknowledged))
        await eventually(lambda: len(ears.heard(HeartbeatAcknowledged)) > acknowledged_count, 20)
    assert not [each.why for each in ears.heard(HeartbeatMissed) if "session_timeout_ms" in each.why]
    assert not ears.heard(PartitionsLost)


async def test_a_round_that_ended_meanwhile_is_no_warning_and_partitions_that_it_took_are(make_place):
    place, ears = make_place(), Ears()

    def refuse(exchange):
        proxy.clear()
        return dataclasses.replace(exchange.response, error_code=ErrorCode.ILLEGAL_GENERATION)

    async with Proxy(place.cluster.bootstrap_servers) as proxy:
        proxy.rewrite(HeartbeatRequest, refuse)
        servers = proxy.bootstrap_servers
        async with place.consumer(bootstrap_servers=servers, heartbeat_interval_ms=200, observers=[ears]) as consumer:
            await eventually(lambda: ears.heard(PartitionsLost))
            await eventually(consumer.assignment)
    (missed,) = ears.heard(HeartbeatMissed)
    assert (missed.why, missed.level) == ("ILLEGAL_GENERATION", "info")
    assert [each.level for each in ears.heard(PartitionsLost)] == ["warning"]
