"""The topics that belong to Kafka itself, as clients and administrators see them in Metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_OID, uuid5

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.nodes import Nodes
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["OFFSETS", "TRANSACTIONS", "InternalTopics"]

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
COUNTS: Final = {OFFSETS: "offsets.topic.num.partitions", TRANSACTIONS: "transaction.state.log.num.partitions"}
REPLICAS_COUNT = 3
"""offsets.topic.replication.factor and transaction.state.log.replication.factor, where there are enough nodes."""


class InternalTopics:
    """Creates an internal topic when a client first looks for a coordinator of its kind, as Kafka does
    (AutoTopicCreationManager). It holds no records: groups and transactions are kept beside the topics.
    """

    def __init__(self, topics: Topics, nodes: Nodes, settings: Settings) -> None:
        self._topics = topics
        self._nodes = nodes
        self._settings = settings

    def ensure(self, name: str, now_ms: int) -> None:
        """Create the topic if it does not exist. Each coordinator leads its own partition."""
        if self._topics.get(name) is not None:
            return
        ids = [node.node_id for node in self._nodes]
        count, factor = self._settings[COUNTS[name]], min(REPLICAS_COUNT, len(ids))
        self._topics.create(
            name,
            count,
            now_ms,
            assignments=[tuple(ids[(index + each) % len(ids)] for each in range(factor)) for index in range(count)],
            config={"cleanup.policy": "compact"},
            is_internal=True,
            # Not random: the search for a coordinator must not change the ids that a seed gives.
            topic_id=uuid5(NAMESPACE_OID, name),
        )
