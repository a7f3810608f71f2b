"""`python -m aiogroup.verifiable` under the eyes of a checker of the contract, alone, together, and beside Java's."""

from __future__ import annotations

import asyncio
import signal
from itertools import chain

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError

from tests.support.contract import shape
from tests.support.group_members import until
from tests.support.kafka import eventually
from tests.support.verifiable import Bench

PARTITIONS_COUNT = 4
LIMIT_S = 120
"""For starts, ends and loads, which take long on a busy machine. How soon a lost member's partitions are read again has
limits of its own, below the time-outs that could hide a member that nobody missed.
"""


@pytest.fixture
def bench(make_place, tmp_path):
    with Bench(make_place(PARTITIONS_COUNT), tmp_path) as bench:
        yield bench


async def produce(bench, count, size=0):
    async with bench.place.producer() as producer:
        for number in range(count):
            value = str(number).rjust(size, "0").encode()
            await producer.send(bench.place.topic, value, partition=number % PARTITIONS_COUNT)
        await producer.flush()


async def shared(bench, *members, seconds=LIMIT_S):
    def so():
        held = [member.partitions for member in members]
        return all(held) and sorted(chain(*held)) == list(range(PARTITIONS_COUNT))

    await until(so, seconds, bench.tails)


async def all_read(bench, count, *members):
    """Every record by somebody; the members may have been joined by those that are gone."""
    await until(lambda: sum(member.total for member in members) >= count, LIMIT_S, bench.tails)
    bench.check()


async def committed(bench):
    async def ask():
        try:
            return [await bench.place.committed(number) for number in range(PARTITIONS_COUNT)]
        except GroupCoordinatorNotAvailableError:  # nobody has used a group on this cluster before
            return None

    return await eventually(ask)


async def ended(tool, by=None):
    if by is not None:
        tool.signal(by)
    return await asyncio.to_thread(tool.wait, LIMIT_S)


@pytest.mark.parametrize("commits", [True, False], ids=["explicit commits", "auto-commit"])
async def test_one_member(bench, commits):
    bench.forks = False
    await produce(bench, 400)
    member = bench.consumer(commits=commits)
    await all_read(bench, 400, member)
    await until(lambda: not commits or sum(bench.group.committed.values()) == 400, LIMIT_S, bench.tails)
    assert await ended(member, signal.SIGTERM) == 128 + signal.SIGTERM
    bench.check()
    assert member.names[0] == "startup_complete"
    assert member.names[-3:] == ["shutdown_requested", "partitions_revoked", "shutdown_complete"]
    assert await committed(bench) == [100] * PARTITIONS_COUNT
    assert bool(member.all("offsets_committed")) == commits


@pytest.mark.parametrize("commits", [True, False], ids=["explicit commits", "auto-commit"])
async def test_a_member_that_is_terminated_repeats_nothing(bench, commits):
    first = bench.consumer(commits=commits)
    await shared(bench, first)
    second = bench.consumer(commits=commits)
    await shared(bench, first, second)
    assert (first.judged.assigned_count, first.judged.revoked_count) == (2, 1)
    sending = bench.producer("--max-messages", "1500", "--throughput", "500")
    await until(lambda: second.total > 50, LIMIT_S, bench.tails)
    await ended(second, signal.SIGTERM)
    await ended(sending)
    await shared(bench, first)
    await all_read(bench, 1_500, first, second)
    assert first.total + second.total == 1_500  # nothing twice
    await ended(first, signal.SIGTERM)
    bench.check()
    assert sum(await committed(bench)) == 1_500


async def test_a_member_that_is_killed_is_followed_up(bench):
    first, second = bench.consumer(), bench.consumer()
    await shared(bench, first, second)
    await produce(bench, 200)
    await all_read(bench, 200, first, second)
    second.kill()
    await produce(bench, 200)
    await shared(bench, first)
    await until(lambda: bench.group.committed == {(bench.place.topic, n): 100 for n in range(PARTITIONS_COUNT)}, 20)
    bench.check()


async def test_static_members_come_back_without_a_rebalance(bench):
    first, second = (bench.consumer("--group-instance-id", name, session_ms=10_000) for name in ("i-1", "i-2"))
    await shared(bench, first, second)
    rebalances, held = first.judged.assigned_count, second.partitions
    await ended(second, signal.SIGTERM)
    second = bench.consumer("--group-instance-id", "i-2", session_ms=10_000)
    await until(lambda: second.partitions == held, LIMIT_S, bench.tails)
    await produce(bench, 100)
    await all_read(bench, 100, first, second)
    assert first.judged.assigned_count == rebalances


async def test_a_fenced_member_ends_by_itself(bench):
    first = bench.consumer("--group-instance-id", "same")
    await shared(bench, first)
    second = bench.consumer("--group-instance-id", "same")
    assert await ended(first) == 0
    assert first.names[-1] == "shutdown_complete"
    await shared(bench, second)
    await produce(bench, 40)
    await all_read(bench, 40, second)


async def test_a_frozen_member_gives_way_and_comes_back(bench):
    first, second = bench.consumer(), bench.consumer()
    await shared(bench, first, second)
    sending = bench.producer("--max-messages", "1600", "--throughput", "200")
    await until(lambda: second.total > 50, LIMIT_S, bench.tails)
    second.freeze()
    try:
        await until(lambda: len(first.partitions) == PARTITIONS_COUNT, 20, bench.tails)
        bench.check()
    finally:
        second.thaw()
    await until(lambda: second.judged.revoked_count >= 1 and 0 < len(first.partitions) < PARTITIONS_COUNT, LIMIT_S)
    await shared(bench, first, second)
    await ended(sending)
    await until(lambda: sum(bench.group.committed.values()) == 1_600, LIMIT_S, bench.tails)
    for member in (first, second):
        assert await ended(member, signal.SIGTERM) == 143
    bench.check_owners()
    assert sum(await committed(bench)) == 1_600


@pytest.mark.parametrize("commits", [True, False], ids=["explicit commits", "auto-commit"])
async def test_it_ends_after_so_many_messages(bench, commits):
    await produce(bench, 1_500)
    member = bench.consumer("--max-messages", "777", "--verbose", commits=commits)
    assert await ended(member) == 0
    bench.check()
    assert (member.total, len(member.all("record_data"))) == (777, 777)
    assert member.names[-1] == "shutdown_complete"
    assert sum(each or 0 for each in await committed(bench)) == 777


async def test_a_reader_that_takes_nothing_stops_the_reading_and_no_heartbeat(bench):
    await produce(bench, 12_000, size=200)  # some 4 MB of lines, of which pipe and queue keep little
    silent = bench.consumer("--verbose", session_ms=2_000, read=False)

    async def stands_still():
        before = await committed(bench)
        await asyncio.sleep(2.5)  # longer than a session
        return any(before) and before == await committed(bench)

    await eventually(stands_still, 30)
    assert sum(each or 0 for each in await committed(bench)) < 12_000
    # It is still a member, and takes part in a rebalance.
    second = bench.consumer(session_ms=2_000)
    await until(lambda: len(second.partitions) == PARTITIONS_COUNT // 2, 15, bench.tails)
    await asyncio.sleep(4)
    assert len(second.partitions) == PARTITIONS_COUNT // 2
    await until(lambda: second.total > 0, LIMIT_S, bench.tails)
    silent.read()

    async def all_committed():
        return sum(each or 0 for each in await committed(bench)) == 12_000

    await eventually(all_committed, LIMIT_S)
    assert sorted(silent.partitions + second.partitions) == list(range(PARTITIONS_COUNT))
    await ended(silent, signal.SIGTERM)
    # Lines of the silent one were read late, so only its own are judged: the group's order was not what came.
    assert [str(each) for each in silent.broken if "group's" not in str(each)] == []


@pytest.mark.parametrize("java_leads", [True, False], ids=["Java leads", "we lead"])
async def test_in_one_group_with_javas(bench, java_leads):
    first = bench.consumer("--verbose", java=java_leads)
    await shared(bench, first)
    second = bench.consumer("--verbose", java=not java_leads)
    await shared(bench, first, second)
    await produce(bench, 400)
    await all_read(bench, 400, first, second)
    assert first.total + second.total == 400
    assert await ended(second, signal.SIGTERM) == 143
    await shared(bench, first)
    await produce(bench, 100)
    await all_read(bench, 500, first, second)
    assert await ended(first, signal.SIGTERM) == 143
    bench.check()
    assert sum(await committed(bench)) == 500
    java, ours = (first, second) if java_leads else (second, first)
    assert shapes(ours.events) == shapes(java.events)
    assert set(shapes(ours.events)) >= {"records_consumed", "record_data", "offsets_committed", "shutdown_requested"}


def shapes(events):
    """Each event's shapes by its name. Java may be told of nothing, which has no shape."""
    found = {}
    for event in events:
        if event["name"] in ("partitions_assigned", "partitions_revoked") and not event["partitions"]:
            continue
        found.setdefault(event["name"], set()).add(shape(event))
    return found


async def sent_by(bench, *arguments, java=False, by=None):
    tool = bench.producer(*arguments, java=java)
    if by is not None:
        await until(lambda: len(tool.all("producer_send_success")) >= 20, LIMIT_S, bench.tails)
    code = await ended(tool, by)
    assert tool.names[0] == "startup_complete"
    assert tool.names[-2:] == ["shutdown_complete", "tool_data"]
    summary = tool.events[-1]
    acked = tool.all("producer_send_success")
    assert summary["acked"] == len(acked) == summary["sent"] - len(tool.all("producer_send_error"))
    return tool, code, acked


@pytest.mark.parametrize("java", [False, True], ids=["ours", "Java's"])
@pytest.mark.parametrize("acks", ["-1", "1", "0"])
async def test_the_producer_tells_what_was_acked(bench, java, acks):
    bench.forks = False
    arguments = ("--max-messages", "300", "--acks", acks, "--value-prefix", "7", "--repeating-keys", "3")
    _, code, acked = await sent_by(bench, *arguments, java=java)
    assert code == 0
    assert sorted(int(each["value"].removeprefix("7.")) for each in acked) == list(range(300))
    assert {(each["key"], int(each["value"][2:]) % 3) for each in acked} == {("0", 0), ("1", 1), ("2", 2)}
    reader = bench.consumer("--max-messages", "300", "--verbose")
    await ended(reader)
    bench.check()
    read = {(each["value"], each["key"], each["partition"], each["offset"]) for each in reader.all("record_data")}
    told = {(each["value"], each["key"], each["partition"], each["offset"]) for each in acked}
    if acks == "0":  # nobody said where
        assert {each["offset"] for each in acked} == {-1}
        read, told = ({each[:3] for each in some} for some in (read, told))
    assert told == read


async def test_the_producers_lines_have_the_shapes_of_javas(bench):
    found = []
    for java in (True, False):
        ending = await sent_by(bench, "--throughput", "50", java=java, by=signal.SIGTERM)
        keyed = await sent_by(bench, "--max-messages", "3", "--repeating-keys", "2", "--throughput", "9", java=java)
        assert (ending[1], keyed[1]) == (143, 0)
        assert 40 < ending[0].events[-1]["avg_throughput"] < 60 or java  # a JVM's start counts
        # Java's may send once more while SIGTERM closes it, and tells of an error then.
        assert java or not ending[0].all("producer_send_error")
        told = [each for each in ending[0].events if each["name"] != "producer_send_error"]
        found.append(shapes([*told, *keyed[0].events]))
    assert found[0] == found[1]


async def test_the_producer_tells_what_was_refused(bench, tmp_path):
    config = tmp_path / "small.properties"
    config.write_text("max.request.size=10\n")
    found = []
    for java in (True, False):
        option = "--command-config" if java else "--producer.config"
        tool, code, acked = await sent_by(bench, "--max-messages", "2", option, str(config), java=java)
        refused = tool.all("producer_send_error")
        assert (code, acked, {each["value"] for each in refused}) == (0, [], {"0", "1"})
        found.append(shapes(refused))
    assert found[0] == found[1]


async def test_create_times_begin_where_they_should(bench):
    await sent_by(bench, "--max-messages", "5", "--message-create-time", "1000")
    async with bench.place.consumer(auto_offset_reset="earliest") as consumer:
        times = []
        while len(times) < 5:
            times += [record.timestamp for record in (await consumer.poll()).all()]
    assert min(times) == 1_000
    assert max(times) < 60_000
