"""The shortcut for Fetch writes and reads what the general coder does, or leaves it to that."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup._core.protocol.compiler import decoder, encoder
from aiogroup._core.protocol.fetch_shortcut import read_answer, write_request
from aiogroup._core.protocol.framing import encode_response
from aiogroup._core.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aiogroup.errors import ProtocolError
from tests.protocol.protocol_values import value

VERSIONS = range(12, FetchRequest.MAX_VERSION + 1)
INT32, INT64 = 2**31, 2**63


def written_in_general(message: FetchRequest, version: int, correlation_id: int, client_id: str | None) -> bytes:
    writer = Writer()
    for number in (message.API_KEY, version):
        writer.int16(number)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)
    writer.tags()
    encoder(FetchRequest, version, flexible=True)(writer, message)
    return bytes(writer.data)


def read_in_general(frame: bytes, version: int) -> tuple[int, FetchResponse]:
    reader = Reader(frame)
    correlation_id = reader.int32()
    reader.tags()
    response = decoder(FetchResponse, version, flexible=True)(reader)
    reader.end()
    return correlation_id, response


def a_uuid(rng: Random) -> UUID:
    return UUID(int=rng.randrange(1, 1 << 128))


def a_request(rng: Random) -> FetchRequest:
    """As it mostly is."""

    def partition() -> FetchPartition:
        return FetchPartition(
            partition=rng.randrange(INT32),
            current_leader_epoch=rng.randrange(-1, INT32),
            fetch_offset=rng.randrange(INT64),
            partition_max_bytes=rng.randrange(INT32),
        )

    return FetchRequest(
        max_wait_ms=rng.randrange(INT32),
        min_bytes=rng.randrange(INT32),
        max_bytes=rng.randrange(INT32),
        isolation_level=rng.randrange(2),
        session_id=rng.randrange(INT32),
        session_epoch=rng.randrange(-1, INT32),
        topics=tuple(
            FetchTopic("t", a_uuid(rng), tuple(partition() for _ in range(rng.choice((0, 1, 4, 126)))))
            for _ in range(rng.choice((0, 1, 2)))
        ),
        rack_id=rng.choice(("", "a", "ä" * 40)),
    )


def an_answer(rng: Random) -> FetchResponse:
    """As it mostly is."""

    def partition() -> PartitionData:
        return PartitionData(
            partition_index=rng.randrange(INT32),
            error_code=rng.choice((0, 0, 6, -1)),
            high_watermark=rng.randrange(-1, INT64),
            last_stable_offset=rng.randrange(-1, INT64),
            log_start_offset=rng.randrange(-1, INT64),
            aborted_transactions=rng.choice((None, ())),
            preferred_read_replica=rng.randrange(-1, INT32),
            records=rng.choice((None, b"", *(rng.randbytes(size) for size in (1, 126, 127, 128, 16382, 16383, 20000)))),
        )

    return FetchResponse(
        throttle_time_ms=rng.randrange(INT32),
        error_code=rng.choice((0, 70)),
        session_id=rng.randrange(INT32),
        responses=tuple(
            FetchableTopicResponse("", a_uuid(rng), tuple(partition() for _ in range(rng.choice((0, 1, 3)))))
            for _ in range(rng.choice((0, 1, 2)))
        ),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_written_as_by_the_general_encoder(version: int) -> None:
    rng = Random(version)
    for round_ in range(200):
        message, correlation_id = a_request(rng), rng.randrange(INT32)
        written = write_request(message, version, correlation_id, "me")
        assert (written is not None) is (version >= 15), round_
        assert written in (None, written_in_general(message, version, correlation_id, "me"))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unusual_request_is_written_the_same_or_not_at_all(version: int) -> None:
    rng = Random(version)
    for _ in range(300):
        message, client_id = value(rng, FetchRequest, version), rng.choice((None, "", "me"))
        written = write_request(message, version, 7, client_id)
        assert written in (None, written_in_general(message, version, 7, client_id))


@pytest.mark.parametrize(
    "changed",
    [
        {"max_wait_ms": INT32},
        {"rack_id": None},
        {"session_id": "1"},
        {"replica_id": 5},
        {"topics": (FetchTopic("t"),)},
        {"topics": (FetchTopic("t", UUID(int=1), (FetchPartition(0, -1, INT64, -1, -1, 1),)),)},
    ],
)
def test_what_is_to_be_refused_is_left_to_the_general_encoder(changed: dict[str, object]) -> None:
    asked = {"max_wait_ms": 500, "min_bytes": 1, "topics": ()} | changed
    assert write_request(FetchRequest(**asked), 17, 1, "me") is None  # type: ignore[arg-type]


def test_a_client_whose_name_is_no_text_is_left_to_the_general_encoder() -> None:
    asked = FetchRequest(max_wait_ms=500, min_bytes=1, topics=())
    assert write_request(asked, 17, 1, "\ud800") is None


def a_topic(count: int, **more: object) -> FetchTopic:
    """One with this many partitions."""
    partitions = tuple(FetchPartition(number, -1, 3, partition_max_bytes=9, **more) for number in range(count))
    return FetchTopic("t", UUID(int=1), partitions)


@pytest.mark.parametrize("version", range(15, FetchRequest.MAX_VERSION + 1))
@pytest.mark.parametrize("count", [125, 126, 127, 128])
@pytest.mark.parametrize("what", ["rack", "topics", "partitions"])
def test_lengths_of_one_byte_and_of_more_are_written_the_same_or_not_at_all(
    what: str, count: int, version: int
) -> None:
    changed: dict[str, object] = {
        "rack": {"rack_id": "r" * count, "topics": ()},
        "topics": {"topics": (a_topic(1),) * count},
        "partitions": {"topics": (a_topic(count),)},
    }[what]
    asked = FetchRequest(max_wait_ms=500, min_bytes=1, **changed)  # type: ignore[arg-type]
    written = write_request(asked, version, 1, "me")
    assert (written is not None) is (count < 127)
    assert written in (None, written_in_general(asked, version, 1, "me"))


@pytest.mark.parametrize("version", range(15, FetchRequest.MAX_VERSION + 1))
@pytest.mark.parametrize("more", [{"replica_directory_id": UUID(int=7)}, {"high_watermark": 5}])
def test_what_only_followers_send_is_written_the_same_or_not_at_all(more: dict[str, object], version: int) -> None:
    asked = FetchRequest(max_wait_ms=500, min_bytes=1, topics=(a_topic(1, **more),))
    assert write_request(asked, version, 1, "me") in (None, written_in_general(asked, version, 1, "me"))


@pytest.mark.parametrize("size", [2**14 - 2, 2**14 - 1, 2**21 - 2, 2**21 - 1, 2**21])
def test_a_length_of_up_to_four_bytes_is_read(size: int) -> None:
    data = PartitionData(0, 0, 9, records=bytes(size))
    answer = FetchResponse(responses=(FetchableTopicResponse("", UUID(int=5), (data,)),), session_id=1)
    frame = encode_response(FetchRequest, answer, 17, 1)
    read = read_answer(frame, 17)
    assert read is not None
    assert read == read_in_general(frame, 17)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_read_as_by_the_general_decoder(version: int) -> None:
    rng = Random(version)
    for round_ in range(200):
        answer, correlation_id = an_answer(rng), rng.randrange(INT32)
        frame = encode_response(FetchRequest, answer, version, correlation_id)
        read = read_answer(frame, version)
        assert (read is not None) is (version >= 15), round_
        assert read in (None, read_in_general(frame, version))


@pytest.mark.parametrize("version", range(15, FetchRequest.MAX_VERSION + 1))
def test_unusual_and_damaged_answers_are_read_the_same_or_not_at_all(version: int) -> None:
    rng = Random(version)
    read_count = 0
    for _ in range(2_000):
        answer = value(rng, FetchResponse, version) if rng.random() < 0.2 else an_answer(rng)
        frame = bytearray(encode_response(FetchRequest, answer, version, 1))
        for _ in range(rng.randrange(3)):
            frame[rng.randrange(min(len(frame), 120))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        del frame[rng.choice((len(frame), len(frame), rng.randrange(len(frame)))) :]
        read = read_answer(frame, version)
        if read is not None:
            read_count += 1
            assert read == read_in_general(bytes(frame), version)
    assert read_count > 200


def test_records_are_a_slice_of_the_frame() -> None:
    answer = FetchResponse(
        responses=(FetchableTopicResponse("", UUID(int=5), (PartitionData(0, 0, 9, records=b"abc"),)),), session_id=1
    )
    frame = encode_response(FetchRequest, answer, 17, 1)
    read = read_answer(frame, 17)
    assert read is not None
    records = read[1].responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_what_is_damaged_is_left_to_the_general_decoder() -> None:
    frame = encode_response(FetchRequest, an_answer(Random(3)), 17, 1)
    assert read_answer(frame + b"\0", 17) is None
    assert read_answer(frame[:-1], 17) is None
    with pytest.raises(ProtocolError):
        read_in_general(frame[:-1], 17)
