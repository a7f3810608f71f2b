"""A Kafka broker inside of this process, for tests and demos: `with Broker() as broker: ...`. It is not Kafka."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiogroup.embedded.broker import Broker, BrokerNode
    from aiogroup.embedded.conditions import Condition, asked, caught_up, committed, reading, stable
    from aiogroup.embedded.faulting import Handle
    from aiogroup.embedded.machine.faults.rules import CUT, DROPPED, Raw
    from aiogroup.embedded.machine.logs.direct import StoredRecord, damaged
    from aiogroup.embedded.machine.refusals import BrokerRefusal, Trouble
    from aiogroup.embedded.machine.snapshots import Snapshot
    from aiogroup.embedded.shell.virtual_loop import StuckError, VirtualLoop, VirtualTimeError
    from aiogroup.embedded.shell.virtual_time import run_virtual, virtual_time
    from aiogroup.embedded.views import CommittedOffset, GroupView, MemberView

__all__ = [
    "CUT",
    "DROPPED",
    "Broker",
    "BrokerNode",
    "BrokerRefusal",
    "CommittedOffset",
    "Condition",
    "GroupView",
    "Handle",
    "MemberView",
    "Raw",
    "Snapshot",
    "StoredRecord",
    "StuckError",
    "Trouble",
    "VirtualLoop",
    "VirtualTimeError",
    "asked",
    "caught_up",
    "committed",
    "damaged",
    "reading",
    "run_virtual",
    "stable",
    "virtual_time",
]

_HOMES = {
    name: f"aiogroup.embedded.{home}"
    for home, names in {
        "broker": ("Broker", "BrokerNode"),
        "conditions": ("Condition", "asked", "caught_up", "committed", "reading", "stable"),
        "faulting": ("Handle",),
        "machine.faults.rules": ("CUT", "DROPPED", "Raw"),
        "machine.logs.direct": ("StoredRecord", "damaged"),
        "machine.refusals": ("BrokerRefusal", "Trouble"),
        "machine.snapshots": ("Snapshot",),
        "shell.virtual_loop": ("StuckError", "VirtualLoop", "VirtualTimeError"),
        "shell.virtual_time": ("run_virtual", "virtual_time"),
        "views": ("CommittedOffset", "GroupView", "MemberView"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (loaded when it is first asked for: parts of it need no socket)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
