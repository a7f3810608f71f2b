"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    STRING,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)


@structure
class DescribeConfigsSynonym(Structure):
    """The synonyms for this configuration key."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    source: int = wire(INT8)


@structure
class DescribeConfigsResourceResult(Structure):
    """Each listed configuration."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    read_only: bool = wire(BOOLEAN)
    config_source: int = wire(INT8, since=1, default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOLEAN)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(array(DescribeConfigsSynonym), since=1, ignorable=True)
    config_type: int = wire(INT8, since=3, ignorable=True)
    documentation: str | None = wire(STRING, since=3, nullable=3, ignorable=True)


@structure
class DescribeConfigsResult(Structure):
    """The results for each resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(array(DescribeConfigsResourceResult))


@structure
class DescribeConfigsResponse(Response):
    """The answer to `DescribeConfigsRequest`."""

    throttle_time_ms: int = wire(INT32)
    results: tuple[DescribeConfigsResult, ...] = wire(array(DescribeConfigsResult))


@structure
class DescribeConfigsResource(Structure):
    """The resources whose configurations we want to describe."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: tuple[str, ...] | None = wire(array(STRING), nullable=0)


@structure
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Asks for settings of topics (2), brokers (4), and other resources; null `configuration_keys` stand for all.
    `config_source` says where a value comes from (KIP-226).
    """

    API_KEY = 32
    MIN_VERSION = 1
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4
    RESPONSE = DescribeConfigsResponse

    resources: tuple[DescribeConfigsResource, ...] = wire(array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOLEAN, since=1)
    include_documentation: bool = wire(BOOLEAN, since=3)


@structure
class AlterConfigsResourceResponse(Structure):
    """The responses for each resource."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)


@structure
class AlterConfigsResponse(Response):
    """The answer to `AlterConfigsRequest`."""

    throttle_time_ms: int = wire(INT32)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(array(AlterConfigsResourceResponse))


@structure
class AlterableConfig(Structure):
    """The configurations."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)


@structure
class AlterConfigsResource(Structure):
    """The updates for each resource."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[AlterableConfig, ...] = wire(array(AlterableConfig))


@structure
class AlterConfigsRequest(Request[AlterConfigsResponse]):
    """Replaces all settings of resources; what is not named gets its default again."""

    API_KEY = 33
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2
    RESPONSE = AlterConfigsResponse

    resources: tuple[AlterConfigsResource, ...] = wire(array(AlterConfigsResource))
    validate_only: bool = wire(BOOLEAN)


@structure
class IncrementalAlterConfigsResponse(Response):
    """The answer to `IncrementalAlterConfigsRequest`."""

    throttle_time_ms: int = wire(INT32)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(array(AlterConfigsResourceResponse))


@structure
class IncrementalAlterableConfig(Structure):
    """The configurations."""

    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable=0)


@structure
class IncrementalAlterConfigsResource(Structure):
    """The incremental updates for each resource."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: tuple[IncrementalAlterableConfig, ...] = wire(array(IncrementalAlterableConfig))


@structure
class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Sets (0), deletes (1), appends to (2) or subtracts from (3) single settings (KIP-339)."""

    API_KEY = 44
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 1
    RESPONSE = IncrementalAlterConfigsResponse

    resources: tuple[IncrementalAlterConfigsResource, ...] = wire(array(IncrementalAlterConfigsResource))
    validate_only: bool = wire(BOOLEAN)


@structure
class ConfigResource(Structure):
    """Each config resource in the response."""

    resource_name: str = wire(STRING)
    resource_type: int = wire(INT8, since=1, default=16, ignorable=True)


@structure
class ListConfigResourcesResponse(Response):
    """The answer to `ListConfigResourcesRequest`."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    config_resources: tuple[ConfigResource, ...] = wire(array(ConfigResource))


@structure
class ListConfigResourcesRequest(Request[ListConfigResourcesResponse]):
    """Asks for the resources that have settings (KIP-1142); no types stand for all. Version 0 has client metrics (16)
    only.
    """

    API_KEY = 74
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0
    RESPONSE = ListConfigResourcesResponse

    resource_types: tuple[int, ...] = wire(array(INT8), since=1)
