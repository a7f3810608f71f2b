"""The files of the event log: written by a thread, one process each, bounded, and never in anybody's way."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import multiprocessing
import os
import shutil
import threading
from collections import Counter

import pytest

from aiogroup import ConfigError
from aiogroup._core.telemetry import events
from aiogroup.eventlog import EventLog, files


def lines_in(folder):
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]


def told(number):
    return events.MetadataFailed(str(number))


async def test_events_are_lines_of_one_file(tmp_path):
    async with EventLog(tmp_path / "logs" / "events.jsonl") as log:
        for number in range(100):
            log.on_event(told(number))
    (path,) = (tmp_path / "logs").iterdir()
    assert path.name.startswith("events-")
    assert f"-{os.getpid()}-" in path.name
    found = lines_in(tmp_path / "logs")
    assert [each["why"] for each in found] == [str(number) for number in range(100)]
    assert [each["seq"] for each in found] == list(range(100))
    assert log.dropped_count == 0


async def test_a_folder_is_enough_of_a_path(tmp_path):
    async with EventLog(str(tmp_path)) as log:
        log.on_event(told(1))
    assert len(lines_in(tmp_path)) == 1


async def test_nothing_is_made_before_the_first_line(tmp_path):
    before = threading.active_count()
    async with EventLog(tmp_path / "logs" / "events.jsonl"):
        assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


async def test_a_full_file_is_followed_by_another_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH_BYTES", 1)
    async with EventLog(tmp_path / "events.jsonl", rotate_bytes=1_000, keep=3) as log:
        for number in range(50):
            log.on_event(told(number))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 3
    assert max(sizes) <= 1_000
    found = [int(each["why"]) for each in lines_in(tmp_path)]
    assert found == list(range(found[0], 50))


async def test_lines_that_are_written_together_are_spread_over_files(tmp_path):
    async with EventLog(tmp_path / "events.jsonl", rotate_bytes=1_000, keep=300) as log:
        for number in range(299):
            log.on_event(told(number))
        log.on_event(told("x" * 290))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 1_000
    assert [each["why"] for each in lines_in(tmp_path)] == [*map(str, range(299)), "x" * 290]


async def test_a_line_that_is_longer_than_a_file_has_one_of_its_own(tmp_path):
    async with EventLog(tmp_path / "events.jsonl", rotate_bytes=100, keep=300) as log:
        for number in range(50):
            log.on_event(told(number))
    assert [len(path.read_bytes().splitlines()) for path in tmp_path.iterdir()] == [1] * 50


@pytest.mark.parametrize("set_by_ms", [0, -3_600_000, 3_600_000])
async def test_an_old_file_is_followed_by_another_however_the_clock_is_set(tmp_path, monkeypatch, set_by_ms):
    now = [5_000]
    written = threading.Semaphore(0)
    monkeypatch.setattr(files, "steady_ms", lambda: now[0])
    monkeypatch.setattr(files, "wall_ms", lambda: 1_790_000_000_000 + now[0] + (set_by_ms if now[0] > 5_000 else 0))
    write = os.write

    def write_and_tell(number, data):
        count = write(number, data)
        written.release()
        return count

    monkeypatch.setattr(files.os, "write", write_and_tell)
    async with EventLog(tmp_path / "events.jsonl", rotate_ms=60_000) as log:
        for passed_ms in (0, 59_999, 60_000):
            now[0] = 5_000 + passed_ms
            log.on_event(told(passed_ms))
            assert await asyncio.to_thread(written.acquire, timeout=30)
    assert [len(path.read_bytes().splitlines()) for path in sorted(tmp_path.iterdir())] == [2, 1]


async def test_a_file_that_somebody_deleted_is_followed_by_another(tmp_path, monkeypatch):
    written = threading.Semaphore(0)
    write = os.write

    def write_and_tell(number, data):
        count = write(number, data)
        written.release()
        return count

    monkeypatch.setattr(files.os, "write", write_and_tell)
    folder = tmp_path / "logs"
    async with EventLog(folder / "events.jsonl") as log:
        for number in range(3):
            log.on_event(told(number))
            assert await asyncio.to_thread(written.acquire, timeout=30)
            if number == 0:
                shutil.rmtree(folder)
    assert [each["why"] for each in lines_in(folder)] == ["1", "2"]


async def test_files_of_other_processes_are_left_while_they_may_be_written(tmp_path, monkeypatch):
    async with EventLog(tmp_path / "events.jsonl") as log:
        log.on_event(told(0))
    (own,) = tmp_path.iterdir()
    start = own.name.split(f"-{os.getpid()}-")[0]
    fresh, stale, foreign = (tmp_path / name for name in (f"{start}-1-5.jsonl", f"{start}-1-4.jsonl", "notes.jsonl"))
    for path in (fresh, stale, foreign):
        path.write_bytes(b"")
    os.utime(stale, (5, 5))
    async with EventLog(tmp_path / "events.jsonl", keep=1) as log:
        log.on_event(told(1))
    left = {path.name for path in tmp_path.iterdir()}
    assert {fresh.name, foreign.name} < left
    assert stale.name not in left
    assert own.name not in left


class Stuck:
    """A disk that does not take anything until it is told to."""

    def __init__(self, monkeypatch, number=None):
        self.may_go_on, self.was_asked = threading.Event(), threading.Event()
        self._number, self._write = number, os.write
        monkeypatch.setattr(files.os, "write", self._take)

    def _take(self, number, data):
        self.was_asked.set()
        if self._number is None:
            self.may_go_on.wait(30)
        elif not self.may_go_on.is_set():
            raise OSError(self._number, os.strerror(self._number))
        return self._write(number, data)


async def test_a_slow_disk_holds_nobody_up_and_what_is_missing_is_told(tmp_path, monkeypatch):
    disk = Stuck(monkeypatch)
    async with EventLog(tmp_path, max_queue=10) as log:
        log.on_event(told("first"))
        assert await asyncio.to_thread(disk.was_asked.wait, 30)
        for number in range(25):
            log.on_event(told(number))
        assert log.dropped_count == 15
        disk.may_go_on.set()
    found = lines_in(tmp_path)
    assert [each.get("why") for each in found] == ["first", None, *map(str, range(10))]
    (dropped,) = (each for each in found if each["event"] == "events_dropped")
    assert (dropped["dropped_count"], dropped["total_count"]) == (15, 15)
    assert [each["seq"] for each in found if "why" in each] == list(range(11))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
async def test_a_full_disk_is_told_once_and_tried_again(tmp_path, monkeypatch, caplog, number):
    monkeypatch.setattr(files, "RETRY_MS", 1)
    disk = Stuck(monkeypatch, number)
    with caplog.at_level(logging.WARNING, "aiogroup"):
        async with EventLog(tmp_path) as log:
            for each in range(5):
                log.on_event(told(each))
            assert await asyncio.to_thread(disk.was_asked.wait, 30)
            while not caplog.records:  # noqa: ASYNC110
                await asyncio.sleep(0)
            disk.may_go_on.set()
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "event_log_failed" in caplog.text
    assert [each["why"] for each in lines_in(tmp_path)] == list("01234")
    assert log.dropped_count == 0


async def test_half_a_write_is_completed(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(files.os, "write", lambda number, data: write(number, data[:7]))
    async with EventLog(tmp_path) as log:
        for each in range(5):
            log.on_event(told(each))
    assert [each["why"] for each in lines_in(tmp_path)] == list("01234")


async def test_a_place_where_nothing_can_be_made_is_counted_at_the_end(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(files, "RETRY_MS", 1)
    (tmp_path / "file").write_text("")
    log = EventLog(tmp_path / "file" / "events.jsonl")
    for each in range(5):
        log.on_event(told(each))
    while not caplog.records:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await log.close()
    log.on_event(told("late"))
    assert log.dropped_count == 6
    assert len(caplog.records) == 1


async def test_a_disk_that_hangs_does_not_hold_the_end_up(tmp_path, monkeypatch):
    disk = Stuck(monkeypatch)
    log = EventLog(tmp_path)
    log.on_event(told(1))
    assert not await log.close(timeout_ms=1)
    disk.may_go_on.set()
    assert await log.close()
    assert len(lines_in(tmp_path)) == 1


@pytest.mark.parametrize(
    ("stood_ms", "told"), [(7_800, ["process_stood_still", "event_loop_blocked"]), (3_000, ["event_loop_blocked"])]
)
async def test_a_loop_that_stood_still_with_its_process_is_told_as_that(tmp_path, monkeypatch, stood_ms, told):
    asked = []
    monkeypatch.setattr(files.Witness, "stood_still_ms", lambda _, within_ms: asked.append(within_ms) or stood_ms)
    async with EventLog(tmp_path) as log:
        log.on_event(events.EventLoopBlocked(8_000, 10_000))
    found = lines_in(tmp_path)
    assert [each["event"] for each in found] == told
    assert [each["stood_still_ms"] for each in found[:-1]] == [stood_ms] * (len(told) - 1)
    assert asked == [8_000]


def test_threads_may_share_a_log(tmp_path):
    log = EventLog(tmp_path)
    threads = [threading.Thread(target=lambda: [log.on_event(told(n)) for n in range(200)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert asyncio.run(log.close())
    found = lines_in(tmp_path)
    assert Counter(each["why"] for each in found) == Counter({str(n): 4 for n in range(200)})
    assert sorted(each["seq"] for each in found) == list(range(800))


def _write_in_child(log):
    log.on_event(told("child"))
    asyncio.run(log.close())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_process_has_a_file_of_its_own(tmp_path):
    async with EventLog(tmp_path / "events.jsonl") as log:
        log.on_event(told("before"))
        child = multiprocessing.get_context("fork").Process(target=_write_in_child, args=(log,))
        child.start()
        await asyncio.to_thread(child.join)
        log.on_event(told("after"))
    assert child.exitcode == 0
    found = {}
    for path in tmp_path.iterdir():
        for line in path.read_bytes().splitlines():
            each = json.loads(line)
            found.setdefault((path.name, each["pid"]), []).append((each["why"], each["seq"]))
    assert sorted(found.values()) == [[("before", 0), ("after", 1)], [("child", 0)]]
    assert {pid for _, pid in found} == {os.getpid(), child.pid}


async def test_two_logs_on_one_path_have_two_files(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "wall_ms", lambda: 5)
    async with EventLog(tmp_path) as one, EventLog(tmp_path) as other:
        one.on_event(told(1))
        other.on_event(told(2))
    assert [len(path.read_bytes().splitlines()) for path in tmp_path.iterdir()] == [1, 1]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": "events.jsonl", "topic": "events"},
        {"path": "events.jsonl", "producer": object()},
        {"path": ""},
        {"path": 5},
        {"topic": "events"},
        {"producer": object()},
        {"topic": "events", "producer": object()},
        {"topic": "", "producer": object()},
        {"path": "events.jsonl", "interval_ms": 0},
        {"path": "events.jsonl", "rotate_bytes": "64M"},
        {"path": "events.jsonl", "rotate_ms": True},
        {"path": "events.jsonl", "keep": 0},
        {"path": "events.jsonl", "max_queue": -1},
    ],
    ids=lambda given: str({name: "an object" if type(value) is object else value for name, value in given.items()}),
)
def test_what_makes_no_sense_is_refused(arguments):
    with pytest.raises(ConfigError):
        EventLog(**arguments)
