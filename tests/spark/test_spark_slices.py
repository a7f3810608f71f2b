"""What a job reads next, and what it is told of security, Java and functions: without Spark and without a broker."""

from __future__ import annotations

import sys
from uuid import UUID

import pytest
from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from aiogroup._core.recovery.ranges import Range, count, read, subtract
from aiogroup._core.recovery.token import LogId, Token
from aiogroup.errors import ConfigError, InvalidTopicError
from aiogroup.spark import JavaMissingError, Missing, Pending, Progress, PySparkMissingError, make_session
from aiogroup.spark.access import Access
from aiogroup.spark.errors import IncompleteError
from aiogroup.spark.gaps import batches_in
from aiogroup.spark.progress import RoundProgress
from aiogroup.spark.rounds import described
from aiogroup.spark.session import check_java
from aiogroup.spark.sinks import load_function
from aiogroup.spark.slices import Piece, cut, deal, grid_of, layers
from tests.fetching import wire_batches as w

TP = TopicPartition("orders", 0)


def pending(*pairs, done=(), log_start=0, partition=0):
    place = LogId("cluster", TP.topic, UUID(int=1), partition)
    token = Token("0" * 16, 10**6, 0, read(pairs))
    return Pending(place, token, tuple(Range(*each) for each in done), log_start, 10**6)


def test_a_slice_is_the_first_pending_offsets_in_whole_pieces():
    slices = cut({TP: pending((0, 10), (20, 30), done=[(0, 4)])}, {TP, TopicPartition("other", 1)}, 9, 8)
    assert slices[TP].ranges == ((4, 10),)
    assert slices[TP].pieces == (Piece(TP, 4, 8), Piece(TP, 8, 10))
    assert slices[TP].pieces[0].name == "orders-0-4-8"


def test_nothing_is_cut_of_what_is_not_held_or_done():
    assert cut({TP: pending((0, 10))}, {}, 8, 8) == {}
    assert cut({TP: pending((0, 10), done=[(0, 10)])}, {TP}, 8, 8) == {}
    assert cut({TP: pending((0, 10))}, {TP}, 8, 8, without={TP: read([(0, 10)])}) == {}


def test_what_retention_deleted_is_in_the_slice_and_in_no_piece():
    slices = cut({TP: pending((0, 10), (20, 30), log_start=25)}, {TP}, 3, 3)
    assert slices[TP].ranges == ((0, 10), (20, 27))
    assert slices[TP].pieces == (Piece(TP, 25, 27),)
    assert slices[TP].expired_count == 15
    assert cut({TP: pending((0, 10), log_start=25)}, {TP}, 3, 3)[TP].ranges == ((0, 10),)


ranges = st.lists(st.integers(0, 60), min_size=2, max_size=12, unique=True).map(
    lambda points: [tuple(pair) for pair in zip(sorted(points)[::2], sorted(points)[1::2], strict=False)]
)


@settings(max_examples=60)
@given(
    st.lists(ranges, min_size=1, max_size=4),
    st.integers(0, 70),
    st.integers(1, 80),
    st.none() | st.integers(1, 20),
    st.data(),
)
def test_round_after_round_everything_is_cut_once_and_in_the_same_pieces(of_tps, log_start, most, of_each, data):
    """Whoever holds which partitions: each piece is what lies between two multiples of the grid."""
    tps = [TopicPartition(TP.topic, number) for number in range(len(of_tps))]
    grid = grid_of(most, of_each, len(tps))
    done, read_offsets = dict.fromkeys(tps, ()), {tp: [] for tp in tps}

    def standing():
        return {
            tp: pending(*pairs, done=done[tp], log_start=log_start, partition=tp.partition)
            for tp, pairs in zip(tps, of_tps, strict=True)
        }

    while any(each.ranges for each in standing().values()):
        held = data.draw(st.sets(st.sampled_from(tps), min_size=1))
        slices = cut(standing(), held, most, grid, slice_most=of_each)
        assert slices.keys() <= held
        assert bool(slices) == any(standing()[tp].ranges for tp in held)
        assert sum(map(len, slices.values())) <= most
        for tp, one in slices.items():
            assert count(one.ranges) > 0
            assert of_each is None or len(one) <= of_each
            for piece in one.pieces:
                whole = next(each for each in of_tps[tp.partition] if each[0] <= piece.start < each[1])
                assert piece.start == max(whole[0], log_start, piece.start // grid * grid)
                assert piece.end == min(whole[1], (piece.start // grid + 1) * grid)
                read_offsets[tp] += range(piece.start, piece.end)
            done[tp] = tuple(sorted((*done[tp], *one.ranges)))
    for tp, pairs in zip(tps, of_tps, strict=True):
        assert subtract(read(pairs), done[tp]) == ()
        assert read_offsets[tp] == [at for start, end in pairs for at in range(max(start, log_start), end)]


@settings(max_examples=60)
@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=12), st.integers(100, 3_000))
def test_a_round_is_dealt_out_by_what_each_partition_has_left(counts, most):
    left, rounds = {TopicPartition(TP.topic, number): each for number, each in enumerate(counts)}, []
    grid = grid_of(most, None, len(left))
    while left:
        sizes = {tp: [grid] * (each // grid) + [each % grid] * (each % grid > 0) for tp, each in left.items()}
        shares = {tp: sum(sizes[tp][:number]) for tp, number in deal(sizes, most).items()}
        rounds.append(shares)
        assert all(shares.values()), "each goes on"
        assert sum(shares.values()) <= most
        if shares == left:
            break
        assert sum(shares.values()) > most - grid, "the round is full"
        parts = {tp: share / left[tp] for tp, share in shares.items()}
        assert all((shares[tp] - 2 * grid) / left[tp] <= min(parts.values()) for tp in parts), "two pieces ahead"
        left = {tp: each - shares[tp] for tp, each in left.items() if each > shares[tp]}
    assert len(rounds) <= -(-sum(counts) // max(1, most - grid)) + 1


def test_of_more_partitions_than_fit_those_with_the_most_left_go_first():
    sizes = {TopicPartition("orders", number): [10] * (1 + number % 3) for number in range(9)}
    assert [tp.partition for tp, number in deal(sizes, 30).items() if number] == [2, 5, 8]


def test_a_round_has_room_for_a_piece_of_each_partition():
    assert [grid_of(10_000_000, None, count) for count in (0, 1, 10, 16, 100, 1_000)] == [
        1_000_000, 1_000_000, 1_000_000, 625_000, 100_000, 100_000,
    ]  # fmt: skip
    assert grid_of(10_000_000, 40, 16) == 40
    assert grid_of(3, None, 16) == 1


def test_a_layer_has_a_partition_once_and_one_topic():
    pieces = [
        Piece(TopicPartition(*each), start, start + 1) for start in (0, 5) for each in (("a", 0), ("a", 1), ("b", 0))
    ]
    found = layers(pieces)
    assert [sorted(layer) for layer in found] == [[0, 1], [0, 1], [0], [0]]
    assert sorted(piece for layer in found for piece in layer.values()) == sorted(pieces)


# What is given.


def test_both_clients_get_security_and_the_isolation_level():
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'x required username="alice" password="secret";',
        "isolation.level": "read_committed",
        "group.id": "of the file",
        "auto.offset.reset": "none",
    }
    access = Access.of("broker:1", "billing", "orders", properties)
    config = access.config()
    assert (config.sasl_plain_username, config.isolation_level, config.group_id) == (
        "alice",
        "read_committed",
        "billing",
    )
    assert access.catchup_group_id == "billing.catchup"
    assert access.spark_options() == {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'x required username="alice" password="secret";',
        "kafka.bootstrap.servers": "broker:1",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.wait.ms": "10",
        "kafka.max.poll.records": "5000",
    }
    mine = Access.of("broker:1", "billing", "orders", {"fetch.max.wait.ms": "7", "max.poll.records": "9"})
    assert mine.spark_options()["kafka.fetch.max.wait.ms"] == "7"
    assert mine.spark_options()["kafka.max.poll.records"] == "9"
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("given", "error"),
    [(("b:1", "", "t"), ConfigError), (("b:1", "g", ()), ConfigError), (("b:1", "g", "a b"), InvalidTopicError)],
)
def test_what_cannot_be_meant_is_refused(given, error):
    with pytest.raises(error):
        Access.of(*given)


def test_a_function_is_loaded_by_name():
    assert load_function("os.path:join") is __import__("os").path.join
    for name, match in (("os.path", "module:function"), ("nowhere:x", "cannot be loaded"), ("os:sep", "no function")):
        with pytest.raises(ConfigError, match=match):
            load_function(name)


def test_without_pyspark_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(PySparkMissingError, match=r"pip install 'aiogroup\[spark\]'"):
        make_session()


@pytest.mark.parametrize(("version", "is_good"), [("17.0.15", True), ("21", True), ("1.8.0_402", False), ("25", False)])
def test_a_java_that_spark_cannot_use_is_named(tmp_path, monkeypatch, version, is_good):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if is_good:
        check_java()
    else:
        with pytest.raises(JavaMissingError, match="install Java 17 or 21"):
            check_java()


def test_without_any_java_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match="none in PATH"):
        check_java()


def test_progress_is_a_line():
    told = Progress(record_count=900, done_count=1_000, left_count=3_000, range_count=2, elapsed_ms=2_000)
    assert str(told) == "1,000 of 4,000 offsets done (25 %), 900 records, 450/s, 2 ranges left, 6 s left"
    assert (Missing(1, 2, 3, 4, 5) + Missing(1)).total_count == 16


def test_progress_within_a_round_is_a_line():
    told = RoundProgress("round 3 of 9", tasks_done=10, tasks_count=40, offsets_count=4_000_000, elapsed_ms=2_000)
    assert str(told) == "round 3 of 9: 10 of 40 tasks, about 500,000 offsets/s, 6 s left"


def test_the_partitions_of_a_round_in_a_few_words():
    tps = [TopicPartition("orders", number) for number in (*range(16), 20)]
    many = [TopicPartition("payments", number) for number in range(0, 40, 2)]
    assert described([TopicPartition("letters", 3)]) == "letters 3"
    assert described(reversed([*tps, *many])) == "orders 0-15+20, 20 partitions of payments"


# Damaged batches where Spark read no record.


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        (w.batch([], base=0, last=0, count=0, payload=b"\x00"), "bytes are left"),
        (w.batch([w.Sent(0)], last=9, count=2**31 - 1), "size|cut off"),
        (w.batch([w.Sent(0)], count=-1), "bytes are left"),
        (w.batch([w.Sent(0), w.Sent(1)], count=1), "bytes are left"),
        (w.batch([w.Sent(0)], payload=b"\x02"), "size|cut off"),
        (w.batch([w.Sent(0)])[:16] + b"\x07" + w.batch([w.Sent(0)])[17:], "unknown record format"),
    ],
    ids=["none promised", "2^31 - 1 promised", "fewer than none promised", "one promised", "cut", "unknown format"],
)
def test_a_damaged_batch_in_a_gap_is_named(batch, match):
    with pytest.raises(IncompleteError, match=f"a batch is damaged: .*({match})"):
        list(batches_in(memoryview(batch)))


def test_the_batches_in_a_gap():
    data = w.batch([w.Sent(3), w.Sent(5)]) + w.batch([], base=6, last=7, count=0)
    assert list(batches_in(memoryview(data))) == [(6, False, [3, 5]), (8, False, [])]


def test_a_round_is_cut_without_all_pieces_of_a_backlog_that_is_far_bigger():
    held = {TopicPartition(TP.topic, number): pending((0, 10**15), partition=number) for number in range(2)}
    slices = cut(held, held.keys(), 30, 10)
    assert sum(map(len, slices.values())) == 30
