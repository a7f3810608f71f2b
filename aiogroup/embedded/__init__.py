"""A Kafka broker inside of this process, for tests and demos: `with Broker() as broker: ...`. It is not Kafka."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiogroup.embedded.broker import Broker, BrokerNode
    from aiogroup.embedded.machine.refusals import BrokerRefusal

__all__ = ["Broker", "BrokerNode", "BrokerRefusal"]

_HOMES = {
    "Broker": "aiogroup.embedded.broker",
    "BrokerNode": "aiogroup.embedded.broker",
    "BrokerRefusal": "aiogroup.embedded.machine.refusals",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (loaded when it is first asked for: parts of it need no socket)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
