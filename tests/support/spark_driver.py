"""A driver as a process of its own, which a test kills or freezes: it says where it stands, and ends itself there.

python -m tests.support.spark_driver BOOTSTRAP GROUP TOPIC PATH STEP
"""

from __future__ import annotations

import os
import signal
import sys

from aiogroup.spark import claims, drain, to_parquet
from tests.support.spark import start_spark

STEPS = ("claimed", "half-written", "written", "committing", "committed", "frozen")
SESSION_MS = 3_000
SLICE = 40


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(bootstrap: str, group: str, topic: str, path: str, step: str) -> None:
    write = to_parquet(path)
    hold, commit = claims.Claims.hold, claims.Claims.commit

    async def holding(self):
        numbers = await hold(self)
        if step == "claimed" and numbers:
            end()
        return numbers

    async def committing(self, entries, numbers):
        if step == "committing":
            end()
        durable = await commit(self, entries, numbers)
        if step == "committed":
            end()
        return durable

    def process(frame):
        if step == "half-written":
            write(frame.where("offset % 2 = 0"))
            end()
        write(frame)
        if step == "written":
            end()
        if step == "frozen" and not frozen:
            frozen.append(True)
            sys.stdout.write("freeze me\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGSTOP)

    frozen: list[bool] = []
    claims.Claims.hold, claims.Claims.commit = holding, committing
    spark = start_spark()
    report = drain(
        spark,
        process,
        bootstrap_servers=bootstrap,
        group_id=group,
        topics=topic,
        slice_records=SLICE,
        session_timeout_ms=SESSION_MS,
    )
    spark.stop()
    sys.stdout.write(f"done={report.slice_count} dropped={report.dropped_count} left={report.left_count}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
