"""Consumers on the embedded broker, and their figures as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aiogroup import Consumer

SETTINGS = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 100}


@pytest.fixture
def broker(aiogroup_broker):
    """A broker with the topic `orders`: two partitions with 10 and 4 records."""
    aiogroup_broker.create_topic("orders", 2)
    for partition, count in enumerate((10, 4)):
        aiogroup_broker.produce_many("orders", [str(n).encode() for n in range(count)], partition=partition)
    return aiogroup_broker


@pytest.fixture
def make(broker):
    """A consumer that is not started."""

    def consumer(*topics, **settings):
        given = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", **SETTINGS, **settings}
        return Consumer(*topics, **given)

    return consumer


class Scrape:
    """What Prometheus reads in a text."""

    def __init__(self, body):
        self.families = {each.name: each for each in text_string_to_metric_families(body.decode())}
        self.samples = [sample for family in self.families.values() for sample in family.samples]
        places = [(each.name, *sorted(each.labels.items())) for each in self.samples]
        assert len(set(places)) == len(places), "Prometheus refuses a series that comes twice"

    def __call__(self, name, **labels):
        """The value of the only series with this name and these labels; `None` if there is none."""
        found = [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]
        assert len(found) <= 1, found
        return found[0] if found else None

    def all(self, name):
        return [each for each in self.samples if each.name == name]


@pytest.fixture(scope="session")
def scraped():
    """`scraped(body)`: the text as Prometheus reads it."""
    return Scrape
