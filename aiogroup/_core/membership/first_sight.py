"""Where a partition without a committed offset is read from: it depends on whether it was added while the group, or the
member, read its topic already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from aiogroup._core.cluster import UNKNOWN_TOPIC_OR_PARTITION, Cluster
from aiogroup.config import ResetPolicy
from aiogroup.structs import TopicPartition

__all__ = ["FirstSight"]


class FirstSight:
    """Remembers how many partitions each topic had when it was first seen: later ones are new. So is any partition
    without a commit in a topic of which the group had commits before this member joined with it.

    New ones are read by the policy `of_new`, the others by `default`.
    """

    def __init__(self, default: ResetPolicy, of_new: ResetPolicy) -> None:
        self._default = default
        self._of_new = of_new
        self._counts: dict[str, int] = {}
        self._ids: dict[str, UUID] = {}
        self._had_commits: dict[str, bool] = {}

    def note(self, topics: Iterable[str], cluster: Cluster) -> None:
        """Note which partitions the topics have in this metadata, if they were not noted before."""
        for topic in topics:
            info = cluster.topics.get(topic)
            if info is not None and info.partitions:
                if self._ids.setdefault(topic, info.topic_id) != info.topic_id:
                    self._counts[topic] = 0
                self._counts.setdefault(topic, len(info.partitions))
            elif cluster.errors.get(topic) == UNKNOWN_TOPIC_OR_PARTITION:
                self.note_appeared([topic])  # whatever the topic will hold once it exists is younger than this member

    def note_appeared(self, topics: Iterable[str]) -> None:
        """All partitions of these topics are new to the group, which is older than the topics."""
        self._counts |= dict.fromkeys(topics, 0)

    def unknown(self, topics: Iterable[str]) -> frozenset[str]:
        """The topics of which it must still be found out whether the group has commits. That is to be done before the
        member joins with them: members that begin together with it commit where they begin.
        """
        if not self._default.decides or self._default == self._of_new:
            return frozenset()
        return frozenset(topics) - self._had_commits.keys()

    def note_commits(self, topics: Iterable[str], committed: Collection[str]) -> None:
        """Note which of these topics are among those that the group has `committed` offsets of."""
        self._had_commits |= {topic: topic in committed for topic in topics}

    def policy_of(self, tp: TopicPartition) -> ResetPolicy:
        """The policy for a partition in case that nothing is committed of it."""
        is_new = self._had_commits.get(tp.topic, False) or tp.partition >= self._counts.get(tp.topic, 2**31)
        return self._of_new if is_new else self._default

    def was_new(self, policy: ResetPolicy) -> bool:
        """Whether a partition with this policy is read from its beginning only because it is new."""
        return policy is self._of_new and policy.kind == "earliest" and policy != self._default
