"""AlterConfigs (33) and IncrementalAlterConfigs (44), as ConfigAdminManager and ConfigurationControlManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.admin.resources import RefusedResourceError, ResourceType, look_at_node
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.logs.topics import refusal_of_name
from aiogroup.embedded.machine.settings import (
    ALWAYS_DYNAMIC,
    BROKER,
    DYNAMIC,
    TOPIC,
    ConfigSource,
    InvalidValueError,
    Kind,
    Replicas,
    Words,
    spelled,
)
from aiogroup.embedded.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.nodes import Nodes
    from aiogroup.embedded.machine.refusals import Troubles
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["ConfigChanges"]

NOT_OURS = "the embedded broker has no settings of this kind: leave them out, or test this on real Kafka"


class Operation(IntEnum):
    """What a change does (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one setting."""

    name: str
    operation: int
    value: str | None


class Asked(NamedTuple):
    """What a request asks of one resource."""

    kind: int
    name: str
    changes: tuple[Change, ...]
    replaces_all: bool
    """Settings that are not named get their defaults again."""


class ConfigChanges:
    """Changes settings of topics, of the cluster, and of the node of a one-node cluster, with effect at once."""

    def __init__(self, topics: Topics, nodes: Nodes, settings: Settings, faults: Faults, troubles: Troubles) -> None:
        self._topics = topics
        self._nodes = nodes
        self._settings = settings
        self._faults = faults
        self._troubles = troubles

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {AlterConfigsRequest: self.alter, IncrementalAlterConfigsRequest: self.alter_incrementally}

    def alter(self, exchange: Exchange, request: AlterConfigsRequest, now_ms: int) -> None:
        asked = [
            Asked(
                each.resource_type,
                each.resource_name,
                tuple(Change(one.name, Operation.SET, one.value) for one in each.configs),
                replaces_all=True,
            )
            for each in request.resources
        ]
        responses = self._alter_all(exchange, asked, request.validate_only, now_ms)
        exchange.answer(AlterConfigsResponse(responses=responses), now_ms)

    def alter_incrementally(self, exchange: Exchange, request: IncrementalAlterConfigsRequest, now_ms: int) -> None:
        asked = [
            Asked(
                each.resource_type,
                each.resource_name,
                tuple(Change(one.name, one.config_operation, one.value) for one in each.configs),
                replaces_all=False,
            )
            for each in request.resources
        ]
        responses = self._alter_all(exchange, asked, request.validate_only, now_ms)
        exchange.answer(IncrementalAlterConfigsResponse(responses=responses), now_ms)

    def _alter_all(
        self, exchange: Exchange, asked: Sequence[Asked], validate_only: bool, now_ms: int
    ) -> tuple[AlterConfigsResourceResponse, ...]:
        counts = Counter((each.kind, each.name) for each in asked)
        responses = []
        for each in asked:
            code, message = ErrorCode.NONE, None
            try:
                if counts[each.kind, each.name] > 1:
                    raise _invalid("Each resource must appear at most once.")
                self._alter(exchange, each, validate_only)
            except RefusedResourceError as refused:
                code, message = refused.code, refused.message
                self._troubles.note_settings(exchange.client_id, each.name or "the cluster", message, now_ms)
            responses.append(AlterConfigsResourceResponse(code, message, each.kind, each.name))
        return tuple(responses)

    def _alter(self, exchange: Exchange, asked: Asked, validate_only: bool) -> None:
        place = Place(topic=asked.name) if asked.kind == ResourceType.TOPIC else Place()
        if code := self._faults.refusal(exchange, place):
            raise RefusedResourceError(code, code.name)
        _look_at_changes(asked.changes)
        match asked.kind:
            case ResourceType.TOPIC:
                self._alter_topic(asked, validate_only)
            case ResourceType.NODE:
                if asked.name:
                    look_at_node(asked.name, exchange.node_id)
                self._alter_node(asked, validate_only)
            case ResourceType.METRICS | ResourceType.GROUP:
                raise _invalid(NOT_OURS)
            case ResourceType.LOGGER if not asked.replaces_all:
                raise _invalid(NOT_OURS)
            case _:
                raise _invalid(f"Unknown resource type {asked.kind}")
        if code := self._faults.denial(exchange, place):
            raise RefusedResourceError(code, code.name)

    def _alter_topic(self, asked: Asked, validate_only: bool) -> None:
        topic = self._topics.get(asked.name)
        if any(each.operation not in frozenset(Operation) for each in asked.changes):
            # Kafka's controller fails with an unexpected error here.
            raise RefusedResourceError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        config = {} if topic is None or asked.replaces_all else dict(topic.config)
        for each in asked.changes:
            kind, broker_name = TOPIC.get(each.name, (None, None))
            default = None if broker_name is None else self._settings[broker_name]
            _apply(config, each, kind, "" if default is None else spelled(default))
        if not asked.name:
            raise _invalid("Default topic resources are not allowed.")
        if (message := refusal_of_name(asked.name)) is not None:
            raise RefusedResourceError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        if (message := self._settings.topic_refusal(config)) is not None:
            raise RefusedResourceError(ErrorCode.INVALID_CONFIG, message)
        if topic is None:
            raise RefusedResourceError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{asked.name}' does not exist."
            )
        if not validate_only:
            topic.config = config

    def _alter_node(self, asked: Asked, validate_only: bool) -> None:
        source = ConfigSource.DYNAMIC_BROKER if asked.name else ConfigSource.DYNAMIC_DEFAULT_BROKER
        if asked.name and len(self._nodes) > 1:
            raise _invalid(
                "the nodes of the embedded broker have their settings in common: change those of the whole cluster "
                "(no name of a node; kafka-configs --entity-default)"
            )
        former = self._settings.changed[source]
        config = {} if asked.replaces_all else dict(former)
        for each in asked.changes:
            if each.operation not in frozenset(Operation):
                raise _invalid(f"Unknown operations type {each.operation}")
            kind = BROKER.get(each.name)
            _apply(config, each, kind, "" if kind is None else spelled(kind.default))
        if (why := _refusal_of_node(config)) is not None:
            raise _invalid(why)
        if config.get(ALWAYS_DYNAMIC) != former.get(ALWAYS_DYNAMIC):
            if asked.name:
                raise RefusedResourceError(
                    ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
                )
            if ALWAYS_DYNAMIC not in config:
                raise RefusedResourceError(
                    ErrorCode.INVALID_CONFIG,
                    "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
                )
        if not validate_only:
            self._settings.change(source, config)


def _invalid(message: str) -> RefusedResourceError:
    return RefusedResourceError(ErrorCode.INVALID_REQUEST, message)


def _look_at_changes(changes: Sequence[Change]) -> None:
    """The checks of the asked node, before the controller sees the request."""
    if len({each.name for each in changes}) < len(changes):
        raise _invalid("Error due to duplicate config keys")
    without = [each.name for each in changes if each.value is None and each.operation != Operation.DELETE]
    if without:
        raise _invalid(f"Null value not supported for : {', '.join(without)}")


def _apply(config: dict[str, str], change: Change, kind: Kind | None, default: str) -> None:
    """Apply one change to `config`."""
    name, value = change.name, change.value or ""
    match change.operation:
        case Operation.SET:
            config[name] = value
        case Operation.DELETE:
            config.pop(name, None)
        case Operation.APPEND | Operation.SUBTRACT:
            if not isinstance(kind, Words | Replicas):
                raise RefusedResourceError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {Operation(change.operation).name} to key {name} because its type is not LIST.",
                )
            words = [each for each in config.get(name, default).split(",") if each]
            for each in value.split(","):
                if change.operation == Operation.APPEND and each not in words:
                    words.append(each)
                elif change.operation == Operation.SUBTRACT and each in words:
                    words.remove(each)
            config[name] = ",".join(words)


def _refusal_of_node(config: Mapping[str, str]) -> str | None:
    """Why no node may have these settings while it runs (DynamicBrokerConfig.validate)."""
    strangers = [name for name in config if name not in BROKER]
    if strangers:
        return f"the embedded broker has no setting {strangers[0]}: it lets one change {', '.join(sorted(DYNAMIC))}"
    fixed = [name for name in config if name not in DYNAMIC]
    if fixed:
        return f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
    for name, text in config.items():
        try:
            BROKER[name].read(text)
        except InvalidValueError as error:
            return f"Invalid value {error.shown} for configuration {name}: {error.why}"
    return None
