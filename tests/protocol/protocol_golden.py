"""The golden files and how their values compare with ours; golden/README.md says where they come from."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aiogroup._core.protocol import decode_request, decode_response, encode_request, encode_response
from aiogroup._core.protocol.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aiogroup._core.protocol.messages import REQUESTS
from aiogroup._core.protocol.schema import Array, Nested, Scalar, specs

GOLDEN = Path(__file__).parent / "golden"
BY_NAME = {request.api_name(): request for request in REQUESTS.values()}
BLOBS = {
    "ConsumerProtocolSubscription": (decode_subscription, encode_subscription),
    "ConsumerProtocolAssignment": (decode_assignment, encode_assignment),
}
CORRELATION_ID = 0x01020304
OF_THE_DRAFT = {"JoinGroupRequest.registrationTimeoutMs", "JoinGroupRequest.expansionTimeoutMs"}
"""Tagged fields of KIP-345's draft, which Kafka has not: they are sent only where they are set."""


@dataclass(frozen=True)
class Row:
    message: str
    version: int
    variant: str
    frame: bytes
    json: dict[str, Any]

    @property
    def is_blob(self) -> bool:
        return self.message in BLOBS

    @property
    def is_request(self) -> bool:
        return self.message.endswith("Request")

    @property
    def request(self) -> Any:
        return BY_NAME[self.message.removesuffix("Request").removesuffix("Response")]

    @property
    def id(self) -> str:
        return f"{self.message}-{self.version}-{self.variant}"

    def decode(self, frame: bytes | memoryview) -> Any:
        """The message alone."""
        if self.is_blob:
            return BLOBS[self.message][0](frame)
        if self.is_request:
            return decode_request(frame)[1]
        return decode_response(self.request, self.version, frame)[1]

    def encode(self, message: Any) -> bytes:
        if self.is_blob:
            return BLOBS[self.message][1](message, self.version)
        if self.is_request:
            client_id = None if self.variant == "empty" else "golden-é"
            return encode_request(message, self.version, CORRELATION_ID, client_id)
        return encode_response(self.request, message, self.version, CORRELATION_ID)


@cache
def java_rows() -> list[Row]:
    """What Java writes, for the versions aiogroup speaks."""
    rows = []
    for line in (GOLDEN / "java_messages.jsonl").read_text().splitlines():
        raw = json.loads(line)
        row = Row(raw["message"], raw["version"], raw["variant"], bytes.fromhex(raw["hex"]), raw["json"])
        if row.is_blob or row.request.MIN_VERSION <= row.version <= row.request.MAX_VERSION:
            rows.append(row)
    return rows


def by_message(rows: list[Row]) -> dict[str, list[Row]]:
    """One test per message is five times as fast as one per row."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.message, []).append(row)
    return found


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def differences(ours: Any, java: dict[str, Any], where: str = "") -> list[str]:
    """Where a structure of ours differs from Java's JSON form of it; fields missing there are at their default."""
    found = []
    unread = set(java)
    for spec in specs(type(ours)):
        name = camel(spec.name)
        value = getattr(ours, spec.name)
        if name in java:
            unread.remove(name)
            found += _different(spec.type, value, java[name], f"{where}.{name}")
        elif value != spec.default:
            found.append(f"{where}.{name}: {value!r}, not in Java's")
    return found + [f"{where}.{name}: not in ours" for name in sorted(unread)]


def _different(type_: Any, ours: Any, java: Any, where: str) -> list[str]:
    if ours is None or java is None:
        return [] if ours is java else [f"{where}: {ours!r}, Java {java!r}"]
    if isinstance(type_, Array):
        if len(ours) != len(java):
            return [f"{where}: {len(ours)} elements, Java {len(java)}"]
        pairs = enumerate(zip(ours, java, strict=True))
        return [each for i, (a, b) in pairs for each in _different(type_.element, a, b, f"{where}[{i}]")]
    if isinstance(type_, Nested):
        return differences(ours, java, where)
    if type_ is Scalar.UUID:
        ours = base64.urlsafe_b64encode(ours.bytes).decode().rstrip("=")
    elif type_ in {Scalar.BYTES, Scalar.RECORDS}:
        ours = base64.b64encode(ours).decode()
    return [] if ours == java and type(ours) is type(java) else [f"{where}: {ours!r}, Java {java!r}"]
