"""Kept, added, revoked."""

from __future__ import annotations

from aiokafka.structs import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from aiogroup.membership.reconcile import reconcile

PARTITIONS = st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3)))


@given(PARTITIONS, PARTITIONS)
def test_every_partition_is_in_exactly_one_part(owned, assigned):
    change = reconcile(owned, assigned)
    parts = [change.kept, change.added, change.revoked]
    assert frozenset().union(*parts) == owned | assigned
    assert sum(map(len, parts)) == len(owned | assigned)
    assert change.kept | change.added == assigned
    assert change.kept | change.revoked == owned
