"""ApiVersions (18).

Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file.
"""

from __future__ import annotations

from aiogroup._core.protocol.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    Request,
    Response,
    Structure,
    array,
    structure,
    wire,
)


@structure
class ApiVersion(Structure):
    """The APIs supported by the broker."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@structure
class SupportedFeatureKey(Structure):
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are omitted."""

    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@structure
class FinalizedFeatureKey(Structure):
    """List of cluster-wide finalized features. The information is valid only if FinalizedFeaturesEpoch >= 0."""

    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@structure
class ApiVersionsResponse(Response):
    """The answer to `ApiVersionsRequest`."""

    error_code: int = wire(INT16)
    api_keys: tuple[ApiVersion, ...] = wire(array(ApiVersion))
    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = wire(
        array(SupportedFeatureKey), since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: int = wire(INT64, since=3, tag=1, default=-1, ignorable=True)
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(
        array(FinalizedFeatureKey), since=3, tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(BOOLEAN, since=3, tag=3, ignorable=True)


@structure
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Asks which requests a broker supports, in which versions; the first request on every connection. It names the
    client since version 3 (KIP-511); brokers answer 42 to invalid characters in either field. One that does not know
    the version answers error 35 in version 0.
    """

    API_KEY = 18
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3
    RESPONSE = ApiVersionsResponse

    client_software_name: str = wire(STRING, since=3, ignorable=True)
    client_software_version: str = wire(STRING, since=3, ignorable=True)
