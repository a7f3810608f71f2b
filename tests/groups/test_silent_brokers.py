"""A broker that leads partitions answers no fetch: fresh metadata would tell that it leads them no more."""

from __future__ import annotations

import itertools

from aiogroup._core.protocol.messages.fetch import FetchRequest
from aiogroup._core.protocol.messages.metadata import MetadataRequest
from tests.groups.scripted import sleep_ms

MAX_WAIT_MS = 500
OVERDUE_MS = 3_000


async def test_metadata_are_asked_for_when_a_fetch_is_overdue_and_again_until_it_is_answered(group):
    settings = {"fetch_max_wait_ms": MAX_WAIT_MS, "request_timeout_ms": 60_000, "metadata_max_age_ms": 600_000}
    (member,) = await group.joined("one", **settings)
    await sleep_ms(10_000)
    assert not group.sent(MetadataRequest, since_ms=group.now_ms - 8_000), "metadata are asked for without a reason"
    group.network.withheld = (FetchRequest,)
    await sleep_ms(10_000)
    asked_at_ms = group.sent(FetchRequest)[-1].at_ms
    looked = [each.at_ms - asked_at_ms for each in group.sent(MetadataRequest, since_ms=asked_at_ms)]
    assert abs(looked[0] - MAX_WAIT_MS - OVERDUE_MS) < 100
    assert all(500 < later - before < 2_000 for before, later in itertools.pairwise(looked)), looked
    assert len(looked) > 3
    group.network.withheld = ()
    assert member.partitions
