"""Assignors: pure functions that divide partitions exactly as Java's assignors of the same name do."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiogroup.assignors.assignor import Assignor, Held, MemberSubscription, Racks, is_cooperative
from aiogroup.assignors.range import RangeAssignor
from aiogroup.assignors.roundrobin import RoundRobinAssignor
from aiogroup.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BY_NAME", "Assignor", "Held", "MemberSubscription", "Racks", "is_cooperative"]

_OURS: Final[tuple[Assignor, ...]] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)

BY_NAME: Final[Mapping[str, Assignor]] = MappingProxyType({assignor.name: assignor for assignor in _OURS})
