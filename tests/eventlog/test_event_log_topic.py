"""The event log in a topic: by the application's producer, which may be slow, refuse lines or never answer."""

from __future__ import annotations

import asyncio
import json

from aiogroup._core.telemetry import events
from aiogroup.eventlog import EventLog


class Producer:
    """As much of aiokafka's producer as is used; `answer` says what becomes of each line."""

    def __init__(self, answer=None):
        self.sent, self.may_send = [], asyncio.Event()
        self.may_send.set()
        self._answer = answer or (lambda _: None)

    async def send(self, topic, value=None, key=None):
        await self.may_send.wait()
        acknowledged = asyncio.get_running_loop().create_future()
        error = self._answer(value)
        if isinstance(error, TypeError):
            raise error
        self.sent.append((topic, key, json.loads(value)))
        if error is None:
            acknowledged.set_result(None)
        elif isinstance(error, Exception):
            acknowledged.set_exception(error)
        return acknowledged


def told(number):
    return events.MetadataFailed(str(number))


async def test_lines_go_to_the_topic_in_order_with_the_key_of_the_process():
    producer = Producer()
    async with EventLog(topic="events", producer=producer) as log:
        for number in range(20):
            log.on_event(told(number))
    assert [line["why"] for _, _, line in producer.sent] == [str(number) for number in range(20)]
    ((topic, key),) = {(topic, key) for topic, key, _ in producer.sent}
    assert topic == "events"
    assert key.decode().endswith(f"-{producer.sent[0][2]['pid']}")
    assert log.dropped_count == 0


async def test_a_slow_producer_holds_nobody_up_and_what_is_missing_is_told():
    producer = Producer()
    producer.may_send.clear()
    async with EventLog(topic="events", producer=producer, max_queue=5) as log:
        for number in range(8):
            log.on_event(told(number))
        assert log.dropped_count == 3
        producer.may_send.set()
    assert [line.get("why") for _, _, line in producer.sent] == [None, "0", "1", "2", "3", "4"]
    assert producer.sent[0][2]["event"] == "events_dropped"
    assert producer.sent[0][2]["dropped_count"] == 3


async def test_a_producer_that_refuses_is_told_once_and_counted(caplog):
    answers = iter([TypeError("closed"), ValueError("too large"), None])
    producer = Producer(lambda value: next(answers) if b"metadata" in value else None)
    async with EventLog(topic="events", producer=producer) as log:
        for number in range(3):
            log.on_event(told(number))
    assert log.dropped_count == 2
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert [line["why"] for _, _, line in producer.sent if "why" in line] == ["1", "2"]


async def test_a_producer_that_never_answers_does_not_hold_the_end_up():
    producer = Producer(lambda _: "never")
    log = EventLog(topic="events", producer=producer)
    log.on_event(told(1))
    assert not await log.close(timeout_ms=1)
    log.on_event(told(2))
    assert log.dropped_count == 1
    producer.may_send.clear()
    stuck = EventLog(topic="events", producer=producer)
    stuck.on_event(told(1))
    stuck.on_event(told(2))
    assert not await stuck.close(timeout_ms=1)
    assert stuck.dropped_count == 2


def test_without_an_event_loop_a_line_is_dropped_and_not_sent_later():
    producer = Producer()
    log = EventLog(topic="events", producer=producer)
    log.on_event(told(0))
    assert log.dropped_count == 1

    async def later():
        log.on_event(told(1))
        await log.close()

    asyncio.run(later())
    assert [line.get("why") for _, _, line in producer.sent] == [None, "1"]
