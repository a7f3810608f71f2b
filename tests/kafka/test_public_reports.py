"""What users of other Kafka clients reported, tried with this one: one kind each, where no other test has it."""

from __future__ import annotations

from aiogroup.telemetry import events
from tests.support.kafka import Ears, eventually, take


async def test_subscribing_to_the_same_again_and_again_costs_the_group_no_round(make_place):
    place, ears, others = make_place(2), Ears(), Ears()
    await place.produce(range(10))
    one = place.consumer(observers=[ears], partition_assignment_strategy=["range"])
    other = place.consumer(observers=[others], partition_assignment_strategy=["range"])
    async with one, other:
        await eventually(lambda: one.assignment() | other.assignment() == {place.tp(0), place.tp(1)})
        await eventually(lambda: len(one.assignment()) == len(other.assignment()) == 1)
        reader = one if place.tp(0) in one.assignment() else other
        rounds = len(ears.heard(events.RebalanceStarted)), len(others.heard(events.RebalanceStarted))
        for number in range(10):
            assert await take(reader, 1) == [str(number)]
            one.subscribe([place.topic])
            other.subscribe([place.topic])
        await reader.commit()
        assert await place.committed() == 10
        assert rounds == (len(ears.heard(events.RebalanceStarted)), len(others.heard(events.RebalanceStarted)))


async def test_subscribing_to_the_same_pattern_again_finds_a_new_topic_at_once(make_place, unique_name):
    place, ears = make_place(), Ears()
    new = f"{place.topic}-{unique_name('new')}"
    consumer = place.unsubscribed(observers=[ears], metadata_max_age_ms=300_000)
    consumer.subscribe(pattern=f"{place.topic}.*")
    async with consumer:
        await eventually(lambda: consumer.assignment() == {place.tp()})
        place.cluster.create_topic(new, 1)
        consumer.subscribe(pattern=f"{place.topic}.*")
        await eventually(lambda: len(consumer.assignment()) == 2)
        assert consumer.subscription() == {place.topic, new}
        assert len(ears.heard(events.RebalanceStarted)) == 2
