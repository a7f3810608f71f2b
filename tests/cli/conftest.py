"""The command line on the embedded broker, in the test's own process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from dataclasses import dataclass

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from aiogroup.__main__ import main
from aiogroup._core.recovery.ranges import Range
from aiogroup._core.recovery.token import LogId, Token, write_token
from aiogroup.cli.asking import asked

HIDDEN = (
    (re.compile(r"(?<=127\.0\.0\.1:)\d{5}"), "PORT-"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID".ljust(36, "-")),
)
"""What differs from run to run, and texts of the same length, so that the columns stay where they are."""


@pytest.fixture(autouse=True)
def aiokafkas_log():
    """The command is alone in its process and turns it down; here others listen to it."""
    log = logging.getLogger("aiokafka")
    level = log.level
    yield
    log.setLevel(level)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Without what the developer has set."""
    for name in [each for each in os.environ if each.startswith("AIOGROUP_") and each != "AIOGROUP_PURE_PYTHON"]:
        monkeypatch.delenv(name)


@dataclass
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def table(self):
        """Its output without what differs from run to run."""
        text = self.out
        for pattern, shown in HIDDEN:
            text = pattern.sub(shown, text)
        return text

    @property
    def json(self):
        (line,) = self.out.splitlines()
        return json.loads(line)


@pytest.fixture
def broker(aiogroup_broker):
    """A broker with the topic `orders`: two partitions with 10 and 4 records."""
    aiogroup_broker.create_topic("orders", 2)
    for partition, count in enumerate((10, 4)):
        aiogroup_broker.produce_many("orders", [str(n).encode() for n in range(count)], partition=partition)
    return aiogroup_broker


@pytest.fixture
def run(broker, capsys):
    """`await run("lag", "billing")`: the command, in a thread as it has an event loop of its own."""

    async def command(*arguments):
        capsys.readouterr()
        code = await asyncio.to_thread(main, [*arguments, "--bootstrap-server", broker.bootstrap_servers])
        return Ran(int(code), *capsys.readouterr())

    return command


@pytest.fixture
def commit(broker):
    """`await commit({("orders", 0): 4})`: for a group without members; a value may be (offset, metadata)."""

    async def write(offsets, group="billing"):
        servers = broker.bootstrap_servers
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
        async with consumer:
            consumer.assign([TopicPartition(*place) for place in offsets])
            wanted = {each: offset if isinstance(offset, tuple) else (offset, "") for each, offset in offsets.items()}
            await consumer.commit({TopicPartition(*place): offset for place, offset in wanted.items()})

    return write


@pytest.fixture
async def token(broker):
    """The metadata of a commit of orders-0 at 2: 2, 3 and 6 are pending, and the live lane is at 8 of 10."""
    async with asked({"bootstrap_servers": broker.bootstrap_servers}) as asking:
        cluster = await asking.cluster(["orders"])
    log_id = LogId(cluster.cluster_id, "orders", cluster.topics["orders"].topic_id, 0)
    return write_token(Token("00" * 8, 8, -1, (Range(2, 4), Range(6, 7))), log_id)
