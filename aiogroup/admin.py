"""Lists and removes the members of a group from outside: for its operators, not for its members (KIP-345)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiogroup.config import ConsumerConfig
from aiogroup.errors import (
    AiogroupError,
    BrokerError,
    ConnectionLostError,
    GroupNotFoundError,
    KafkaTimeoutError,
    MemberNotFoundError,
    ProtocolError,
)
from aiogroup.membership.remedies import NOT_READY, not_authorized_error
from aiogroup.protocol.consumer_protocol import read_assignment
from aiogroup.protocol.errors import ErrorCode, lookup
from aiogroup.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from aiogroup.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup.protocol.schema import R_co, Request
from aiogroup.runtime.loop.clock import timeout_ms
from aiogroup.runtime.loop.retries import Retries
from aiogroup.runtime.net.link import METADATA, Link
from aiogroup.structs import TopicPartition

__all__ = ["GroupMember", "list_members", "remove_members"]

T = TypeVar("T")

DEAD: Final = "Dead"
"""The state of a group that does not exist, up to version 5 of DescribeGroups."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    `name` is the static name, `None` for a dynamic member. `partitions` are known only while the group is stable.
    """

    name: str | None
    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


async def list_members(group_id: str, **settings: Any) -> tuple[GroupMember, ...]:  # noqa: ANN401 (Consumer's)
    """The members of a group, static ones first; none for a group that has only offsets. `settings` are Consumer's.

    Raises:
        GroupNotFoundError: there is no such group.
        GroupAuthorizationError: grant DESCRIBE on the group.
        ConfigError: a setting is unknown or contradicts another.
        KafkaTimeoutError: not done in `default_api_timeout_ms`.
        AiogroupError: no broker was reached, or it refused.
    """
    return await _with(group_id, settings, _Asking.members)


async def remove_members(
    group_id: str,
    names: Iterable[str],
    *,
    reason: str = "removed by name",
    **settings: Any,  # noqa: ANN401 (Consumer's)
) -> tuple[GroupMember, ...]:
    """Take static members out of a group at once, so that nobody waits for their registration time-out.

    Stop their processes first: a member that still runs joins again by itself. `reason` goes into the broker's log.

    Returns:
        The removed members.

    Raises:
        MemberNotFoundError: no static member has one of the names; then none is removed.
        GroupNotFoundError: there is no such group.
        GroupAuthorizationError: grant READ on the group.
        ConfigError: a setting is unknown or contradicts another.
        KafkaTimeoutError: not done in `default_api_timeout_ms`.
        AiogroupError: no broker was reached, or it refused.
    """
    wanted = tuple(dict.fromkeys(names))

    async def remove(asking: _Asking) -> tuple[GroupMember, ...]:
        there = {each.name: each for each in await asking.members() if each.name is not None}
        if missing := [name for name in wanted if name not in there]:
            raise asking.not_found(missing, there)
        if wanted:
            await asking.remove(wanted, reason)
        return tuple(there[name] for name in wanted)

    return await _with(group_id, settings, remove)


async def _with(group_id: str, settings: dict[str, Any], work: Callable[[_Asking], Any]) -> tuple[GroupMember, ...]:
    config = ConsumerConfig.of(**settings, group_id=group_id)
    link = Link(config)
    try:
        async with timeout_ms(config.default_api_timeout_ms):
            found: tuple[GroupMember, ...] = await work(_Asking(config, link))
            return found
    except KafkaTimeoutError:
        raise
    except TimeoutError as error:
        raise KafkaTimeoutError(
            f"group {group_id!r}: not done within default_api_timeout_ms={config.default_api_timeout_ms}"
        ) from error
    finally:
        await link.wait_closed(link.close())


class _Asking:
    """Asks the brokers about one group. It retries without a bound, so the caller must set a time-out."""

    def __init__(self, config: ConsumerConfig, link: Link) -> None:
        assert config.group_id is not None
        self._group_id = config.group_id
        self._config = config
        self._link = link

    async def members(self) -> tuple[GroupMember, ...]:
        request = DescribeGroupsRequest(groups=(self._group_id,))
        response = await self._ask(request, lambda answer: self._only(answer.groups, "group").error_code)
        group = self._only(response.groups, "group")
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
            raise GroupNotFoundError(group.error_message or f"there is no group {self._group_id!r}")
        self._check(group.error_code, "DESCRIBE")
        return tuple(sorted(_members(group), key=lambda each: (each.name is None, each.name or each.member_id)))

    async def remove(self, names: tuple[str, ...], reason: str) -> None:
        # With an empty member id the broker removes the member that has the name now (KIP-345).
        leaving = tuple(MemberIdentity(member_id="", group_instance_id=name, reason=reason) for name in names)
        request = LeaveGroupRequest(group_id=self._group_id, members=leaving)
        response = await self._ask(request, lambda answer: answer.error_code)
        self._check(response.error_code, "READ")
        gone = [each.group_instance_id or "" for each in response.members if each.error_code in _GONE]
        if gone:
            raise self.not_found(gone, ())
        self._check(response.first_error_code, "READ")

    def not_found(self, missing: Iterable[str], there: Iterable[str]) -> MemberNotFoundError:
        names = ", ".join(repr(name) for name in missing)
        known = ", ".join(sorted(there))
        return MemberNotFoundError(
            f"group {self._group_id!r} has no static member {names}" + (f"; it has {known}" if known else "")
        )

    def _only(self, answered: Sequence[T], what: str) -> T:
        if len(answered) != 1:
            raise BrokerError(
                -1,
                "UNKNOWN_SERVER_ERROR",
                f"the answer has {len(answered)} times a {what} for {self._group_id!r} instead of once; ask again",
                retriable=True,
            )
        return answered[0]

    def _check(self, code: int, operation: str) -> None:
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise not_authorized_error(self._group_id, operation)
        if code:
            row = lookup(code)
            raise BrokerError(code, row.name, f"group {self._group_id!r}: {row.message}", retriable=row.retriable)

    async def _ask(self, request: Request[R_co], code_of: Callable[[R_co], int]) -> R_co:
        """The coordinator's answer. While the coordinator moves, it is looked up again."""
        retries = Retries(self._config)
        while True:
            try:
                response = await self._link.send(await self._find(), request, METADATA)
                if code_of(response) not in NOT_READY:
                    return response
            except (ConnectionLostError, KafkaTimeoutError, ProtocolError):
                if not self._link.cluster.brokers:
                    raise  # no bootstrap server was reached: this error says so
            await retries.back_off()

    async def _find(self) -> int:
        await self._link.fetch_metadata(())
        response = await self._link.ask_any(FindCoordinatorRequest(coordinator_keys=(self._group_id,)))
        found = self._only(response.coordinators, "coordinator")
        if found.error_code in NOT_READY:
            raise ConnectionLostError(f"the coordinator of group {self._group_id!r} is not there yet")
        self._check(found.error_code, "DESCRIBE")
        return found.node_id


_GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


def _members(group: DescribedGroup) -> Iterable[GroupMember]:
    for each in group.members:
        try:
            partitions = read_assignment(bytes(each.member_assignment)) if each.member_assignment else ()
        except AiogroupError:  # not a group of consumers (but of Connect, say): its assignments are in another format
            partitions = ()
        yield GroupMember(
            each.group_instance_id, each.member_id, each.client_id, each.client_host.lstrip("/"), partitions
        )
