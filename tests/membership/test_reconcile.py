"""Kept, added, revoked."""

from __future__ import annotations

from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.membership.assignments import reconcile
from tests.support.effort import examples

PARTITIONS = st.frozensets(st.sampled_from([TopicPartition(topic, n) for topic in "ab" for n in range(4)]))


@settings(max_examples=examples(25), deadline=None)
@given(PARTITIONS, PARTITIONS)
def test_every_partition_is_in_exactly_one_part(owned, assigned):
    change = reconcile(owned, assigned)
    parts = [change.kept, change.added, change.revoked]
    assert frozenset().union(*parts) == owned | assigned
    assert sum(map(len, parts)) == len(owned | assigned)
    assert change.kept | change.added == assigned
    assert change.kept | change.revoked == owned
