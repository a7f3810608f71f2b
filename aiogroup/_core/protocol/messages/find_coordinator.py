"""FindCoordinator (10): which broker coordinates a group or a transactional id.

Since version 4 one request asks for many keys, before that for one only. Callers always use the form with many keys.
"""

from __future__ import annotations

from typing import Self

from aiogroup._core.protocol.schema import (
    INT8,
    INT16,
    INT32,
    STRING,
    Request,
    Response,
    Structure,
    Value,
    array,
    structure,
    wire,
)
from aiogroup.errors import UnsupportedVersionError

GROUP = 0
LAST_SINGLE = 3


@structure
class Coordinator(Structure):
    """The coordinator of one key. Up to version 3 the answer does not repeat the key, and `key` is empty."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=4, ignorable=True)


@structure
class SingleCoordinator(Structure):
    """The answer up to version 3."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, nullable=1, ignorable=True)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)


@structure
class FindCoordinatorResponse(Response):
    """One coordinator per key that was asked for, each with its own error."""

    throttle_time_ms: int = wire(INT32, since=1, ignorable=True)
    coordinators: tuple[Coordinator, ...] = wire(array(Coordinator), since=4)

    @classmethod
    def form(cls, version: int) -> type[Structure]:
        return SingleCoordinator if version <= LAST_SINGLE else cls

    def lower(self, version: int) -> Structure:
        if version > LAST_SINGLE:
            return self
        if len(self.coordinators) != 1:
            raise UnsupportedVersionError(
                f"version {version} of FindCoordinatorResponse carries 1 key, not {len(self.coordinators)}"
            )
        one = self.coordinators[0]
        return SingleCoordinator(
            self.throttle_time_ms, one.error_code, one.error_message, one.node_id, one.host, one.port
        )

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        if version > LAST_SINGLE:
            return form  # type: ignore[no-any-return]
        one = Coordinator("", form.node_id, form.host, form.port, form.error_code, form.error_message)
        return cls(form.throttle_time_ms, (one,))


@structure
class SingleKey(Structure):
    """The request up to version 3."""

    key: str = wire(STRING)
    key_type: int = wire(INT8, since=1)


@structure
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Asks for the coordinators of `coordinator_keys`; up to version 3 there must be exactly one key."""

    API_KEY = 10
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 3
    RESPONSE = FindCoordinatorResponse

    key_type: int = wire(INT8, default=GROUP)
    coordinator_keys: tuple[str, ...] = wire(array(STRING), since=4)

    @classmethod
    def form(cls, version: int) -> type[Structure]:
        return SingleKey if version <= LAST_SINGLE else cls

    def lower(self, version: int) -> Structure:
        if version > LAST_SINGLE:
            return self
        if len(self.coordinator_keys) != 1:
            raise UnsupportedVersionError(
                f"version {version} of FindCoordinatorRequest asks for 1 key, "
                f"not {len(self.coordinator_keys)}: "
                "send one request per key"
            )
        return SingleKey(self.coordinator_keys[0], self.key_type)

    @classmethod
    def lift(cls, version: int, form: Value) -> Self:
        return form if version > LAST_SINGLE else cls(form.key_type, (form.key,))
