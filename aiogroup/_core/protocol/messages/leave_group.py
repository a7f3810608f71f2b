"""LeaveGroup (13): ends memberships.

Since version 3 one request names many members, before that one only. Callers always use the form with many members.
"""

from __future__ import annotations

from typing import Self

from aiogroup._core.protocol.schema import (
    INT16,
    INT32,
    STRING,
    Request,
    Response,
    Structure,
    Value,
    array,
    structure,
    wire,
)
from aiogroup.errors import UnsupportedVersionError

LAST_SINGLE = 2


@structure
class MemberResponse(Structure):
    """The result for one member."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=3)
    error_code: int = wire(INT16)


@structure
class SingleLeft(Structure):
    """The answer up to version 2."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)


@structure
class LeaveGroupResponse(Response):
    """An error of the whole request, and one per member; up to version 2 `members` is empty."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)
    members: tuple[MemberResponse, ...] = wire(array(MemberResponse), since=3)

    @property
    def first_error_code(self) -> int:
        """The request's error, or else the first member's; 0 if all left."""
        return self.error_code or next((one.error_code for one in self.members if one.error_code), 0)

    @classmethod
    def form(cls, version: int) -> type[Structure]:
        return SingleLeft if version <= LAST_SINGLE else cls

    def lower(self, version: int) -> Structure:
        return SingleLeft(self.throttle_time_ms, self.first_error_code) if version <= LAST_SINGLE else self

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        return form if version > LAST_SINGLE else cls(form.throttle_time_ms, form.error_code)


@structure
class MemberIdentity(Structure):
    """A member that leaves: by id, or a static one by its instance id alone."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, nullable=3, default=None)
    reason: str | None = wire(STRING, since=5, nullable=5, default=None, ignorable=True)


@structure
class SingleLeave(Structure):
    """The request up to version 2."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@structure
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Takes `members` out of the group; up to version 2 there must be exactly one, without an instance id."""

    API_KEY = 13
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 4
    RESPONSE = LeaveGroupResponse

    group_id: str = wire(STRING)
    members: tuple[MemberIdentity, ...] = wire(array(MemberIdentity), since=3)

    @classmethod
    def form(cls, version: int) -> type[Structure]:
        return SingleLeave if version <= LAST_SINGLE else cls

    def lower(self, version: int) -> Structure:
        if version > LAST_SINGLE:
            return self
        if len(self.members) != 1 or self.members[0].group_instance_id is not None:
            raise UnsupportedVersionError(
                f"version {version} of LeaveGroupRequest carries 1 member without an instance id: "
                "send one request per dynamic member; static ones cannot leave such a broker"
            )
        return SingleLeave(self.group_id, self.members[0].member_id)

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        return form if version > LAST_SINGLE else cls(form.group_id, (MemberIdentity(form.member_id),))
