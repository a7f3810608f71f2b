"""The members of a group by id and by static name, the assignors that they have in common, and the leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from aiogroup.embedded.machine.timers import Timer

__all__ = ["Member", "Members"]


@dataclass(slots=True)
class Member:
    """One member. `joining` and `syncing` are the tickets of its unanswered requests, or `None`."""

    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[JoinGroupRequestProtocol, ...]
    client_id: str = ""
    is_new: bool = True
    assignment: bytes = b""
    joining: Hashable | None = None
    syncing: Hashable | None = None
    heard_at_ms: int = 0
    """When it sent its last request, or when this coordinator took over."""
    session_ends_at_ms: int | None = None
    session_timer: Timer | None = field(default=None, repr=False, compare=False)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether its session cannot expire, since it waits for an answer of the coordinator. A newcomer's wait is
        limited all the same.
        """
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        return next((bytes(each.metadata) for each in self.protocols if each.name == protocol), b"")

    def stored(self) -> Member:
        """The member as it is kept in the coordinator's log."""
        return replace(
            self, is_new=False, joining=None, syncing=None, heard_at_ms=0, session_ends_at_ms=None, session_timer=None
        )


class Members:
    """The members in the order in which they joined. The number that wait, and the number that offer an assignor, are
    counted: otherwise each request of a round would look at all members.
    """

    def __init__(self) -> None:
        self.leader = ""
        self.joined_count = 0
        """The number of members that wait in JoinGroup."""
        self._offered: Counter[str] = Counter()
        self._by_id: dict[str, Member] = {}
        self._by_name: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def named(self, instance_id: str) -> Member | None:
        member_id = self._by_name.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def add(self, member: Member) -> None:
        self._by_id[member.member_id] = member
        self._offered.update({each.name for each in member.protocols})
        if member.joining is not None:
            self.joined_count += 1
        if member.instance_id is not None:
            self._by_name[member.instance_id] = member.member_id
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member. If it waited in JoinGroup, it must have been answered before."""
        del self._by_id[member.member_id]
        self._offered.subtract({each.name for each in member.protocols})
        if member.instance_id is not None:
            del self._by_name[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back: it keeps its place under another id, and is a newcomer no longer (as in Kafka)."""
        member.is_new = False
        leads = self.leader == member.member_id
        self._by_id = {(member_id if each is member else old): each for old, each in self._by_id.items()}
        member.member_id = member_id
        assert member.instance_id is not None
        self._by_name[member.instance_id] = member_id
        if leads:
            self.leader = member_id

    def give_name(self, member: Member, instance_id: str) -> None:
        """A dynamic member is static from now on."""
        member.instance_id = instance_id
        self._by_name[instance_id] = member.member_id

    def forget_names(self) -> None:
        """All members are dynamic from now on."""
        for member in self:
            member.instance_id = None
        self._by_name.clear()

    def offer(self, member: Member, protocols: tuple[JoinGroupRequestProtocol, ...]) -> None:
        """The member offers these assignors from now on."""
        if protocols != member.protocols:
            self._offered.subtract({each.name for each in member.protocols})
            self._offered.update({each.name for each in protocols})
            member.protocols = protocols

    def park(self, member: Member, ticket: Hashable) -> None:
        """Let the member wait in JoinGroup."""
        if member.joining is None:
            self.joined_count += 1
        member.joining = ticket

    def unpark(self, member: Member) -> Hashable | None:
        """End the member's wait in JoinGroup. Returns the ticket of its request, or None if it did not wait."""
        ticket, member.joining = member.joining, None
        if ticket is not None:
            self.joined_count -= 1
        return ticket

    def elect(self) -> bool:
        """Choose a leader among the members that wait for the next generation; False if none waits."""
        if self.leader in self._by_id and self._by_id[self.leader].joining is not None:
            return True
        joined = next((each for each in self if each.joining is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why a request with these ids is refused; NONE if they are a member's."""
        if instance_id is not None:
            named = self.named(instance_id)
            if named is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if named.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._by_id else ErrorCode.UNKNOWN_MEMBER_ID

    # What they have in common.

    def common_protocols(self) -> set[str]:
        """The assignors that every member offers."""
        count = len(self)
        return {name for name, offered in self._offered.items() if offered == count} if count else set()

    def vote(self) -> str:
        """The assignor with the most votes; each member votes for the first of its assignors that all members have."""
        common = self.common_protocols()
        votes = Counter(next(each.name for each in member.protocols if each.name in common) for member in self)
        return votes.most_common(1)[0][0]

    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self), default=0)

    def all_joined(self) -> bool:
        return self.joined_count == len(self)

    def described(self, protocol: str | None) -> tuple[JoinGroupResponseMember, ...]:
        """All members, as the leader gets them."""
        return tuple(
            JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata(protocol)) for each in self
        )
