"""Byte for byte what Java's client writes, in every version; and what Java makes of each field in each version."""

from __future__ import annotations

import json

import pytest
from protocol_golden import BLOBS, GOLDEN, OF_THE_DRAFT, Row, by_message, camel, differences, java_rows

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.errors import ErrorCode, lookup
from aiogroup._core.protocol.messages import REQUESTS
from aiogroup._core.protocol.schema import Array, Nested, specs
from tests.support.any_version import lowered


def _form(row: Row, message):
    return message if row.is_blob else lowered(message, row.version)


@pytest.mark.parametrize("rows", by_message(java_rows()).values(), ids=by_message(java_rows()))
def test_reads_what_java_writes_and_writes_the_same(rows: list[Row]) -> None:
    for row in rows:
        message = row.decode(row.frame)
        assert not differences(_form(row, message), row.json), row.id
        if row.variant != "unknown-tags":
            assert row.encode(message).hex() == row.frame.hex(), row.id


def test_every_version_has_golden_rows() -> None:
    have = {(row.message, row.version, row.variant) for row in java_rows()}
    need = {
        (request.api_name() + kind, version, variant)
        for request in REQUESTS.values()
        for version in range(request.MIN_VERSION, request.MAX_VERSION + 1)
        for kind in ("Request", "Response")
        for variant in ("full", "empty", *(("unknown-tags",) if _has_tags(request, kind, version) else ()))
    }
    need |= {(name, version, variant) for name in BLOBS for version in range(4) for variant in ("full", "empty")}
    assert not need - have


def _has_tags(request, kind: str, version: int) -> bool:
    # ApiVersions answers without tags in the header, so Java's row for it is not made.
    return request.is_flexible(version) and (request.api_name(), kind) != ("ApiVersions", "Response")


def _verdicts(structure, version: int, path: str):
    for spec in specs(structure):
        here = f"{path}.{camel(spec.name)}"
        yield here, "c" if spec.in_version(version) else "d" if spec.ignorable else "r"
        inner = spec.type.element if isinstance(spec.type, Array) else spec.type
        if isinstance(inner, Nested) and spec.in_version(version):
            yield from _verdicts(inner.type, version, here)


@pytest.mark.parametrize("request_type", REQUESTS.values(), ids=lambda request: request.api_name())
def test_carries_drops_and_refuses_the_fields_java_does(request_type) -> None:
    java = json.loads((GOLDEN / "java_fields.json").read_text())
    for kind, message in (("Request", request_type), ("Response", request_type.RESPONSE)):
        name = request_type.api_name() + kind
        for version in range(request_type.MIN_VERSION, request_type.MAX_VERSION + 1):
            ours = dict(_verdicts(message, version, name))
            java_here = {
                path: verdicts[version - first]
                for path, (first, verdicts, _) in java.items()
                if path.split(".")[0] == name and verdicts[version - first] != "-"
            }
            wrong = {
                path: (mine, java_here.get(path))
                for path, mine in ours.items()
                # Java has a class of its own for the topics of old versions, without the ids of the new.
                if mine != java_here.get(path, "d") and path not in OF_THE_DRAFT
            }
            assert not wrong, f"{name} version {version}"
            carried = {path for path, verdict in java_here.items() if verdict == "c"}
            assert carried <= set(ours), f"{name} version {version}"


def _defaults(structure, path: str):
    for spec in specs(structure):
        here = f"{path}.{camel(spec.name)}"
        inner = spec.type.element if isinstance(spec.type, Array) else spec.type
        if isinstance(inner, Nested):
            yield from _defaults(inner.type, here)
        is_empty = spec.default in ((), b"") or isinstance(spec.type, Nested)
        yield here, "A" * 22 if spec.default == ZERO_UUID else "empty" if is_empty else spec.default


def test_defaults_are_those_of_java() -> None:
    java = json.loads((GOLDEN / "java_fields.json").read_text())
    different = set()
    for request_type in REQUESTS.values():
        for kind, message in (("Request", request_type), ("Response", request_type.RESPONSE)):
            for path, default in _defaults(message, request_type.api_name() + kind):
                if path in java and (default, type(default)) != (java[path][2], type(java[path][2])):
                    different.add(path)
    # A client must say -1; Java's consumer sets it, its schema does not.
    assert different == {"ListOffsetsRequest.replicaId", "OffsetForLeaderEpochRequest.replicaId"}


def test_error_codes_are_those_of_java() -> None:
    java = {int(code): row for code, row in json.loads((GOLDEN / "java_errors.json").read_text()).items()}
    ours = {
        int(code): {
            "name": code.name,
            "retriable": lookup(code).retriable,
            "invalid_metadata": lookup(code).invalid_metadata,
        }
        for code in ErrorCode
        if code is not ErrorCode.NO_STATIC_MEMBER_INFO_SET
    }
    assert ours == java
    assert ErrorCode.NO_STATIC_MEMBER_INFO_SET == 10345, "the draft of KIP-345 has a code of its own"


def test_an_unknown_error_code_has_a_row_that_says_so() -> None:
    row = lookup(4711)
    assert row.code == 4711
    assert "4711" in row.name
    assert not row.retriable
    assert "newer" in row.message
