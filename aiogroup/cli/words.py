"""What several commands say in the same words."""

from __future__ import annotations

from collections.abc import Iterable

from aiogroup.cli.looks import PartitionLook
from aiogroup.cluster import Broker
from aiogroup.recovery.ranges import count

__all__ = ["address", "broker_as_json", "sum_of", "token_in_short"]


def address(broker: Broker) -> str:
    """Where a broker is, with its id, as Kafka's tool writes it."""
    return f"{broker.host}:{broker.port} ({broker.node_id})"


def broker_as_json(broker: Broker) -> dict[str, object]:
    """A broker in a document."""
    return {"node_id": broker.node_id, "host": broker.host, "port": broker.port}


def sum_of(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known, `None` if nothing is."""
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def token_in_short(each: PartitionLook) -> str | None:
    """`pending 3, ahead 40`, or that the token must not be obeyed; `None` without a token."""
    if each.found.foreign:
        return "not usable"
    return None if each.token is None else f"pending {count(each.pending)}, ahead {each.ahead_count}"
