"""The broker's messages, byte for byte what Java's client writes, in every version that Kafka's broker offers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aiogroup._core.protocol.codec import ZERO_UUID
from aiogroup._core.protocol.messages import REQUESTS as CLIENTS
from aiogroup._core.protocol.schema import Array, Nested, specs
from aiogroup.embedded.messages.framing import decode, encode_answer
from aiogroup.embedded.messages.ranges import LATER, RANGES, REQUESTS
from aiogroup.errors import UnsupportedVersionError
from tests.protocol.protocol_golden import CORRELATION_ID, GOLDEN, OF_THE_DRAFT, Row, by_message, camel, differences
from tests.protocol.protocol_values import value
from tests.support.any_version import decode_any_response, encode_any_request, lifted, lowered

ALL = {**RANGES, **LATER}
BY_NAME = {request.api_name(): request for request in ALL}
JAVA_HAS = {"Produce": 3}
"""The first version that Java's client can write, for requests whose range begins earlier."""
OLD_NAMES = {
    "v3AndBelowTransactionalId": "transactionalId",
    "v3AndBelowProducerId": "producerId",
    "v3AndBelowProducerEpoch": "producerEpoch",
    "v3AndBelowTopics": "topics",
    "resultsByTopicV3AndBelow": "resultsByTopic",
}
"""Java names what version 4 of AddPartitionsToTxn changes by the versions; here there is nothing after version 3."""


def requests_in(golden: Path) -> list[type[Any]]:
    """The requests of one folder of golden files."""
    return [request for request in ALL if (golden == GOLDEN) is (request.API_KEY in CLIENTS)]


def java_versions(request: type[Any]) -> range:
    lowest, highest = ALL[request]
    return range(max(lowest, JAVA_HAS.get(request.api_name(), 0)), highest + 1)


HERE = Path(__file__).parent / "golden"
FOLDERS = (HERE, GOLDEN)


def renamed(java: dict[str, Any]) -> dict[str, Any]:
    return {OLD_NAMES.get(name, name): each for name, each in java.items()}


@cache
def java_rows() -> list[Row]:
    found = []
    for folder in FOLDERS:
        for line in (folder / "java_messages.jsonl").read_text().splitlines():
            raw = json.loads(line)
            request = BY_NAME.get(raw["message"].removesuffix("Request").removesuffix("Response"))
            if request is not None and raw["version"] in java_versions(request):
                frame = bytes.fromhex(raw["hex"])
                found.append(Row(raw["message"], raw["version"], raw["variant"], frame, renamed(raw["json"])))
    return found


@cache
def java_fields() -> dict[str, Any]:
    found = {}
    for folder in FOLDERS:
        for path, row in json.loads((folder / "java_fields.json").read_text()).items():
            found[".".join(OLD_NAMES.get(part, part) for part in path.split("."))] = row
    return found


@pytest.mark.parametrize("rows", by_message(java_rows()).values(), ids=by_message(java_rows()))
def test_reads_what_java_writes_and_writes_the_same(rows: list[Row]) -> None:
    for row in rows:
        request = BY_NAME[row.message.removesuffix("Request").removesuffix("Response")]
        if row.is_request:
            _, message = decode(row.frame, ALL)
            assert type(message) is request
            again = encode_any_request(
                message, row.version, CORRELATION_ID, None if row.variant == "empty" else "golden-é"
            )
        else:
            _, message = decode_any_response(request, row.version, row.frame)
            again = b"".join(encode_answer(request, message, row.version, CORRELATION_ID))[4:]
        assert not differences(lowered(message, row.version), row.json), row.id
        if row.variant != "unknown-tags":
            assert again.hex() == row.frame.hex(), row.id


def test_every_version_has_golden_rows() -> None:
    have = {(row.message, row.version, row.variant) for row in java_rows()}
    need = {
        (request.api_name() + kind, version, variant)
        for request in ALL
        for version in java_versions(request)
        for kind in ("Request", "Response")
        for variant in ("full", "empty")
    }
    assert not need - have


def verdicts(structure: type[Any], version: int, path: str):
    """For each field, what happens to it in this version: carried, dropped, or refused."""
    for spec in specs(structure):
        here = f"{path}.{camel(spec.name)}"
        if here not in OF_THE_DRAFT:
            yield here, "c" if spec.in_version(version) else "d" if spec.ignorable else "r"
            inner = spec.type.element if isinstance(spec.type, Array) else spec.type
            if isinstance(inner, Nested) and spec.in_version(version):
                yield from verdicts(inner.type, version, here)


@pytest.mark.parametrize("request_type", ALL, ids=lambda request: request.api_name())
def test_carries_drops_and_refuses_the_fields_java_does(request_type) -> None:
    for kind, message in (("Request", request_type), ("Response", request_type.RESPONSE)):
        name = request_type.api_name() + kind
        for version in java_versions(request_type):
            ours = dict(verdicts(message, version, name))
            java = {
                path: told[version - first]
                for path, (first, told, _) in java_fields().items()
                if path.split(".")[0] == name and told[version - first] != "-"
            }
            assert {path for path, mine in ours.items() if mine != java.get(path, "d")} == set(), version
            assert {path for path, verdict in java.items() if verdict == "c"} <= set(ours), version


def versions(request_type) -> range:
    lowest, highest = ALL[request_type]
    return range(lowest, highest + 1)


@pytest.mark.parametrize("request_type", ALL, ids=lambda request: request.api_name())
def test_what_is_written_is_read_again(request_type) -> None:
    rng = Random(request_type.API_KEY)
    response_type = request_type.RESPONSE
    for version in (each for each in versions(request_type) for _ in range(5)):
        response = lifted(value(rng, response_type, version), version)
        answer = b"".join(encode_answer(request_type, response, version, 6))
        assert int.from_bytes(answer[:4]) == len(answer) - 4
        assert decode_any_response(request_type, version, answer[4:]) == (6, response), version
        request = lifted(value(rng, request_type, version), version)
        try:
            frame = encode_any_request(request, version, 5, "me")
        except UnsupportedVersionError:
            assert (request_type.api_name(), version < 12) == ("Metadata", True)  # ids without names
            continue
        assert decode(frame, ALL)[1] == request, version


def test_no_api_is_known_twice() -> None:
    assert not RANGES.keys() & LATER.keys()
    assert len(REQUESTS) == len(ALL)
    assert list(RANGES) == sorted(RANGES, key=lambda request: request.API_KEY)
    assert list(LATER) == sorted(LATER, key=lambda request: request.API_KEY)


def defaults(structure: type[Any], path: str):
    for spec in specs(structure):
        here = f"{path}.{camel(spec.name)}"
        inner = spec.type.element if isinstance(spec.type, Array) else spec.type
        if isinstance(inner, Nested):
            yield from defaults(inner.type, here)
        is_empty = spec.default in ((), b"") or (isinstance(spec.type, Nested) and spec.default is not None)
        yield here, "A" * 22 if spec.default == ZERO_UUID else "empty" if is_empty else spec.default


@pytest.mark.parametrize("request_type", requests_in(HERE), ids=lambda request: request.api_name())
def test_defaults_are_those_of_java(request_type) -> None:
    java = java_fields()
    for kind, message in (("Request", request_type), ("Response", request_type.RESPONSE)):
        ours = dict(defaults(message, request_type.api_name() + kind))
        assert ours.keys() <= java.keys()
        assert {path: (mine, java[path][2]) for path, mine in ours.items() if mine != java[path][2]} == {}
