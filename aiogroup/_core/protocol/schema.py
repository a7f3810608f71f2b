"""Declares messages: frozen dataclasses whose fields say in which versions, and how, they are sent.

Kafka's own schemas become such declarations by `tests/protocol/message_tables.py`.

    @structure
    class HeartbeatRequest(Request[HeartbeatResponse]):
        group_id: str = wire(STRING)
        group_instance_id: str | None = wire(STRING, since=3, nullable=3, default=None)

From such a declaration one encoder and one decoder are built for each version. Fields are declared in Kafka's order,
which is the order of the bytes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast, dataclass_transform

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.values import dataclass
from aiogroup.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Mapping

LAST = 0x7FFF

Value: TypeAlias = Any
"""A field's value. Its type is in the field's declaration, and is checked when the value is written."""

C = TypeVar("C")


@dataclass_transform(frozen_default=True)
def structure(cls: type[C]) -> type[C]:
    """A frozen slotted dataclass of `wire` fields."""
    return dataclass(frozen=True, slots=True)(cls)


class Scalar(Enum):
    """Types that need no further declaration: their least size in bytes, and `struct`'s letter if the size is fixed."""

    INT8 = (1, "b")
    INT16 = (2, "h")
    INT32 = (4, "i")
    INT64 = (8, "q")
    UINT16 = (2, "H")
    UINT32 = (4, "I")
    FLOAT64 = (8, "d")
    BOOLEAN = (1, "?")
    UUID = (16, "16s")
    # Without the third value Enum would take these three for one member with three names.
    STRING = (1, "", "string")
    BYTES = (1, "", "bytes")
    RECORDS = (1, "", "records")

    def __init__(self, least_bytes: int, letter: str, name: str = "") -> None:
        self.least_bytes = least_bytes
        self.letter = letter
        self.is_number = len(letter) == 1


INT8, INT16, INT32, INT64 = Scalar.INT8, Scalar.INT16, Scalar.INT32, Scalar.INT64
UINT16, UINT32, FLOAT64, BOOLEAN = Scalar.UINT16, Scalar.UINT32, Scalar.FLOAT64, Scalar.BOOLEAN
UUID16, STRING, BYTES, RECORDS = Scalar.UUID, Scalar.STRING, Scalar.BYTES, Scalar.RECORDS


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of `element`; a tuple in Python."""

    element: Scalar | Nested


@dataclass(frozen=True, slots=True)
class Nested:
    """A structure inside of a structure."""

    type: type[Structure]


WireType: TypeAlias = Scalar | Array | Nested

_DEFAULTS: dict[Scalar, Any] = {
    FLOAT64: 0.0,
    BOOLEAN: False,
    UUID16: ZERO_UUID,
    STRING: "",
    BYTES: b"",
    RECORDS: None,
}


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Spec:
    """How one field is sent. Its name is set when the structure is first encoded or decoded."""

    type: WireType
    since: int
    until: int
    nullable: int
    tag: int | None
    ignorable: bool
    default: Any
    name: str = ""

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        return version >= self.nullable


_UNSET: Any = object()


def wire(
    type_: WireType | type[Structure],
    *,
    since: int = 0,
    until: int = LAST,
    nullable: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    default: Value = _UNSET,
) -> Value:
    """A field that versions `since` to `until` carry.

    Args:
        type_: its type, or the class of a nested structure.
        since: first version with it.
        until: last version with it.
        nullable: first version in which it may be None.
        tag: its number as a tagged field (KIP-482), in all its versions.
        ignorable: a version without it drops the value; otherwise such a version refuses all but `default`.
        default: Kafka's default; without it zero, empty, or the structure's own defaults.
    """
    if isinstance(type_, type):
        type_ = Nested(type_)
    if default is _UNSET:
        default = _default_of(type_)
    spec = Spec(type_, since, until, LAST + 1 if nullable is None else nullable, tag, ignorable, default)
    return field(default=default, metadata={"wire": spec})


def array(element: Scalar | type[Structure]) -> Array:
    """The type of a tuple of `element`."""
    return Array(Nested(element) if isinstance(element, type) else element)


def _default_of(type_: WireType) -> Value:
    if isinstance(type_, Array):
        return ()
    if isinstance(type_, Nested):
        return type_.type()
    return _DEFAULTS.get(type_, 0)


class Structure:
    """Something with fields: a message or a part of one."""

    __slots__ = ()


_specs: dict[type[Structure], tuple[Spec, ...]] = {}


def specs(structure: type[Structure]) -> tuple[Spec, ...]:
    """The fields of a structure, in the order of the bytes."""
    found = _specs.get(structure)
    if found is None:
        named = fields(cast("Any", structure))
        found = _specs[structure] = tuple(each.metadata["wire"] for each in named)
        for each, spec in zip(named, found, strict=True):
            spec.name = each.name
    return found


class Message(Structure):
    """A whole request or response. Callers see one form for all versions; `forms.py` translates where one differs."""

    __slots__ = ()


class Response(Message):
    """An answer; versions and API are those of its request."""

    __slots__ = ()


R_co = TypeVar("R_co", bound=Response, covariant=True)


class Request(Message, Generic[R_co]):
    """A request to a broker. Its versions are those that both Kafka 4.3 and aiogroup speak."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_SINCE: ClassVar[int]
    RESPONSE: ClassVar[type[Response]]

    @classmethod
    def api_name(cls) -> str:
        return cls.__name__.removesuffix("Request")

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return version >= cls.FLEXIBLE_SINCE


def negotiate(
    request_type: type[Request[Any]],
    broker_ranges: Mapping[int, tuple[int, int]],
    *,
    at_most: int | None = None,
) -> int:
    """The highest version of a request that a broker and aiogroup both speak.

    Args:
        request_type: the request.
        broker_ranges: lowest and highest version by API key, as the broker's ApiVersions says.
        at_most: a ceiling of the caller's own.

    Raises:
        UnsupportedVersionError: there is no such version.
    """
    name, key = request_type.api_name(), request_type.API_KEY
    lowest, highest = request_type.MIN_VERSION, request_type.MAX_VERSION
    if at_most is not None:
        highest = min(highest, at_most)
    ours = f"aiogroup speaks {lowest} to {highest} of {name} ({key})"
    if key not in broker_ranges:
        raise UnsupportedVersionError(f"the broker does not serve {name} ({key}) on this listener; {ours}")
    broker_lowest, broker_highest = broker_ranges[key]
    version = min(highest, broker_highest)
    if version < max(lowest, broker_lowest):
        remedy = (
            "upgrade the brokers to Kafka 2.1 or newer"
            if broker_highest < lowest
            else "upgrade aiogroup, or ask for a higher version where the call set a ceiling"
        )
        raise UnsupportedVersionError(f"{ours}, the broker {broker_lowest} to {broker_highest}: {remedy}")
    return version
