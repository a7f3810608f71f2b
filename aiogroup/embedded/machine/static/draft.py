"""Static membership by draft 41 of KIP-345: a rebalance only for newcomers, for the leader's rejoin, and for a member
that is offline for too long.

The draft leaves open whom a round waits for, and what happens to the group's other members. This file decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup._core.protocol.messages.join_group import JoinGroupRequest
from aiogroup._core.protocol.messages.leave_group import MemberIdentity
from aiogroup.embedded.machine.groups.coordinators import java_bucket
from aiogroup.embedded.machine.groups.form import Entering, Form, FormedGroup, GroupState
from aiogroup.embedded.machine.groups.log import StoredGroup
from aiogroup.embedded.machine.groups.members import Member
from aiogroup.embedded.machine.refusals import BrokerRefusal
from aiogroup.embedded.machine.static.newcomers import Named, Newcomers
from aiogroup.embedded.machine.static.static_map import MappedGroup, MappedName, StaticMap
from aiogroup.embedded.machine.timers import Timer, Timers

if TYPE_CHECKING:
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["EXPANSION", "DraftForm", "StaticMembership", "form_maker"]

StaticMembership = Literal["kafka", "draft"]
EXPANSION = "group.static.expansion.timeout.ms"
"""The broker's property for clients that send no expansion time-out."""


class DraftForm(Form):
    """The draft's form in one group.

    Args:
        group: the group.
        static_map: keeps the group's names for the next coordinator.
        expansion_timeout_ms: the expansion time-out for clients that send none.
    """

    def __init__(self, group: FormedGroup, static_map: StaticMap, expansion_timeout_ms: int) -> None:
        super().__init__(group)
        self.is_static = False
        """Whether names count in the current generation."""
        self.decided: bool | None = None
        """Whether the next generation is static: the first join after the stable state decides. `None`: not decided
        yet.
        """
        self._static_map = static_map
        self._expansion_timeout_ms = expansion_timeout_ms
        self._named: dict[str, Named] = {}
        self._newcomers = Newcomers(group)
        self._drops_silent = False  # a member was offline for too long: this round drops all other silent members too
        self._look: Timer | None = None  # when the next member for which the round waits counts as offline

    @property
    def is_next_static(self) -> bool:
        return self.is_static if self.decided is None else self.decided

    def _decide(self, *, is_static: bool) -> None:
        if self.decided is None:
            self.decided = is_static

    # About members.

    def silence_ms(self, member: Member) -> int:
        name = member.instance_id
        if self.is_static and name is not None:
            return self._named[name].registration_timeout_ms
        return member.session_timeout_ms

    def newcomers_wait_ms(self, member: Member, limit_ms: int) -> int | None:
        return limit_ms if member.instance_id is None else None

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why a request with these ids is refused. In a dynamic generation a name that no member has is ignored."""
        members = self.group.members
        named = members.named(instance_id) if instance_id else None
        if named is not None and named.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if instance_id and named is None and self.is_static:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in members else ErrorCode.UNKNOWN_MEMBER_ID

    def commit_refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if self.is_static and not (instance_id and member_id):
            return ErrorCode.NO_STATIC_MEMBER_INFO_SET
        return ErrorCode.NONE

    def known_as(self, member: Member) -> str:
        return member.member_id if member.instance_id is None else self._named[member.instance_id].known_as

    @staticmethod
    def _is_offline(member: Member, now_ms: int) -> bool:
        """Whether it is a static member that has been silent for longer than its session time-out."""
        return member.is_static and now_ms >= member.heard_at_ms + member.session_timeout_ms

    # Rounds.

    def on_prepare(self, now_ms: int) -> None:
        """Newcomers that wait for the expansion time-out go into this round, whatever its cause is."""
        members = self.group.members
        for member, named in self._newcomers.take():
            offered = {each.name for each in member.protocols}
            if len(members) and not offered & members.common_protocols():
                code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                self.group.refuse_join(member.joining, member.member_id, code)
            else:
                assert member.instance_id is not None
                self._named[member.instance_id] = named
                self.group.enter(member, now_ms)

    def is_everybody_here(self, now_ms: int) -> bool:
        """Whether all members have joined, except static members that are offline."""
        self._stop_looking()
        missing = [each for each in self.group.members if each.joining is None]
        awaited = [each for each in missing if not self._is_offline(each, now_ms)]
        ends = [each.heard_at_ms + each.session_timeout_ms for each in awaited if each.is_static]
        if ends:
            self._look = self.group.timers.at(min(ends), self._look_again)
        return not awaited

    def _look_again(self, now_ms: int) -> None:
        self._look = None
        if self.group.state is GroupState.PREPARING:
            self.group.rebalance(now_ms)

    def keeps(self, member: Member, now_ms: int) -> bool:
        if not self.is_next_static or not member.is_static:
            return False
        return not (self._drops_silent and self._is_offline(member, now_ms))

    def takes_part(self, member: Member) -> bool:
        """An absent member keeps its partitions under its name, and its silence continues to count."""
        return member.joining is not None

    def on_generation(self) -> None:
        group, was_static = self.group, self.is_static
        self._stop_looking()
        self._drops_silent = False
        self.is_static = self.is_next_static and len(group.members) > 0
        if not self.is_static:
            group.members.forget_names()
        if not len(group.members):
            self.decided = None
        former, self._named = self._named, {}
        for member in group.members:
            if member.instance_id is not None:
                named = self._named[member.instance_id] = former[member.instance_id]
                named.known_as = member.member_id
                if member.joining is None and not was_static:
                    group.watch(member, member.heard_at_ms + self.silence_ms(member))

    def on_stable(self) -> None:
        self.decided = None

    def outlives_sync(self, member: Member) -> bool:
        return self.is_static and member.is_static

    def on_expired(self, member: Member) -> None:
        self._drops_silent |= member.is_static and self.is_static

    # The map, and who takes it over.

    def stored(self, member: Member) -> Member:
        """The member without its name, which is in the map."""
        return replace(member.stored(), instance_id=None)

    def on_stored(self) -> None:
        group = self.group
        if self.is_static:
            names = {
                name: MappedName(member.member_id, each.registration_timeout_ms, each.expansion_timeout_ms)
                for name, each in self._named.items()
                if (member := group.members.named(name)) is not None
            }
            self._static_map.write(group.group_id, MappedGroup(group.generation, group.members.leader, names))
        elif self._static_map.read(group.group_id) is not None:
            self._static_map.erase(group.group_id)

    def load(self, stored: StoredGroup) -> Sequence[Member]:
        mapped = self._static_map.read(stored.group_id)
        members = {each.member_id: each.stored() for each in stored.members}
        if mapped is not None:
            self.is_static = True
            for name, each in mapped.names.items():
                if each.member_id in members:
                    members[each.member_id].instance_id = name
                    self._named[name] = Named(each.registration_timeout_ms, each.expansion_timeout_ms, each.member_id)
        return list(members.values())

    def resign(self) -> None:
        self._newcomers.resign()

    def stop_timers(self) -> None:
        self._newcomers.stop()
        self._stop_looking()

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    # Who comes and who goes.

    def has_place(self, request: JoinGroupRequest) -> bool:
        name = self.name_of(request)
        return name is not None and (name in self._newcomers or self.group.members.named(name) is not None)

    @property
    def waiting_count(self) -> int:
        return len(self._newcomers)

    def common_protocols(self) -> set[str]:
        return self.group.members.common_protocols().intersection(*self._newcomers.offers())

    def name_of(self, request: JoinGroupRequest) -> str | None:
        """The name that counts. Names are ignored if the current generation is dynamic and the next one will be dynamic
        too.
        """
        if self.decided is None or self.decided or self.is_static:
            return request.group_instance_id or None
        return None

    def confirms(self, _request: JoinGroupRequest) -> bool:
        return True  # its name may have been ignored when it asked for an id

    def enter(self, join: Entering, member_id: str) -> None:
        name = self.name_of(join.request)
        if name is None:
            self._decide(is_static=False)
            join.add(member_id)
        elif (member := self.group.members.named(name)) is not None:  # its name was ignored when it asked for an id
            self.come_back(join, member)
        else:
            self.arrive(join, name)

    def arrive(self, join: Entering, name: str) -> None:
        """A newcomer does not disturb members that work: it waits. While members rejoin, it goes into their round."""
        self._decide(is_static=True)
        named = self._timeouts(join.request, member_id := join.new_id())
        is_working = self.group.state in (GroupState.STABLE, GroupState.COMPLETING)
        if is_working and self.is_next_static:
            self._newcomers.wait(name, join.made(member_id), named, join.now_ms)
        else:
            self._named[name] = named
            join.add(member_id)

    def come_back(self, join: Entering, member: Member) -> None:
        """A client without an id joins under a member's name: the process was restarted, or another process uses the
        name. The old id is fenced. If the member is the leader, there is a rebalance; any other member gets the same
        partitions again.
        """
        self._decide(is_static=True)
        self.group.replace(member, join.new_id())
        self._serve(join, member, is_changed=True)

    def rejoin(self, join: Entering, member: Member) -> None:
        """A member joins with its id."""
        group, name = self.group, join.request.group_instance_id
        self._decide(is_static=bool(name))
        if name and not member.is_static and self.is_next_static:
            self._give_name(member, name, join.request)
        is_unchanged = member.protocols == join.request.protocols
        if self.is_static and not self.is_next_static:
            join.park(member)
            group.rebalance(join.now_ms)
        elif not (self.is_static and member.is_static):
            super().rejoin(join, member)
        elif group.state is GroupState.COMPLETING and is_unchanged:
            super().rejoin(join, member)  # the leader too gets its answer again: it may have been lost
        else:
            self._serve(join, member, is_changed=not is_unchanged)

    def _serve(self, join: Entering, member: Member, *, is_changed: bool) -> None:
        group, name = self.group, member.instance_id
        assert name is not None
        former = self._named[name]
        named = self._named[name] = self._timeouts(join.request, former.known_as)
        group.touch(member, join.now_ms)
        offered = {each.name for each in join.request.protocols}
        is_led = member.member_id != group.members.leader and group.protocol in offered
        if group.state is GroupState.PREPARING or not is_led:
            join.park(member)
            group.rebalance(join.now_ms)
            return
        join.take(member)
        if group.state is GroupState.STABLE and (is_changed or named != former):
            group.store()
        join.answer(group.joined(member))

    def _timeouts(self, request: JoinGroupRequest, known_as: str) -> Named:
        """The request's time-outs. For a client that does not know the draft: its session time-out, and the broker's
        expansion time-out.
        """
        registration_ms, expansion_ms = request.registration_timeout_ms, request.expansion_timeout_ms
        return Named(
            request.session_timeout_ms if registration_ms is None else max(registration_ms, 0),
            self._expansion_timeout_ms if expansion_ms is None else max(expansion_ms, 0),
            known_as,
        )

    def _give_name(self, member: Member, name: str, request: JoinGroupRequest) -> None:
        """A member whose name was ignored so far gets it. No other member has this name, since `refusal` was asked
        before.
        """
        self.group.members.give_name(member, name)
        self._named[name] = self._timeouts(request, member.member_id)

    def leave(self, who: MemberIdentity, _now_ms: int) -> ErrorCode | None:
        name = who.group_instance_id
        if name and name in self._newcomers:
            return self._newcomers.leave(name, who.member_id)
        return None


def form_maker(
    static_membership: StaticMembership, topics: Topics, timers: Timers, settings: Settings
) -> Callable[[FormedGroup], Form]:
    """Makes the form of each group of a cluster. For the draft it makes the draft's topic.

    Raises:
        BrokerRefusal: there is no such form, or a setting belongs to the other one.
    """
    if static_membership not in ("kafka", "draft"):
        raise BrokerRefusal(f"static_membership={static_membership!r}: it is kafka, or draft")
    expansion_ms = settings[EXPANSION]
    if static_membership == "kafka":
        if expansion_ms:
            raise BrokerRefusal(f"{EXPANSION} belongs to static_membership='draft': Kafka has no such setting")
        return Form
    partitions_count = settings.coordinator_partitions
    static_map = StaticMap(
        topics,
        timers,
        lambda group_id: java_bucket(group_id, partitions_count),
        partitions_count,
        settings["default.replication.factor"],
    )
    return lambda group: DraftForm(group, static_map, expansion_ms)
