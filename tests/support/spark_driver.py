"""A driver as a process of its own, which kills or freezes itself at a named step.

python -m tests.support.spark_driver BOOTSTRAP GROUP TOPIC PATH STEP [KEEP]

With the steps "executor" and "isolating: executor" an executor ends once, after a shuffle in which it took part. The
"isolating" steps come after a round has failed at `BAD`, one record of partition 1.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from aiogroup.spark import claims, drain, to_parquet
from tests.support.spark import start_spark

SESSION_MS = 3_000
SLICE = 40
BAD = "partition = 1 AND offset = 15"
ATTEMPTS = {"isolating: failed": 2, "isolating: between halves": 5}
"""For these steps, the number of the last call of `process`. The first call is the round; then come partition 0,
partition 1, its first half, and its second half.
"""
RESULTS = {"committed": 1, "isolating: committed": 1, "isolating: half committed": 2}
"""For these steps, the number of the last commit."""


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def end_executor_once(flag: str):
    """A function for each row. The first one that is called ends the executor that it runs in, the parent of Python."""

    def of_row(offset: int) -> int:
        if not os.path.exists(flag):  # noqa: PTH110 (an executor has no more than it needs)
            os.close(os.open(flag, os.O_CREAT))
            pid = os.getppid()
            while open(f"/proc/{pid}/comm").read() != "java\n":  # noqa: PTH123, SIM115
                pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])  # noqa: PTH123, SIM115
            os.kill(pid, signal.SIGKILL)
        return offset

    return of_row


def charge(frame) -> None:
    """Raise an error for one record."""
    if frame.where(BAD).count():
        raise ValueError(f"no good: {BAD}")


def main(bootstrap: str, group: str, topic: str, path: str, step: str, keep: str | None = None) -> None:
    write = to_parquet(path)
    hold, commit = claims.Claims.hold, claims.Claims.commit
    isolates, ends_executor = step.startswith("isolating"), step.endswith("executor")

    def reach(*steps):
        if step in steps:
            end()

    async def holding(self):
        numbers = await hold(self)
        reach(*["claimed"] * bool(numbers), *["isolating: found"] * bool(results))
        return numbers

    async def committing(self, entries, numbers):
        # Before anything is written, a commit says only that the driver is at work.
        is_result = bool(written)
        written.clear()
        reach(*["committing"] * is_result)
        durable = await commit(self, entries, numbers)
        results.extend([durable] * is_result)
        if len(results) == RESULTS.get(step):
            end()
        return durable

    def process(frame):
        attempts.append(frame)
        if len(attempts) == ATTEMPTS.get(step):
            end()
        if isolates:
            charge(frame)
        if ends_executor:
            survived = udf(end_executor_once(f"{path}.ended"), LongType())
            frame = frame.repartition(4, "offset").withColumn("offset", survived("offset"))
        if step == "half-written":
            write(frame.where("offset % 2 = 0"))
        reach("half-written")
        write(frame)
        written.append(True)
        reach("written", "isolating: written")
        if step == "frozen" and not frozen:
            frozen.append(True)
            sys.stdout.write("freeze me\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGSTOP)

    attempts: list[object] = []
    results: list[object] = []
    written: list[bool] = []
    frozen: list[bool] = []
    claims.Claims.hold, claims.Claims.commit = holding, committing
    spark = start_spark("local-cluster[2,1,1024]") if ends_executor else start_spark()
    report = drain(
        spark,
        process,
        bootstrap_servers=bootstrap,
        group_id=group,
        topics=topic,
        slice_records=SLICE,
        session_timeout_ms=SESSION_MS,
        keep=keep,
        on_error="isolate" if isolates else "stop",
    )
    spark.stop()
    sys.stdout.write(f"done={report.slice_count} dropped={report.dropped_count} left={report.left_count}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
