"""What `aiogroup.admin` makes of answers that make no sense; what it does with good ones, a real broker judges."""

from __future__ import annotations

import pytest

from aiogroup._core.cluster import Cluster
from aiogroup._core.protocol.messages.describe_groups import DescribeGroupsResponse
from aiogroup._core.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aiogroup._runtime.net import group_link
from aiogroup.admin import list_members
from aiogroup.errors import BrokerError

FOUND = Coordinator(key="billing", node_id=0, host="localhost", port=9092, error_code=0, error_message=None)


class Link:
    """Whatever is asked, the answers are these."""

    found = FindCoordinatorResponse(coordinators=(FOUND,))

    def __init__(self, _config):
        self.cluster = Cluster()

    async def fetch_metadata(self, _topics):
        return self.cluster

    async def ask_any(self, _request):
        return self.found

    async def send(self, _node_id, _request, _channel, **_more):
        return DescribeGroupsResponse(groups=())

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


async def test_an_answer_without_the_group_is_a_typed_error(monkeypatch):
    monkeypatch.setattr(group_link, "Link", Link)
    with pytest.raises(BrokerError, match="0 times a group for 'billing'"):
        await list_members("billing")


async def test_an_answer_without_a_coordinator_is_a_typed_error(monkeypatch):
    monkeypatch.setattr(group_link, "Link", Link)
    monkeypatch.setattr(Link, "found", FindCoordinatorResponse(coordinators=()))
    with pytest.raises(BrokerError, match="0 times a coordinator for 'billing'"):
        await list_members("billing")
