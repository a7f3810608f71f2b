"""A driver as a process of its own, which a test kills or freezes: it says where it stands, and ends itself there.

python -m tests.support.spark_driver BOOTSTRAP GROUP TOPIC PATH STEP

With the steps "executor" and "executor-kept" it is an executor that ends, once, after a shuffle of which it had a part.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

from aiogroup.spark import claims, drain, to_parquet
from tests.support.spark import start_spark

STEPS = ("claimed", "half-written", "written", "committing", "committed", "frozen", "executor", "executor-kept")
SESSION_MS = 3_000
SLICE = 40


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


def main(bootstrap: str, group: str, topic: str, path: str, step: str) -> None:
    write = to_parquet(path)
    hold, commit = claims.Claims.hold, claims.Claims.commit

    async def holding(self):
        numbers = await hold(self)
        if step == "claimed" and numbers:
            end()
        return numbers

    async def committing(self, entries, numbers):
        # Before anything is written a commit only says that the driver is at work.
        if step == "committing" and has_written:
            end()
        durable = await commit(self, entries, numbers)
        if step == "committed" and has_written:
            end()
        return durable

    def process(frame):
        if step.startswith("executor"):
            survived = udf(end_executor_once(f"{path}.ended"), LongType())
            frame = frame.repartition(4, "offset").withColumn("offset", survived("offset"))
        if step == "half-written":
            write(frame.where("offset % 2 = 0"))
            end()
        write(frame)
        has_written.append(True)
        if step == "written":
            end()
        if step == "frozen" and not frozen:
            frozen.append(True)
            sys.stdout.write("freeze me\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGSTOP)

    frozen: list[bool] = []
    has_written: list[bool] = []
    claims.Claims.hold, claims.Claims.commit = holding, committing
    spark = start_spark("local-cluster[2,1,1024]") if step.startswith("executor") else start_spark()
    report = drain(
        spark,
        process,
        bootstrap_servers=bootstrap,
        group_id=group,
        topics=topic,
        slice_records=SLICE,
        session_timeout_ms=SESSION_MS,
        keep="MEMORY_ONLY" if step == "executor-kept" else None,
    )
    spark.stop()
    sys.stdout.write(f"done={report.slice_count} dropped={report.dropped_count} left={report.left_count}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
