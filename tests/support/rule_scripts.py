"""Scripts of rules that run against a proxy in front of a cluster, and against the embedded broker's own rules."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer

from aiogroup import Consumer, TopicPartition
from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.telemetry import events
from tests.support.kafka import QUICK, Ears, eventually

__all__ = ["SCRIPTS", "played"]

BY_TIME = (events.HeartbeatSent, events.HeartbeatAcknowledged, events.EventLoopBlocked)
"""Events that depend on the clock, and come at other times on a busy machine. No rule of a broker causes them."""
IMPATIENT_MS = 1_000
"""The request time-out for scripts in which an answer never comes. Others allow more time, for a busy machine."""
QUICK_BEAT_MS, SLOW_BEAT_MS = 100, 1_500
"""Heartbeat intervals. A script about commits uses the slow one and ends before the first heartbeat: otherwise it would
be left to chance whether a heartbeat is cut off with the commits.
"""


class Stage:
    """A consumer behind rules, and what was heard of it."""

    def __init__(self, rules: Any, servers: str, plain_servers: str, topic: str, group: str, **settings: int) -> None:
        self.rules = rules
        self.ears = Ears()
        self.topic = topic
        self._plain_servers = plain_servers
        given = {**QUICK, "retry_backoff_ms": 50, "enable_auto_commit": False, **settings}
        self.consumer = Consumer(topic, bootstrap_servers=servers, group_id=group, observers=[self.ears], **given)

    async def produce(self, *values: bytes) -> None:
        """Produce without passing the rules."""
        producer = AIOKafkaProducer(bootstrap_servers=self._plain_servers)
        await producer.start()
        for value in values:
            await producer.send_and_wait(self.topic, value, partition=0)
        await producer.stop()

    async def take(self, *values: bytes) -> None:
        for value in values:
            async with asyncio.timeout(20):
                assert bytes((await anext(self.consumer)).value) == value

    async def heard(self, kind: type[events.Event], count: int = 1) -> None:
        await eventually(lambda: len(self.ears.heard(kind)) >= count, within_s=20)

    async def is_over(self) -> None:
        """Wait until the next heartbeat is answered, and the ends of lost connections and missed heartbeats are
        reported.
        """
        await self.heard(events.FailingEnded, 2)

    async def used(self, rule: Any, count: int = 1) -> None:
        await eventually(lambda: rule.used_count >= count, within_s=20)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)


async def a_heartbeat_is_cut(stage: Stage) -> None:
    stage.rules.cut("Heartbeat", times=1)
    await stage.heard(events.CoordinatorFound, 2)
    await stage.is_over()
    await stage.produce(b"1")
    await stage.take(b"1")


async def a_heartbeat_is_cut_before_it_arrives(stage: Stage) -> None:
    stage.rules.cut("Heartbeat", before=True, times=1)
    await stage.heard(events.CoordinatorFound, 2)
    await stage.is_over()


async def a_heartbeat_is_never_answered(stage: Stage) -> None:
    with stage.rules.drop("Heartbeat", times=1) as rule:
        await stage.heard(events.CoordinatorFound, 2)
        await stage.is_over()
    assert rule.used_count == 1


async def a_heartbeat_says_that_there_is_a_rebalance(stage: Stage) -> None:
    stage.rules.rewrite("Heartbeat", _with_code(ErrorCode.REBALANCE_IN_PROGRESS), times=1)
    await stage.heard(events.RebalanceCompleted, 2)
    await stage.produce(b"1")
    await stage.take(b"1")


async def a_heartbeat_says_that_the_member_is_unknown(stage: Stage) -> None:
    await stage.produce(b"1")
    await stage.take(b"1")
    stage.rules.rewrite("Heartbeat", _with_code(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
    await stage.heard(events.RebalanceCompleted, 2)
    await stage.take(b"1")


async def a_commit_goes_to_the_wrong_coordinator(stage: Stage) -> None:
    await stage.produce(b"1", b"2")
    await stage.take(b"1")

    def change(exchange: Any) -> Any:
        topics = tuple(
            dataclasses.replace(
                topic,
                partitions=tuple(
                    dataclasses.replace(each, error_code=ErrorCode.NOT_COORDINATOR) for each in topic.partitions
                ),
            )
            for topic in exchange.response.topics
        )
        return dataclasses.replace(exchange.response, topics=topics)

    with stage.rules.rewrite("OffsetCommit", change, times=2) as rule:
        await stage.consumer.commit()
    assert rule.used_count == 2
    await stage.take(b"2")


async def a_commit_is_cut_behind_the_broker(stage: Stage) -> None:
    await stage.produce(b"1")
    await stage.take(b"1")
    with stage.rules.cut("OffsetCommit", times=1) as rule:
        await stage.consumer.commit()
    assert rule.used_count == 1
    assert await stage.consumer.committed(stage.tp) == 1


async def fetches_are_damaged(stage: Stage) -> None:
    for number, how in enumerate(("truncated", "correlation_id", "unfinished")):
        with stage.rules.corrupt("Fetch", how=how, times=1) as rule:
            await stage.used(rule)
            await stage.produce(b"%d" % number)
            await stage.take(b"%d" % number)


async def a_fetch_is_held_and_goes_on(stage: Stage) -> None:
    event = asyncio.Event()
    rule = stage.rules.hold("Fetch", until=event, times=1)
    await stage.used(rule)
    await stage.produce(b"1")
    event.set()
    await stage.take(b"1")


async def a_join_is_held_until_the_rule_is_removed(stage: Stage) -> None:
    held = stage.rules.hold("JoinGroup")
    stage.rules.rewrite("Heartbeat", _with_code(ErrorCode.REBALANCE_IN_PROGRESS), times=1)
    await stage.used(held)
    assert len(stage.ears.heard(events.RebalanceCompleted)) == 1
    held.remove()
    await stage.heard(events.RebalanceCompleted, 2)


async def joins_are_cut_and_delayed(stage: Stage) -> None:
    stage.rules.delay("SyncGroup", ms=200, times=1)
    stage.rules.cut("JoinGroup", times=1)
    stage.rules.rewrite("Heartbeat", _with_code(ErrorCode.UNKNOWN_MEMBER_ID), times=1)
    await stage.heard(events.RebalanceCompleted, 2)
    await stage.produce(b"1")
    await stage.take(b"1")


async def a_generation_is_over(stage: Stage) -> None:
    await stage.produce(b"1")
    await stage.take(b"1")
    stage.rules.rewrite("Heartbeat", _with_code(ErrorCode.ILLEGAL_GENERATION), times=1)
    await stage.heard(events.RebalanceCompleted, 2)
    await stage.take(b"1")


def _with_code(code: int) -> Callable[[Any], Any]:
    return lambda exchange: dataclasses.replace(exchange.response, error_code=code)


SCRIPTS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    script.__name__: script
    for script in (
        a_heartbeat_is_cut,
        a_heartbeat_is_cut_before_it_arrives,
        a_heartbeat_is_never_answered,
        a_heartbeat_says_that_there_is_a_rebalance,
        a_heartbeat_says_that_the_member_is_unknown,
        a_commit_goes_to_the_wrong_coordinator,
        a_commit_is_cut_behind_the_broker,
        fetches_are_damaged,
        a_fetch_is_held_and_goes_on,
        a_join_is_held_until_the_rule_is_removed,
        joins_are_cut_and_delayed,
        a_generation_is_over,
    )
}


async def played(
    rules: Any, servers: str, plain_servers: str, topic: str, group: str, script: Callable[[Stage], Awaitable[None]]
) -> list[str]:
    """The events of a consumer from the end of its first rebalance on, without times, ids and addresses. Events before
    it differ, because a fresh cluster makes a consumer wait.
    """
    is_about_commits = script in (a_commit_goes_to_the_wrong_coordinator, a_commit_is_cut_behind_the_broker)
    settings = {"heartbeat_interval_ms": SLOW_BEAT_MS if is_about_commits else QUICK_BEAT_MS}
    if script in (a_heartbeat_is_never_answered, fetches_are_damaged):
        settings["request_timeout_ms"] = IMPATIENT_MS
    stage = Stage(rules, servers, plain_servers, topic, group, **settings)
    async with stage.consumer:
        await stage.heard(events.RebalanceCompleted)
        begin = next(at for at, each in enumerate(stage.ears.events) if type(each) is events.RebalanceCompleted)
        await script(stage)
    return [_told(each) for each in stage.ears.events[begin:] if type(each) not in BY_TIME]


def _told(event: events.Event) -> str:
    fields = {
        each.name: getattr(event, each.name)
        for each in dataclasses.fields(event)
        if not each.name.endswith(("_ms", "_id", "_at"))
    }
    return re.sub(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "N", f"{type(event).__name__} {fields}")
