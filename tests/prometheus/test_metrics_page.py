"""docs/metrics.md says what there is: names, types, labels; and a scrape has nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from aiogroup._core.membership.facts import Reason
from aiogroup.figures.families import FAMILIES, OF_ALL
from aiogroup.prometheus import exposition

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `([a-z_]+)` \| (gauge|counter|histogram) \| ((?:`[a-z_]+`(?:, )?)*) ?\|", re.MULTILINE)


def told():
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(PAGE)}


def test_the_table_has_every_figure_with_its_type_and_labels():
    assert told() == {each.name: (each.kind, each.labels) for each in FAMILIES.values()}


def test_the_page_names_the_reasons():
    assert ", ".join(f"`{each}`" for each in Reason) in " ".join(PAGE.split())


async def test_a_scrape_has_the_types_and_labels_of_the_table(make, scraped):
    async with make("orders") as consumer:
        await consumer.getmany(timeout_ms=1_000)
        await consumer.commit()
        scrape = scraped(await exposition([consumer]))
    seen = {}
    for family in scrape.families.values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            labels = sample.labels.keys() - {"le"}
            assert labels == {*OF_ALL, *told()[name][1]}, sample
        seen[name] = family.type
    assert seen == {name: kind for name, (kind, _) in told().items() if name in seen}
    assert told().keys() - seen.keys() <= {
        "aiogroup_catch_up_left_records",
        "aiogroup_restarts_total",
        "kafka_consumer_coordinator_last_heartbeat_seconds_ago",
    }
