"""A client of Spark Connect that runs drains. It has a process of its own, because a process can have only one kind of
session.

python -m tests.support.spark_remote REMOTE

Each line of its input is a job as JSON: the name of a `process` below, and arguments of `drain`. Each answer is a line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from aiogroup.spark import drain, make_session, to_merge, to_parquet

PAGE = Path(__file__).parents[2] / "docs/how-to-spark-connect.md"


def offsets(frame):
    return sorted([row.partition, row.offset] for row in frame.select("partition", "offset").collect())


def collect(frame):
    said["kept"] = said.get("kept", []) + offsets(frame)


def limit(frame):
    frame.limit(1).collect()


def nothing(frame):
    frame.where("offset > 3")


def several(frame):
    """Read a part, then everything, then a part again."""
    frame.limit(1).collect()
    collect(frame)
    frame.first()
    frame.sparkSession.range(1).count()


def failing(frame):
    """Run an action that reads everything, and fails."""
    with contextlib.suppress(Exception):
        frame.selectExpr("max(offset) AS most").selectExpr("assert_true(most < 0)").collect()


def failing_first(frame):
    failing(frame)
    collect(frame)


def by_partition(frame):
    frame.foreachPartition(lambda rows: [None for _ in rows])


def by_sql(frame):
    frame.createOrReplaceTempView("slice")
    said["kept"] = [list(row) for row in frame.sparkSession.sql("SELECT partition, offset FROM slice").collect()]


def merge(frame):
    frame.createOrReplaceTempView("orders")
    to_merge("orders")(frame)


def raising(frame):
    frame.count()
    raise ZeroDivisionError("not today")


def explained(frame):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        frame.explain(mode="extended")
        frame.explain(mode="cost")
    said["explained"] = out.getvalue()
    frame.count()


def twice(frame):
    """Write to two places, and union the frame with itself."""
    collect(frame)
    said["union"] = frame.where("offset < 20").unionByName(frame.where("offset >= 20")).count()


def busy(frame):
    """Ctrl-C while Spark is at work."""

    def wait(rows):
        Path(begun).touch()
        while Path(begun).exists():
            time.sleep(0.01)
        return rows

    def interrupt():
        while not Path(begun).exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with TemporaryDirectory() as folder:
        begun = f"{folder}/begun"
        watching = threading.Thread(target=interrupt)
        watching.start()
        try:
            frame.foreachPartition(wait)
        finally:
            watching.join()


def type_page(remote, path, job):
    """Run the blocks of the page."""
    text = PAGE.read_text()
    for ours, given in (
        ("sc://spark:15002", remote),
        ("s3a://lake/orders", path),
        ("broker:9092", job["bootstrap_servers"]),
        ("billing", job["group_id"]),
        ("'orders'", f"'{job['topics']}'"),
        ('"orders"', f'"{job["topics"]}"'),
    ):
        text = text.replace(ours, given)
    drains, looks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(looks.replace("\n\n", "\nfrom aiogroup.spark import make_session\n\n", 1), names)
        exec(drains, names)
    said["shown"], said["records"] = out.getvalue(), names["report"].record_count


def main(remote: str) -> None:
    spark = make_session(remote, conf={"spark.sql.shuffle.partitions": "2"})
    sys.stdout.write(f"ready {type(spark).__module__}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        job = json.loads(line)
        name, path = job.pop("process"), job.pop("path", None)
        said.clear()
        try:
            if name == "type_page":
                type_page(remote, path, job)
                report = None
            else:
                report = drain(spark, to_parquet(path) if name == "parquet" else globals()[name], **job)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (it is told)
            said["error"], said["text"], report = type(error).__name__, str(error), None
        if report is not None:
            said["records"], said["left"], said["slices"] = report.record_count, report.left_count, report.slice_count
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    spark.stop()


said: dict[str, object] = {}

if __name__ == "__main__":
    main(*sys.argv[1:])
