"""A heartbeat that is not answered in request_timeout_ms is one missed heartbeat, not the end of the session."""

from __future__ import annotations

from aiogroup._core.telemetry.events import HeartbeatAcknowledged, HeartbeatMissed, PartitionsLost
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
