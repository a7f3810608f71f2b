"""One tree of errors: they pickle, they say what to do, and aiokafka's `except` still catches."""

from __future__ import annotations

import copy
import inspect
import pickle

import aiokafka.errors
import pytest
from aiokafka.structs import TopicPartition

import aiogroup
from aiogroup import Record, errors

TP = TopicPartition("orders", 3)
SPECIAL = {
    "BrokerError": lambda kind: kind(7, "REQUEST_TIMED_OUT", "too slow", retriable=True),
    "TopicAuthorizationError": lambda kind: kind({"b", "a"}),
    "PollIntervalExceeded": lambda kind: kind([TP], 300_000),
    "CommitFailedError": lambda kind: kind("gone", not_owned=[TP], committed={TP: 5}),
    "RecordError": lambda kind: kind(TP, "no"),
    "OffsetOutOfRangeError": lambda kind: kind(TP, 9),
    "LogTruncationError": lambda kind: kind(TP, 9, 5),
    "NoOffsetForPartitionError": lambda kind: kind(TP),
    "CorruptRecordError": lambda kind: kind(TP, 9, "no"),
    "RecordTooLargeError": lambda kind: kind(TP, 9, 3_000_000, "no"),
    "TimestampError": lambda kind: kind(Record(TP, 9, -1, 0, b"k", b"v", ()), "no"),
    "MergeStalledError": lambda kind: kind("no news", partitions=[TP]),
    "RecordDeserializationError": lambda kind: kind(TP, 9, "no", key=b"k", value=b"v"),
}
KINDS = sorted(
    {
        each
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, errors.AiogroupError) and each.__module__ == errors.__name__
    },
    key=lambda kind: kind.__name__,
)
OTHER_NAMES = {
    "ConfigError": "KafkaConfigurationError",
    "ConnectionLostError": "KafkaConnectionError",
    "ProtocolError": "KafkaProtocolError",
    "BrokerError": "BrokerResponseError",
    "GroupAuthorizationError": "GroupAuthorizationFailedError",
    "TopicAuthorizationError": "TopicAuthorizationFailedError",
    "CorruptRecordError": "CorruptRecordException",
}
"""Ours and aiokafka's for the same thing, where the names differ."""


GIVEN_AS_BY_AIOKAFKA = {
    errors.OffsetOutOfRangeError: {TP: 9},
    errors.LogTruncationError: {TP: 9},
    errors.NoOffsetForPartitionError: TP,
}


def made(kind):
    return SPECIAL.get(kind.__name__, lambda any_kind: any_kind("what happened"))(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_error_survives_pickling_and_copying_with_its_attributes(kind):
    error = made(kind)
    error.add_note("seen by the supervisor")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind
        assert twin.args == error.args
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert twin.retriable == error.retriable


def test_message_is_what_was_said_not_how_aiokafka_would_put_it():
    for kind in KINDS:
        if kind not in GIVEN_AS_BY_AIOKAFKA:
            assert str(made(kind)).startswith(str(made(kind).args[0])), kind
        assert made(kind).args[0], kind


def test_what_aiokafka_gives_with_an_error_is_given():
    """Its examples take it from there."""
    for kind, given in GIVEN_AS_BY_AIOKAFKA.items():
        assert made(kind).args == (given,)
        assert str(made(kind)).startswith("orders-3: ")
        assert "seek() to where to" in str(made(kind))


def test_what_befell_the_group_or_a_record_is_a_kafka_error():
    for kind in KINDS:
        if issubclass(kind, errors.GroupError | errors.RecordError | errors.MergeStalledError):
            assert issubclass(kind, aiokafka.errors.KafkaError), kind


def test_error_derives_from_aiokafkas_of_the_same_meaning():
    for kind in KINDS:
        theirs = getattr(aiokafka.errors, OTHER_NAMES.get(kind.__name__, kind.__name__), None)
        if theirs is not None:
            assert issubclass(kind, theirs), kind


def test_every_error_is_public():
    assert {kind.__name__ for kind in KINDS} - set(aiogroup.__all__) == set()


def test_error_has_one_root():
    for kind in KINDS:
        assert issubclass(kind, errors.AiogroupError), kind
        assert kind.__doc__, kind


def test_builtin_kinds_catch_too():
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.InvalidTopicError, ValueError)
    assert issubclass(errors.KafkaTimeoutError, TimeoutError)


def test_attributes_say_what_the_message_says():
    failed = made(errors.CommitFailedError)
    assert (failed.not_owned, failed.committed) == ({TP}, {TP: 5})
    assert (made(errors.BrokerError).code, made(errors.BrokerError).errno) == (7, 7)
    assert "REQUEST_TIMED_OUT (7): too slow" in str(made(errors.BrokerError))
    poison = made(errors.RecordDeserializationError)
    assert (poison.tp, poison.topic, poison.partition, poison.offset) == (TP, "orders", 3, 9)
    assert (poison.key, poison.value) == (b"k", b"v")
    expired = made(errors.PollIntervalExceeded)
    assert "max_poll_interval_ms=300000" in str(expired)
    assert expired.partitions == {TP}
    assert "['a', 'b']" in str(made(errors.TopicAuthorizationError))


def test_one_name_of_kip_345s_draft_is_the_same_error():
    assert aiogroup.DuplicateStaticMember is aiogroup.FencedInstanceIdError


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (0, ""),
        (2, "orders-0, orders-1"),
        (3, "orders-0, orders-1, orders-2"),
        (1_000, "orders-0, orders-1 and 998 more"),
    ],
)
def test_a_message_names_partitions_in_a_line_that_can_be_read(count, line):
    partitions = {TopicPartition("orders", number) for number in range(count)}
    assert errors.named(partitions, most=3 if count == 3 else 2) == line
