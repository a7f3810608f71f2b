"""DescribeConfigs (32) and ListConfigResources (74), as ConfigHelper and KafkaApis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.errors import ErrorCode
from aiogroup.embedded.machine.admin.resources import RefusedResourceError, ResourceType, look_at_node
from aiogroup.embedded.machine.faults.faults import Place
from aiogroup.embedded.machine.logs.topic_config import effective_settings
from aiogroup.embedded.machine.logs.topics import refusal_of_name
from aiogroup.embedded.machine.settings import (
    BROKER,
    DYNAMIC,
    TOPIC,
    ConfigSource,
    Flag,
    Kind,
    Number,
    Replicas,
    Share,
    Words,
    spelled,
)
from aiogroup.embedded.messages.configs import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from aiogroup._core.protocol.schema import Request
    from aiogroup.embedded.machine.exchange import Exchange, Handler
    from aiogroup.embedded.machine.faults.faults import Faults
    from aiogroup.embedded.machine.logs.topics import Topics
    from aiogroup.embedded.machine.nodes import Nodes
    from aiogroup.embedded.machine.refusals import Troubles
    from aiogroup.embedded.machine.settings import Settings

__all__ = ["DescribedConfigs"]

ALL_TYPES_SINCE = 1
"""Version 0 of ListConfigResources is the former ListClientMetricsResources."""
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
GREATEST_INT = 2**31 - 1
INTERNAL = "min.incremental.fetch.session.eviction.ms"
"""A setting that Kafka defines for itself and never describes."""
NOT_TOLD = {ResourceType.LOGGER: "logger", ResourceType.GROUP: "group"}
"""Kinds of resources about which the answer is empty."""
METRICS = (("interval.ms", "300000", INT), ("match", "", LIST), ("metrics", "", LIST))
"""The default settings of a client metrics subscription. The embedded broker has no subscriptions."""


class DescribedConfigs:
    """Describes to administrators the settings of topics and nodes. The documentation of a setting is always empty."""

    def __init__(self, topics: Topics, nodes: Nodes, settings: Settings, faults: Faults, troubles: Troubles) -> None:
        self._topics = topics
        self._nodes = nodes
        self._settings = settings
        self._faults = faults
        self._troubles = troubles

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        return {DescribeConfigsRequest: self.describe, ListConfigResourcesRequest: self.list_resources}

    # DescribeConfigs.

    def describe(self, exchange: Exchange, request: DescribeConfigsRequest, now_ms: int) -> None:
        known = frozenset(ResourceType)
        strangers = [each for each in request.resources if each.resource_type not in known]
        if strangers:
            # The whole request fails, before any resource is looked at.
            why = f"Unexpected resource type {strangers[0].resource_type} for resource {strangers[0].resource_name}"
            results = [_refused(each, ErrorCode.INVALID_REQUEST, why) for each in request.resources]
        else:
            results = [self._described(exchange, each, request.include_synonyms, now_ms) for each in request.resources]
        exchange.answer(DescribeConfigsResponse(results=tuple(results)), now_ms)

    def _described(
        self, exchange: Exchange, asked: DescribeConfigsResource, with_synonyms: bool, now_ms: int
    ) -> DescribeConfigsResult:
        place = Place(topic=asked.resource_name) if asked.resource_type == ResourceType.TOPIC else Place()
        if code := self._faults.refusal(exchange, place) or self._faults.denial(exchange, place):
            return _refused(asked, code, code.name)
        try:
            found = self._settings_of(exchange.node_id, asked)
        except RefusedResourceError as refused:
            return _refused(asked, refused.code, refused.message)
        if (kind := NOT_TOLD.get(ResourceType(asked.resource_type))) is not None:
            what = f"{exchange.client_id or 'a client'} asked for settings of {kind} {asked.resource_name}"
            self._troubles.note("settings", what, now_ms)
        keys = frozenset(asked.configuration_keys or ())
        chosen = (each for each in found if not keys or each.name in keys)
        if not with_synonyms:
            chosen = (_without_synonyms(each) for each in chosen)
        return DescribeConfigsResult(ErrorCode.NONE, "", asked.resource_type, asked.resource_name, tuple(chosen))

    def _settings_of(
        self, node_id: int, asked: DescribeConfigsResource
    ) -> Iterator[DescribeConfigsResourceResult] | list[DescribeConfigsResourceResult]:
        name = asked.resource_name
        kind = ResourceType(asked.resource_type)
        if kind is ResourceType.TOPIC:
            return self._of_topic(name)
        if kind is ResourceType.NODE and not name:
            return self._of_cluster()
        if not name:
            raise RefusedResourceError(ErrorCode.INVALID_REQUEST, "The name of the resource must not be empty")
        if kind in (ResourceType.NODE, ResourceType.LOGGER):
            look_at_node(name, node_id)
        if kind is ResourceType.NODE:
            return self._of_node()
        if kind is ResourceType.METRICS:
            return [_told(each, value, value_type=each_type) for each, value, each_type in METRICS]
        return []

    def _of_topic(self, name: str) -> list[DescribeConfigsResourceResult]:
        topic = self._topics.get(name)
        if topic is None:
            if (message := refusal_of_name(name)) is not None:
                raise RefusedResourceError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            raise RefusedResourceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        config = {key: spelled(TOPIC[key][0].read(text)) for key, text in topic.config.items()}
        return [
            _told(
                each.name,
                each.value,
                each.source,
                _type_of(TOPIC[each.name][0]),
                synonyms=tuple(DescribeConfigsSynonym(*one) for one in each.synonyms),
            )
            for each in effective_settings(self._settings, config)
        ]

    def _of_node(self) -> Iterator[DescribeConfigsResourceResult]:
        for name in sorted(BROKER.keys() - {INTERNAL}):
            sources = self._settings.sources(name)
            yield _told(
                name,
                spelled(self._settings[name]) if sources else None,
                sources[0][0] if sources else ConfigSource.DEFAULT,
                _type_of(BROKER[name]),
                read_only=name not in DYNAMIC,
                synonyms=tuple(DescribeConfigsSynonym(name, text, source) for source, text in sources),
            )

    def _of_cluster(self) -> Iterator[DescribeConfigsResourceResult]:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        for name, text in sorted(self._settings.changed[source].items()):
            synonyms = (DescribeConfigsSynonym(name, text, source),)
            yield _told(name, text, source, _type_of(BROKER[name]), synonyms=synonyms)

    # ListConfigResources.

    def list_resources(self, exchange: Exchange, request: ListConfigResourcesRequest, now_ms: int) -> None:
        known = frozenset(ResourceType)
        types = frozenset(request.resource_types) or known
        if exchange.version < ALL_TYPES_SINCE:
            types = frozenset({ResourceType.METRICS})
        code = self._faults.refusal(exchange) or self._faults.denial(exchange)
        if not code and not types <= known:
            code = ErrorCode.UNSUPPORTED_VERSION
        found = [] if code else [*self._resources()]
        chosen = tuple(each for each in found if each.resource_type in types)
        exchange.answer(ListConfigResourcesResponse(error_code=code, config_resources=chosen), now_ms)

    def _resources(self) -> Iterator[ConfigResource]:
        for topic in self._topics:
            yield ConfigResource(topic.name, ResourceType.TOPIC)
        for kind in (ResourceType.NODE, ResourceType.LOGGER):
            for node in self._nodes.up:
                yield ConfigResource(str(node.node_id), kind)


def _told(
    name: str,
    value: str | None,
    source: ConfigSource = ConfigSource.DEFAULT,
    value_type: int = STRING,
    *,
    read_only: bool = False,
    synonyms: tuple[DescribeConfigsSynonym, ...] = (),
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name,
        value,
        read_only,
        source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=value_type,
        documentation=None,
    )


def _without_synonyms(result: DescribeConfigsResourceResult) -> DescribeConfigsResourceResult:
    return replace(result, synonyms=())


def _refused(asked: DescribeConfigsResource, code: ErrorCode, message: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(code, message, asked.resource_type, asked.resource_name)


def _type_of(kind: Kind) -> int:
    """Kafka's number for the type of a setting (DescribeConfigsResponse.ConfigType)."""
    match kind:
        case Flag():
            return BOOLEAN
        case Number():
            return INT if kind.most <= GREATEST_INT else LONG
        case Share():
            return DOUBLE
        case Words() | Replicas():
            return LIST
    return STRING
