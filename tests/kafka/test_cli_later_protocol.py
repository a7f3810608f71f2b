"""`aiogroup` and the groups of KIP-848, which no member of ours can join yet."""

from __future__ import annotations

import asyncio
import json

from aiogroup.__main__ import main
from tests.support.java_tools import CONSUMER
from tests.support.kafka import eventually


async def test_a_group_of_the_later_protocol_is_shown_and_not_reset(kafka_cluster, make_place, capsys):
    """KIP-848: aiogroup does not speak it, but the coordinator lists such groups."""
    place = make_place()
    await place.produce(range(4))
    servers, group = kafka_cluster.bootstrap_servers, f"{place.group}-later"
    which = ("--bootstrap-server", servers, "--topic", place.topic, "--group", group, "--from-beginning")
    reading = kafka_cluster.java(CONSUMER, *which, "--command-property", "group.protocol=consumer")

    async def ours(*arguments):
        capsys.readouterr()
        code = await asyncio.to_thread(main, [*arguments, "--bootstrap-server", servers])
        return code, *capsys.readouterr()

    async def is_stable():
        code, out, _ = await ours("describe", group, "-o", "json")
        return code == 0 and json.loads(out)["state"] == "Stable"

    try:
        await eventually(is_stable, within_s=60)
        described = json.loads((await ours("describe", group, "-o", "json"))[1])
        assert (described["protocol"], described["members_count"]) == ("consumer", None)
        code, _, told = await ours("reset", group, "--topic", place.topic, "--to-latest")
        assert code == 3
        assert f"group {group!r} is Stable: stop its members first" in told
    finally:
        reading.terminate()
        await asyncio.to_thread(reading.wait, 60)
