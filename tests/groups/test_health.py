"""What `health()` says while brokers do not answer, and of topics that do not exist. On the virtual clock."""

from __future__ import annotations

import pytest

from aiogroup import HealthStatus
from tests.groups.scripted import SESSION_MS, TOPIC, sleep_ms
from tests.support.group_members import until

SILENT_MS = 30_000
MOMENT_MS = 500


def status(member):
    return member.consumer.health().status


@pytest.mark.parametrize("group_id", ["billing", None])
async def test_a_consumer_that_no_broker_answers_is_unreachable_until_one_does(group, group_id):
    """With a group after a session without an answer to a heartbeat, without one after 30 s without one to a fetch."""
    member = await group.member("m", group_id=group_id, request_timeout_ms=8_000).start()
    group.produce(0, 1)
    await until(lambda: len(member.records) == 2)
    await sleep_ms(2 * SILENT_MS)  # nothing new: that is no silence
    assert status(member) is HealthStatus.READY
    silent_ms = SILENT_MS if group_id is None else SESSION_MS
    group.network.block_nodes(member.process, [1, 2], 3 * SILENT_MS)
    blocked_ms = group.now_ms
    await until(lambda: status(member) is HealthStatus.UNREACHABLE, 60)
    health = member.consumer.health()
    assert silent_ms - 6_000 < group.now_ms - blocked_ms <= silent_ms + MOMENT_MS  # a fetch waits for 5 s by itself
    assert (health.is_alive, health.is_ready) == (True, False)
    assert health.why.startswith("no broker has answered a fetch for" if group_id is None else "no heartbeat was")
    await sleep_ms(SILENT_MS)
    assert status(member) is HealthStatus.UNREACHABLE
    await until(lambda: status(member) is HealthStatus.READY, 90)
    assert group.now_ms - blocked_ms >= 3 * SILENT_MS


async def test_with_a_group_that_counts_it_the_fetches_count_too(group):
    """The coordinator answers, and no leader does."""
    member = await group.member("m", request_timeout_ms=8_000).start()
    await group.shared_out(member)
    group.brokers.move_leader(TOPIC, 0, 2)
    group.brokers.move_leader(TOPIC, 1, 2)
    await sleep_ms(10_000)
    group.network.block_nodes(member.process, [2], 2 * SILENT_MS)
    await sleep_ms(SILENT_MS - 6_000)
    assert status(member) is HealthStatus.READY
    await until(lambda: status(member) is HealthStatus.UNREACHABLE, 10)
    assert "fetch" in member.consumer.health().why
    await until(lambda: status(member) is HealthStatus.READY, 90)


async def test_who_wants_no_record_waits_for_no_answer(group):
    member = await group.member("m", group_id=None, reads=False).start()
    await until(lambda: member.partitions)
    member.call("pause", *member.consumer.assignment())
    await sleep_ms(2 * SILENT_MS)
    assert status(member) is HealthStatus.PAUSED
    member.call("resume", *member.consumer.assignment())
    assert status(member) is HealthStatus.READY


async def test_a_member_that_finds_no_coordinator_is_unreachable(group):
    member = await group.member("m", reads=False, request_timeout_ms=5_500).start()
    await group.shared_out(member)
    group.network.block_nodes(member.process, [1, 2], 2 * SILENT_MS)
    await member.do(member.consumer.enforce_rebalance())
    await until(lambda: status(member) is not HealthStatus.REBALANCING, 50)  # the JoinGroup itself may take 25 s
    assert status(member) is HealthStatus.UNREACHABLE
    await until(lambda: status(member) is HealthStatus.READY, 90)


@pytest.mark.parametrize("group_id", ["billing", None])
async def test_a_consumer_of_topics_that_do_not_exist_is_not_ready(group, group_id):
    member = group.member("m", group_id=group_id, topics=("ordres", "bils"), metadata_max_age_ms=2_000)
    await member.start()
    await sleep_ms(2 * SESSION_MS)
    health = member.consumer.health()
    assert (health.status, health.is_ready, health.is_alive) == (HealthStatus.DEGRADED, False, True)
    assert health.missing_topics == ("bils", "ordres")
    assert health.why == "nothing to read; no broker knows bils, ordres"
    group.brokers.add_partitions("ordres", 1)
    await until(lambda: member.consumer.health().is_ready)
    health = member.consumer.health()
    assert (health.status, health.missing_topics) == (HealthStatus.DEGRADED, ("bils",))
    assert health.why == "reads; no broker knows bils"
    group.brokers.add_partitions("zbils", 1)
    member.call("subscribe", ["ordres", "zbils"])
    await until(lambda: status(member) is HealthStatus.READY, what=member.tail)
    assert member.consumer.health().missing_topics == ()


async def test_the_older_of_two_with_one_static_name_is_fenced(group):
    """Alive, since a restart would take the name back, and not ready."""
    older = await group.member("older", group_instance_id="one").start()
    await group.shared_out(older)
    newer = await group.member("newer", group_instance_id="one").start()
    await until(lambda: status(older) is HealthStatus.FENCED)
    health = older.consumer.health()
    assert (health.is_alive, health.is_ready) == (True, False)
    assert status(newer) is HealthStatus.READY
