"""A node's `server.properties`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiogroup.devkafka.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTROLLER: Final = "CONTROLLER"
PLAINTEXT: Final = "PLAINTEXT"

# These settings favour speed over durability, since tests wait for everything that happens.
_DEFAULTS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    "inter.broker.listener.name": PLAINTEXT,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "1800000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "100",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The fixed properties of a node: after a restart it has the same ports and the same data."""

    node_id: int
    ports: Mapping[str, int]
    protocols: Mapping[str, str]
    advertised_ports: Mapping[str, int] = field(default_factory=dict)


def server_properties(
    plan: NodePlan, voters: Mapping[int, int], log_dir: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """One node's settings; `voters` maps every node id to its controller port; `extra` overrides the others."""
    copies = str(min(3, len(voters)))
    durable = "2" if len(voters) >= 3 else "1"
    clients = {name: port for name, port in plan.ports.items() if name != CONTROLLER}
    return {
        **_DEFAULTS,
        "node.id": str(plan.node_id),
        "broker.rack": f"rack-{plan.node_id}",
        "controller.quorum.voters": ",".join(f"{i}@{HOST}:{port}" for i, port in sorted(voters.items())),
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in plan.ports.items()),
        "advertised.listeners": ",".join(
            f"{name}://{HOST}:{plan.advertised_ports.get(name, port)}" for name, port in clients.items()
        ),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {CONTROLLER: PLAINTEXT, **plan.protocols}.items()
        ),
        "log.dirs": log_dir,
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "share.coordinator.state.topic.replication.factor": copies,
        "min.insync.replicas": durable,
        "transaction.state.log.min.isr": durable,
        "share.coordinator.state.topic.min.isr": durable,
        **extra,
    }


def render(properties: Mapping[str, str]) -> str:
    """The properties in the format that `java.util.Properties` reads."""
    lines = []
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
        lines.append(f"{key}={escaped}\n")
    return "".join(lines)
