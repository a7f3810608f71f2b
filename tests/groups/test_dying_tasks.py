"""A task for whose result nobody waits: when it dies by a mistake of ours, the application hears of it."""

from __future__ import annotations

import asyncio

import pytest

from aiogroup import Consumer
from aiogroup._runtime.coordinator import Coordinator
from aiogroup._runtime.fetching import validator
from aiogroup._runtime.net.link import COMMIT

TOPIC = "orders"


async def read_one(broker):
    servers = broker.bootstrap_servers
    async with Consumer(TOPIC, bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
        await consumer.getone()
        await consumer.commit()


def break_checks_of_positions(monkeypatch):
    async def ask(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(validator, "ask_epoch_ends", ask)


def break_connections_for_commits(monkeypatch):
    original = Coordinator.get_ready

    async def get_ready(self, channel, timeout):
        if channel == COMMIT:
            raise ZeroDivisionError
        await original(self, channel, timeout)

    monkeypatch.setattr(Coordinator, "get_ready", get_ready)


@pytest.mark.parametrize("break_down", [break_checks_of_positions, break_connections_for_commits])
@pytest.mark.virtual_time
async def test_the_application_gets_the_error(virtual_broker, monkeypatch, break_down):
    virtual_broker.create_topic(TOPIC)
    virtual_broker.produce_many(TOPIC, [b"1", b"2"])
    await read_one(virtual_broker)  # and commit: such a position is checked before it is read from
    break_down(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(read_one(virtual_broker), 10)
