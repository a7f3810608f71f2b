"""The bytes that members of a consumer group exchange in JoinGroup and SyncGroup: subscriptions and assignments.

They begin with a version. Newer versions only append fields (ConsumerProtocol.java), so a version that aiogroup does
not know is read as the newest that it knows, and the remaining bytes are skipped.
"""

from __future__ import annotations

from typing import TypeVar, cast

from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup._core.protocol.compiler import decoder, encoder
from aiogroup._core.protocol.schema import BYTES, INT32, STRING, Structure, array, structure, wire
from aiogroup.errors import ProtocolError, UnsupportedVersionError
from aiogroup.structs import TopicPartition

MAX_VERSION = 3
PROTOCOL_TYPE = "consumer"

T = TypeVar("T", bound=Structure)


@structure
class TopicPartitions(Structure):
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: tuple[int, ...] = wire(array(INT32))


@structure
class Subscription(Structure):
    """A member's topics, the partitions it keeps (KIP-429) with their generation (KIP-792), its rack (KIP-881)."""

    topics: tuple[str, ...] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, nullable=0, default=None)
    owned_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions), since=1, ignorable=True)
    generation_id: int = wire(INT32, since=2, default=-1, ignorable=True)
    rack_id: str | None = wire(STRING, since=3, nullable=3, default=None, ignorable=True)


@structure
class Assignment(Structure):
    """The partitions that the leader assigns to a member."""

    assigned_partitions: tuple[TopicPartitions, ...] = wire(array(TopicPartitions))
    user_data: bytes | None = wire(BYTES, nullable=0, default=None)


def encode_subscription(subscription: Subscription, version: int = MAX_VERSION) -> bytes:
    """The metadata of one protocol in JoinGroup. Fields that `version` lacks are left out, as in Java."""
    return _encode(subscription, version)


def decode_subscription(data: bytes | memoryview) -> Subscription:
    """A member's subscription, of any version.

    Raises:
        ProtocolError: the bytes are no subscription.
    """
    return _decode(Subscription, data)


def encode_assignment(assignment: Assignment, version: int = MAX_VERSION) -> bytes:
    """One member's assignment in SyncGroup."""
    return _encode(assignment, version)


def decode_assignment(data: bytes | memoryview) -> Assignment:
    """A member's assignment, of any version.

    No bytes at all mean an empty assignment: a broker sends that if the leader named no assignment for a member.

    Raises:
        ProtocolError: the bytes are no assignment.
    """
    return _decode(Assignment, data) if len(data) else Assignment()


def read_assignment(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """The partitions of a member's assignment, of any version.

    Raises:
        ProtocolError: the bytes are no assignment, or one of partitions that cannot exist.
    """
    topics = decode_assignment(data).assigned_partitions
    partitions = tuple(TopicPartition(each.topic, number) for each in topics for number in each.partitions)
    if nowhere := [tp for tp in partitions if not tp.topic or tp.partition < 0]:
        raise ProtocolError(f"an assignment of {nowhere[0]}, which cannot exist")
    return partitions


def _encode(value: Structure, version: int) -> bytes:
    if not 0 <= version <= MAX_VERSION:
        raise UnsupportedVersionError(f"the consumer protocol has versions 0 to {MAX_VERSION} here, not {version}")
    writer = Writer()
    writer.int16(version)
    encoder(type(value), version, False)(writer, value)
    return bytes(writer.data)


def _decode(kind: type[T], data: bytes | memoryview) -> T:
    reader = Reader(data)
    version = reader.int16()
    if version < 0:
        raise ProtocolError(f"{kind.__name__} of the consumer protocol: version {version}")
    try:
        # min() also keeps a peer from filling the table of decoders with versions that do not exist. Remaining bytes
        # are skipped in every version, as in Java, which so allows older versions to grow too.
        return cast("T", decoder(kind, min(version, MAX_VERSION), False)(reader))
    except ProtocolError as error:
        raise ProtocolError(f"{kind.__name__} of the consumer protocol: {error}") from None
