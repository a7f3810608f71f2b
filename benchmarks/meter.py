"""The instruments of a run: a clock that starts with the first record, a ticker, memory, and the load of other
processes.

Everything here runs in the measured process and costs every client the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

TICK_S = 0.005
STATUS = Path("/proc/self/status")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(len(ordered) * share)) - 1] if ordered else 0.0


class Ticker:
    """Wakes every 5 ms and records how late it was, as any other task of the service would be.

    `own_ms` is the lateness in CPU time of the loop's thread alone, to which other processes do not add.
    """

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.own_ms: list[float] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        # The first tick is due from now on, since a loop that is blocked from the first record on would not even begin
        # the task.
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(loop.time() + TICK_S, time.thread_time() + TICK_S))

    async def stop(self) -> None:
        if self._task is None:
            return
        await asyncio.sleep(2 * TICK_S)  # so that a tick that is late now counts as well
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self, due: float, own_due: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            now, own = loop.time(), time.thread_time()
            self.late_ms.append((now - due) * 1000)
            self.own_ms.append(max(0.0, own - own_due) * 1000)
            due, own_due = now + TICK_S, own + TICK_S

    def result(self) -> dict[str, float]:
        return {
            "late_max_ms": round(max(self.late_ms, default=0.0), 1),
            "late_p99_ms": round(percentile(self.late_ms, 0.99), 1),
            "late_own_ms": round(max(self.own_ms, default=0.0), 1),
        }


class Load:
    """How busy the machine was otherwise: the cores used by processes that are not part of the run."""

    def __init__(self, ours: Sequence[int] = ()) -> None:
        self._ours = [psutil.Process(), *(psutil.Process(pid) for pid in ours)]
        self._at, self._busy, self._own = time.perf_counter(), self._all_busy_s(), self._own_s()

    def result(self) -> dict[str, float]:
        wall = max(1e-9, time.perf_counter() - self._at)
        others = (self._all_busy_s() - self._busy) - (self._own_s() - self._own)
        return {"load": round(os.getloadavg()[0], 1), "others_cores": round(max(0.0, others / wall), 2)}

    def _all_busy_s(self) -> float:
        times = psutil.cpu_times()
        return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))

    def _own_s(self) -> float:
        return sum(sum(each.cpu_times()[:2]) for each in self._ours)


def resident_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 2**20


def peak_resident_mb() -> float:
    """The peak of this program alone, from Linux. `ru_maxrss` includes the process before it became this program."""
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


class Meter:
    """Counts a drain of `want_count` records; time and CPU are measured from the first record to the last.

    A client's loop calls `reached` when its count is at `mark` or above, for the first time with the first record, and
    ends when the mark is 0. Nothing else of this class runs per record.
    """

    def __init__(self, want_count: int, *, has_loop: bool, ours: Sequence[int] = ()) -> None:
        self._want_count = want_count
        self._ticker = Ticker() if has_loop else None
        self._load = Load(ours)
        self._resident_mb = resident_mb()
        self._born_at = time.perf_counter()
        self._first_at = self._first_cpu = 0.0
        self._first_count = 0
        self._wall_s = self._cpu_s = 0.0
        self.count = self.size = 0

    def reached(self, count: int, size: int) -> int:
        if not self._first_count:
            if self._ticker is not None:
                self._ticker.start()
            self._first_count = count
            self._first_at, self._first_cpu = time.perf_counter(), time.process_time()
        if count < self._want_count:
            return self._want_count
        self._wall_s, self._cpu_s = time.perf_counter() - self._first_at, time.process_time() - self._first_cpu
        self.count, self.size = count, size
        return 0

    async def result(self) -> dict[str, Any]:
        measured = self.count - self._first_count
        if not measured:
            raise SystemExit("the first batch had every record: nothing was measured; take more records")
        result: dict[str, Any] = {
            "records": self.count,
            "records_per_s": round(measured / self._wall_s),
            "cpu_s_per_million": round(self._cpu_s / measured * 1e6, 3),
            "peak_mb": round(max(0.0, peak_resident_mb() - self._resident_mb), 1),
            "first_record_ms": round((self._first_at - self._born_at) * 1000, 1),
            **self._load.result(),
        }
        if self._ticker is not None:
            await self._ticker.stop()
            result |= self._ticker.result()
        return result
