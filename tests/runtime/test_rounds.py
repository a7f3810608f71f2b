"""What is sent for a rebalance, and what is not sent any more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aiogroup._core.membership import facts as f
from aiogroup._core.protocol.messages.api_versions import ApiVersionsRequest
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._runtime.loop.clock import now_ms, sleep_ms
from aiogroup._runtime.membership.classic.rounds import ClassicRounds
from aiogroup._runtime.net.link import COMMIT, JOIN
from aiogroup.config import ConsumerConfig
from tests.membership.test_static_member import DRAFT
from tests.support.coordinator import Member, apis

CONFIG = ConsumerConfig(group_id="billing", member_name="pod-1", expansion_timeout_ms=240_000)


class Coordinators:
    """Answers ApiVersions, and takes JoinGroup without an answer. The first one has gone when JoinGroup is written."""

    def __init__(self, member):
        self.member = member
        self.membership = member.machine
        self.written = []
        self.has_moved = False
        self.search_ms = 0

    async def get_ready(self, channel, timeout):
        pass

    async def report(self, fact):
        self.member.report(fact)

    async def find(self):
        await sleep_ms(self.search_ms)

    async def exchange(self, channel, timeout, request):
        if channel == JOIN and not self.has_moved:
            self.has_moved = True
            self.member.report(f.CoordinatorGone())
        message = request()
        if message is not None:
            self.written.append((type(message), channel, timeout))
        return apis(is_draft=True) if isinstance(message, ApiVersionsRequest) else None


def rounds_of(member, coordinators):
    member.ask(f.HandOver)
    member.report(f.HandedOver())
    supervisor = SimpleNamespace(spawn=lambda *_: None)
    return ClassicRounds(CONFIG, supervisor, None, coordinators, None, member.machine.forms, None, None)


async def test_a_join_that_was_made_for_a_coordinator_that_is_gone_is_not_sent():
    member = Member("pod-1", settings=DRAFT)
    coordinators = Coordinators(member)
    rounds = rounds_of(member, coordinators)
    for kind in (ApiVersionsRequest, JoinGroupRequest, ApiVersionsRequest, JoinGroupRequest):
        await rounds.exchange(member.ask(kind))
    asked = ApiVersionsRequest, COMMIT, CONFIG.request_timeout_ms
    assert coordinators.written == [
        asked,
        asked,
        (JoinGroupRequest, JOIN, CONFIG.join_timeout_ms + DRAFT.expansion_timeout_ms),
    ]


@pytest.mark.parametrize("search_ms", [100_000, 10_000_000])
async def test_a_coordinator_that_is_asked_for_its_form_is_looked_for_as_long_as_with_join_group(search_ms):
    member = Member("pod-1", settings=DRAFT)
    coordinators = Coordinators(member)
    coordinators.search_ms = search_ms
    began_ms = now_ms()
    await rounds_of(member, coordinators).exchange(member.ask(ApiVersionsRequest))
    assert now_ms() - began_ms == min(search_ms, CONFIG.join_timeout_ms)
    assert len(coordinators.written) == 1
