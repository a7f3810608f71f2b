"""The requests of the classic protocol, made from a member's identity and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiogroup.membership.failures import PROTOCOL_TYPE
from aiogroup.membership.identity import Identity
from aiogroup.membership.settings import GroupSettings
from aiogroup.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from aiogroup.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiogroup.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

__all__ = ["join_request", "leave_request", "sync_request"]

REASON_LENGTH: Final = 255
"""Longer reasons are cut before they are sent (KIP-800)."""


def join_request(
    who: Identity, settings: GroupSettings, subscriptions: Iterable[tuple[str, bytes]], why: str
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=who.group_id,
        session_timeout_ms=settings.session_of(who)[1],
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=blob) for name, blob in subscriptions),
        reason=why[:REASON_LENGTH],
    )


def sync_request(who: Identity, assignor: str, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=who.group_id,
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=assignor,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=blob) for member, blob in assignments.items()
        ),
    )


def leave_request(who: Identity, why: str, *, even_static: bool) -> LeaveGroupRequest | None:
    """LeaveGroup; `None` for a member that is in no group, or that keeps its static name."""
    if not who.member_id or (who.is_static and not even_static):
        return None
    member = MemberIdentity(member_id=who.member_id, group_instance_id=who.instance_id, reason=why)
    return LeaveGroupRequest(group_id=who.group_id, members=(member,))
