"""Who is in a group: members by id and by static name, what they have in common, who leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from aiogroup.protocol.errors import ErrorCode
from aiogroup.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember

__all__ = ["Member", "Members"]


@dataclass(slots=True)
class Member:
    """One member. `joining` and `syncing` are the tickets of its unanswered requests, `None` where there is none."""

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
    session_ends_at_ms: int | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """It waits for our answer, so its silence says nothing; a newcomer's patience ends all the same."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        return next((bytes(each.metadata) for each in self.protocols if each.name == protocol), b"")

    def stored(self) -> Member:
        """What a coordinator's log keeps of it."""
        return replace(self, is_new=False, joining=None, syncing=None, session_ends_at_ms=None)


class Members:
    """In the order in which they came."""

    def __init__(self) -> None:
        self.leader = ""
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
        if member.instance_id is not None:
            self._by_name[member.instance_id] = member.member_id
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        del self._by_id[member.member_id]
        if member.instance_id is not None:
            del self._by_name[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._by_id), "")

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back: the same place under another id."""
        leads = self.leader == member.member_id
        self._by_id = {(member_id if each is member else old): each for old, each in self._by_id.items()}
        member.member_id = member_id
        assert member.instance_id is not None
        self._by_name[member.instance_id] = member_id
        if leads:
            self.leader = member_id

    def elect(self) -> bool:
        """A leader among those that wait for the next generation; False when nobody does."""
        if self.leader in self._by_id and self._by_id[self.leader].joining is not None:
            return True
        joined = next((each for each in self if each.joining is not None), None)
        if joined is not None:
            self.leader = joined.member_id
        return joined is not None

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why a request that names itself so is not a member's; NONE when it is."""
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
        offered = [{each.name for each in member.protocols} for member in self]
        return set.intersection(*offered) if offered else set()

    def vote(self) -> str:
        """Each member's vote goes to the first of its assignors that all have."""
        common = self.common_protocols()
        votes = Counter(next(each.name for each in member.protocols if each.name in common) for member in self)
        return votes.most_common(1)[0][0]

    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self), default=0)

    def all_joined(self) -> bool:
        return all(each.joining is not None for each in self)

    def described(self, protocol: str | None) -> tuple[JoinGroupResponseMember, ...]:
        """What the leader is told of everybody."""
        return tuple(
            JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata(protocol)) for each in self
        )
