"""Streams for tests, and a stream's driver as a process of its own, which kills itself at a step.

python -m tests.support.spark_stream OPTIONS CHECKPOINT PATH STEP
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from aiogroup.spark import AiogroupDataSource
from tests.support.spark import start_spark


def rows_of(frame) -> list[tuple[int, int]]:
    """Partition and offset of each record."""
    return sorted(map(tuple, frame.select("partition", "offset").collect()))


def start_stream(spark, options, checkpoint, process, trigger):
    """A query that gives each batch and its id to `process`."""
    spark.dataSource.register(AiogroupDataSource)
    frame = spark.readStream.format("aiogroup").options(**options).load()
    writer = frame.writeStream.foreachBatch(process).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def write_to(path: Path):
    """A function for `foreachBatch` that adds a line to the batch's file."""

    def process(frame, number: int) -> None:
        path.mkdir(exist_ok=True)
        with (path / str(number)).open("a") as file:
            file.write(f"{json.dumps(rows_of(frame))}\n")

    return process


def written(path: Path) -> dict[int, list[list[tuple[int, int]]]]:
    """The contents of the files: by batch id, every writing of the batch."""
    return {
        int(each.name): [[tuple(row) for row in json.loads(line)] for line in each.read_text().splitlines()]
        for each in path.iterdir()
    }


def main(options: str, checkpoint: str, path: str, step: str) -> None:
    write = write_to(Path(path))

    def process(frame, number: int) -> None:
        if step == "read":
            frame.count()
            os.kill(os.getpid(), signal.SIGKILL)
        write(frame, number)
        if step == "written":
            os.kill(os.getpid(), signal.SIGKILL)

    query = start_stream(start_spark(), json.loads(options), checkpoint, process, {"availableNow": True})
    query.awaitTermination()
    os.kill(os.getpid(), signal.SIGKILL)  # "ended": Spark has committed the batch, but it is not marked as done


if __name__ == "__main__":
    main(*sys.argv[1:])
