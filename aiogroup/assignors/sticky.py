"""Java's StickyAssignor (KIP-54) and CooperativeStickyAssignor (KIP-429)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiogroup.assignors import constrained, general
from aiogroup.assignors.assignor import Assignor, Held, MemberSubscription, Racks, topic_sets
from aiogroup.assignors.previous import (
    NO_GENERATION,
    Claims,
    read_generation,
    read_held,
    write_generation,
    write_held,
)
from aiogroup.assignors.racks import member_racks, racks_matter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiogroup.structs import TopicPartition


class StickyAssignor(Assignor):
    """Divides as evenly as the subscriptions allow, and lets members keep the partitions they held as far as possible.

    Members give all partitions up while they join; their user data says which they held.
    """

    name: Final = "sticky"

    def subscription_user_data(self, topics: Iterable[str], held: Held) -> bytes | None:
        return None if held.generation == NO_GENERATION else write_held(held)

    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> dict[str, list[TopicPartition]]:
        held = {member: read_held(subscription.user_data) for member, subscription in members.items()}
        return _divide(members, held, partitions, racks)[0]


class CooperativeStickyAssignor(Assignor):
    """Divides as `StickyAssignor` does, among members that keep their partitions while they join.

    A partition that moves is first assigned to no member. Its owner gives it up and joins again, and the next round
    assigns it to its new owner.
    """

    name: Final = "cooperative-sticky"
    is_cooperative: Final = True

    def subscription_user_data(self, topics: Iterable[str], held: Held) -> bytes | None:
        return write_generation(held.generation)

    def assign(
        self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int], racks: Racks
    ) -> dict[str, list[TopicPartition]]:
        held = {}
        for member, subscription in members.items():
            generation = subscription.generation
            if generation == NO_GENERATION:  # members before KIP-792 have it in their user data
                generation = read_generation(subscription.user_data)
            held[member] = Held(subscription.owned, generation)
        assignment, claims = _divide(members, held, partitions, racks)
        claimed = {tp for each in held.values() for tp in each.partitions}
        return {
            member: [tp for tp in tps if tp not in claimed or claims.owner.get(tp) == member]
            for member, tps in assignment.items()
        }


def _divide(
    members: Mapping[str, MemberSubscription], held: Mapping[str, Held], partitions: Mapping[str, int], racks: Racks
) -> tuple[dict[str, list[TopicPartition]], Claims]:
    topics = topic_sets(members)
    kinds = set(topics.values())
    there = {topic: partitions[topic] for topic in frozenset().union(*kinds) if partitions.get(topic)}
    claims = Claims(topics, held, there)
    rack_of = member_racks(members)
    if not racks_matter(rack_of.values(), there, racks):
        rack_of = {}
    divide = constrained.divide if len(kinds) <= 1 else general.divide
    return divide(topics, claims, there, rack_of, racks), claims
