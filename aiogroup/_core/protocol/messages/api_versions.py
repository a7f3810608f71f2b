"""ApiVersions (18): which requests a broker supports, in which versions; the first request on every connection."""

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

UNSUPPORTED_VERSION = 35


@structure
class ApiVersion(Structure):
    """The versions of one API."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@structure
class SupportedFeatureKey(Structure):
    """A feature the broker could turn on (KIP-584)."""

    name: str = wire(STRING, since=3)
    min_version: int = wire(INT16, since=3)
    max_version: int = wire(INT16, since=3)


@structure
class FinalizedFeatureKey(Structure):
    """A feature that is on in the whole cluster (KIP-584)."""

    name: str = wire(STRING, since=3)
    max_version_level: int = wire(INT16, since=3)
    min_version_level: int = wire(INT16, since=3)


@structure
class ApiVersionsResponse(Response):
    """The broker's ranges. A broker that does not know the requested version answers error 35 in version 0."""

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

    @classmethod
    def answered_version(cls, version: int, body: memoryview) -> int:
        if version == 0 or len(body) < 6 or int.from_bytes(body[:2], "big") != UNSUPPORTED_VERSION:
            return version
        count = int.from_bytes(body[2:6], "big")
        return 0 if len(body) == 6 + 6 * count else version

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Lowest and highest version by API key, as `negotiate` takes them."""
        return {each.api_key: (each.min_version, each.max_version) for each in self.api_keys}


@structure
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Names the client since version 3 (KIP-511); brokers answer 42 to invalid characters in either field."""

    API_KEY = 18
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3
    RESPONSE = ApiVersionsResponse

    client_software_name: str = wire(STRING, since=3, ignorable=True)
    client_software_version: str = wire(STRING, since=3, ignorable=True)
