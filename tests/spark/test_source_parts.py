"""The data source's parts: how ranges are cut into tasks, what options say, and what a task reads of its ranges."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiogroup import ConfigError, OffsetOutOfRangeError, TopicPartition
from aiogroup.embedded import Broker, run_virtual
from aiogroup.spark.errors import IncompleteError
from aiogroup.spark.slices import Piece
from aiogroup.spark.source.options import Wanted
from aiogroup.spark.source.ranges import Held, RangeReader
from aiogroup.spark.source.tasks import SEEK_WORTH, runs_of, task_records, tasks_of

TP = TopicPartition("orders", 0)
NEEDED = {"bootstrap.servers": "broker:9092", "group": "billing", "topics": "orders, refunds"}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100_000), st.integers(1, 30_000)), max_size=20),
    st.integers(1, 20_000),
)
def test_tasks_have_each_offset_once_and_are_not_too_long(given_ranges, most):
    pieces = [
        Piece(TopicPartition("orders", at * 4 + p), start, start + size)
        for at, (p, start, size) in enumerate(given_ranges)
    ]
    tasks = tasks_of(pieces, most)
    assert all(0 < sum(map(len, task)) <= most for task in tasks)
    by_name = {}
    for part in (part for task in tasks for part in task):
        by_name.setdefault(part.name, []).append(part)
    assert by_name.keys() == {piece.name for piece in pieces}
    for piece in pieces:
        parts = sorted(by_name[piece.name], key=lambda part: part.start)
        assert (parts[0].start, parts[-1].end) == (piece.start, piece.end)
        assert all(before.end == after.start for before, after in pairwise(parts))


def test_a_task_is_a_third_of_what_a_core_reads_within_bounds():
    assert task_records(6_000_000, 2) == 1_000_000
    assert task_records(600_000, 2) == 100_000
    assert task_records(100, 64) == 10_000
    assert task_records(10**9, 1) == 1_000_000


def test_parts_that_are_near_to_each_other_are_read_without_a_seek():
    near, far = SEEK_WORTH, SEEK_WORTH + 1
    pieces = [Piece(TP, 0, 10), Piece(TP, 10 + near, 20 + near), Piece(TP, 20 + near + far, 30 + near + far)]
    (task,) = tasks_of(pieces, 1_000)
    assert [(run.start, run.end) for run in runs_of(task)[TP]] == [
        (0, 20 + near),
        (20 + near + far, 30 + near + far),
    ]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"group": ""}, "'group' is missing"),
        ({"topics": ""}, "'topics' is missing"),
        ({"sasl.password": "x"}, "'sasl.password' is not known"),
        ({"task.records": "0"}, "no number of at least 1"),
        ({"task.records": "many"}, "no number of at least 1"),
        ({"max.buffered.bytes": "little"}, "max.buffered.bytes"),
        ({"isolation.level": "serializable"}, "serializable"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(options, match):
    with pytest.raises(ConfigError, match=match):
        Wanted.of({**NEEDED, **options})


def test_options_say_what_to_read(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nbootstrap.servers=elsewhere:9093\n")
    wanted = Wanted.of({**NEEDED, "command.config": str(file), "task.records": "7"})
    assert wanted.task_records == 7
    there = wanted.access("read_committed")
    assert (there.bootstrap_servers, there.topics, there.group_id) == ("broker:9092", ("orders", "refunds"), "billing")
    assert there.settings()["security_protocol"] == "SSL"
    assert there.settings()["isolation_level"] == "read_committed"
    assert Wanted.of({**NEEDED, "catchup.group": "jobs"}).access().catchup_group_id == "jobs"


async def read(broker, task, **settings):
    """The offsets of each partition, how often each came, and what each part held."""
    offsets, held = Counter(), {}
    async with RangeReader({"bootstrap_servers": broker.bootstrap_servers, **settings}, task) as reader:
        while reads := await reader.next():
            for each in reads:
                assert all(record.tp == each.part.tp for record in each.records)
                assert all(each.part.start <= record.offset < each.part.end for record in each.records)
                offsets.update((record.tp, record.offset) for record in each.records)
                if each.held is not None:
                    assert each.part not in held
                    held[each.part] = each.held
    assert held.keys() == set(task)
    return offsets, held


@pytest.mark.parametrize("most", [1, 700, 5_000, 1_000_000])
def test_a_task_reads_exactly_its_parts(most):
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders", 3)
            for partition in range(3):
                broker.produce_many("orders", [b"x" * 100] * 50_000, partition=partition)
            pieces = [
                Piece(TopicPartition("orders", partition), start, start + 7)
                for partition in range(3)
                for start in (10, 20, 13_000, 40_000)
            ]
            pieces += [Piece(TP, 45_000, 50_000)] if most > 1 else []
            wanted = Counter((piece.tp, offset) for piece in pieces for offset in range(piece.start, piece.end))
            found = Counter()
            for task in tasks_of(pieces, most):
                offsets, held = await read(broker, task)
                found += offsets
                assert all(each == Held(len(part), len(part), 0, 0) for part, each in held.items())
            assert found == wanted

    run_virtual(script())


@pytest.mark.parametrize("batches_count", [1, 3, 10])
def test_nothing_is_fetched_beyond_the_end(batches_count):
    """One batch is fetched at a time; a consumer would go on to the next ones."""

    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            for _ in range(20):
                broker.produce_many("orders", [b"x" * 100_000] * 10)
            await read(broker, tasks_of([Piece(TP, 0, 10 * batches_count)], 100)[0])
            assert broker.count("Fetch") <= batches_count + 1

    run_virtual(script())


def test_what_retention_has_deleted_is_an_error():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            broker.produce_many("orders", [b"x"] * 100)
            broker.expire("orders", 0, to_offset=50)
            with pytest.raises(OffsetOutOfRangeError):
                await read(broker, tasks_of([Piece(TP, 40, 60)], 100)[0])

    run_virtual(script())


def test_a_range_beyond_the_end_of_the_log_ends_with_an_error():
    async def script():
        async with Broker(seed=1) as broker:
            broker.create_topic("orders")
            broker.produce_many("orders", [b"x"] * 100)
            with pytest.raises(IncompleteError, match="orders-0 before 200: run the job again"):
                await read(broker, tasks_of([Piece(TP, 40, 200)], 1_000)[0], default_api_timeout_ms=5_000)

    run_virtual(script())
