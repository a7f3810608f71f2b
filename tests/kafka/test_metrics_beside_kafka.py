"""The figures beside kafka-consumer-groups.sh: the same offsets and the same lag when nothing moves."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from aiogroup.__main__ import main
from aiogroup.prometheus import exposition
from tests.support.java_tools import GROUPS, run

SETTINGS = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 200}
LAG = "kafka_consumer_fetch_manager_records_lag"


async def kafkas(jvm, cluster, group):
    """Committed offset, end and lag of each partition, as Kafka's tool shows them."""
    arguments = ("--describe", "--group", group)
    code, lines = await asyncio.to_thread(run, jvm, cluster, GROUPS, arguments)
    assert code == 0, lines
    rows = [line.split() for line in lines if line and not line.startswith("!")]
    at = next(number for number, row in enumerate(rows) if row[:1] == ["GROUP"])
    return {row[2]: tuple(float(cell) for cell in row[3:6]) for row in rows[at + 1 :]}


async def test_offsets_and_lag_are_kafkas(java_tools, kafka_cluster, make_place, capsys):
    place = make_place(3)
    for partition in range(3):
        await place.produce(range(4 + partition), partition)
    async with place.consumer(**SETTINGS) as consumer:
        await consumer.getmany(place.tp(2), timeout_ms=30_000, max_records=2)
        assert (await consumer.getmany(place.tp(0), timeout_ms=30_000)).count == 4
        await consumer.commit({place.tp(0): 4, place.tp(1): 0, place.tp(2): 2})
        body = await exposition([consumer])
        theirs = await kafkas(java_tools, kafka_cluster, place.group)
        lags = {str(tp.partition): lag for tp, lag in consumer.lags().items()}
        total = await consumer.lag()
    ours = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if "partition" in sample.labels:
                ours.setdefault(sample.labels["partition"], {})[sample.name] = sample.value
    names = ("aiogroup_committed_offset", "aiogroup_end_offset", LAG)
    assert {number: tuple(of[name] for name in names) for number, of in ours.items()} == theirs
    assert theirs == {"0": (4, 4, 0), "1": (0, 5, 5), "2": (2, 6, 4)}
    assert {number: of[LAG] for number, of in ours.items()} == lags
    assert total == sum(lags.values()) == 9
    capsys.readouterr()
    assert (
        await asyncio.to_thread(main, ["lag", place.group, "--bootstrap-server", kafka_cluster.bootstrap_servers]) == 0
    )
    assert capsys.readouterr().out.splitlines()[-1].split()[4:7] == ["9", "0", "9"]
