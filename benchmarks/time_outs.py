"""`python -m benchmarks.time_outs [--lines N] [--share PERCENT]`: event logs of a fleet that Spark analyses.

Files of 1,000,000 lines are written for members of many groups, one of which has `--share` percent of all; a line has
about 200 bytes. `python -m aiogroup.spark liveness` then runs on `local[2]` with 2 GiB for Java, for half of the lines
and for all. Each run is timed from the start of its process to the end, and its memory is the most that Python and Java
held together. Writes benchmarks/results/time_outs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.results import FOLDER, Table, write

FILE_LINES = 1_000_000
MEMBERS = 500
GROUPS = 20
INTERVAL_MS = 500
SAMPLE_EVERY = 20
REBALANCE_EVERY = 400
START_MS = 1_760_000_000_000
LOOK_S = 0.2
LIMIT_S = 3_600.0
SETTINGS = {
    "session_timeout_ms": "10000", "heartbeat_interval_ms": "3000", "max_poll_interval_ms": "300000",
    "max_poll_records": "500", "expansion_timeout_ms": "0", "parallel_min_backlog": "1000",
}  # fmt: skip
COLUMNS = (
    ("whole_s", "whole job s", "median"),
    ("lines_per_s", "lines/s", "median"),
    ("cpu_s", "CPU s", "median"),
    ("memory_mb", "memory MB", "median"),
    ("load", "load", "median"),
)


def own_of(member: int, seq: int, r: random.Random) -> str:
    """The event's own part of a line, as JSON without its opening brace."""
    turn, place = divmod(seq, REBALANCE_EVERY)
    if place == 0:
        return f'"event":"rebalance_started","why":"the group rebalances","generation":{turn}}}'
    if place == 1:
        return '"event":"member_moved","old":"preparing","new":"joining","why":"the group rebalances"}'
    if place == 2:
        return (
            f'"event":"rebalance_completed","why":"the group rebalances","generation":{turn + 1},"duration_ms":900,'
            '"partitions":["orders-0","orders-1"],"is_leader":false}'
        )
    if seq % SAMPLE_EVERY == 3:
        names = ("request_gap_ms", "record_ms", "heartbeat_ms", "heartbeat_gap_ms", "batch_records")
        counts = {name: {str(r.randrange(4, 40)): r.randrange(1, 900) for _ in range(3)} for name in names}
        return f'"event":"sample","settings":{json.dumps(SETTINGS)},"histograms":{json.dumps(counts)},"bucket_step":1}}'
    if seq % 2:
        return f'"event":"heartbeat_acknowledged","generation":{turn + 1},"latency_ms":{member % 9}}}'
    return '"event":"offsets_committed","partitions_count":2,"latency_ms":7}'


def write_logs(folder: Path, lines: int, share: int) -> None:
    """Write the logs. All members write at the same pace, as those of a fleet do."""
    r = random.Random(7)
    great = MEMBERS * share // 100
    members = []
    for number in range(MEMBERS):
        group = "great" if number < great else f"small-{number % GROUPS}"
        members.append(
            f'"group":"{group}","client_id":"app-{number}","member_id":"app-{number}-0f3c","host":"host-{number % 50}",'
            f'"pid":{1000 + number},"version":1,'
        )
    for start in range(0, lines, FILE_LINES):
        with (folder / f"events-{start // FILE_LINES:03}.jsonl").open("w") as file:
            for line in range(start, min(start + FILE_LINES, lines)):
                seq, number = divmod(line, MEMBERS)
                at = seq * INTERVAL_MS
                head = f'{{"at_ms":{START_MS + at},"mono_ms":{at},"seq":{seq},'
                file.write(f"{head}{members[number]}{own_of(number, seq, r)}\n")


def analyse(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "aiogroup.spark", "liveness", "--events", str(folder), "-o", "json"]
    command += ["--master=local[2]", "--conf=spark.ui.enabled=false", "--conf=spark.driver.memory=2g"]
    began_at, most_bytes, cpu_s = time.monotonic(), 0, 0.0
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True) as job,
    ):
        try:
            watched = psutil.Process(job.pid)
            while job.poll() is None and time.monotonic() - began_at < LIMIT_S:
                held, used = look_at(watched)
                most_bytes, cpu_s = max(most_bytes, held), max(cpu_s, used)
                time.sleep(LOOK_S)
            whole_s = time.monotonic() - began_at
        finally:
            job.kill()
        job.wait()
        output.seek(0)
        said = output.read()
    if job.returncode:
        raise SystemExit(f"exit {job.returncode}\n{said}")
    groups = json.loads(said)["groups"]
    return {
        "whole_s": round(whole_s, 1),
        "cpu_s": round(cpu_s, 1),
        "memory_mb": round(most_bytes / 2**20),
        "groups_count": len(groups),
        "rebalances_count": sum(sum(each["rebalances"].values()) for each in groups.values()),
        "load": round(os.getloadavg()[0], 2),
    }


def look_at(process: psutil.Process) -> tuple[int, float]:
    """The memory that the process and those below it hold now, and the CPU time that they have used."""
    held, used = 0, 0.0
    try:
        for each in (process, *process.children(recursive=True)):
            held += each.memory_info().rss
            used += each.cpu_times().user + each.cpu_times().system
    except psutil.NoSuchProcess:
        pass
    return held, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=10_000_000, help="%(default)s")
    parser.add_argument("--share", type=int, default=90, help="percent of the members in one group, %(default)s")
    parser.add_argument("--temporary", type=Path, help="where the logs are written for the time of the run")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the logs there, or use those of before")
    args = parser.parse_args()
    table = Table("time-outs", COLUMNS)
    for lines in (args.lines // 2, args.lines):
        for share in (0, args.share) if lines == args.lines else (args.share,):
            with tempfile.TemporaryDirectory(dir=args.temporary) as temporary:
                folder = (args.keep or Path(temporary)) / f"{lines}-{share}"
                if not folder.exists():
                    folder.mkdir(parents=True)
                    write_logs(folder, lines, share)
                size = sum(each.stat().st_size for each in folder.iterdir())
                run = analyse(folder)
            run |= {"lines_per_s": round(lines / run["whole_s"]), "bytes": size}
            table.row(f"{lines:,} lines, {share} % in one group", "aiogroup.spark").runs.append(run)
            print(lines, share, run, flush=True)
    print(table.markdown())
    path = FOLDER / "time_outs.json"
    write(path, [table], lines=args.lines)
    print(f"\nbenchmarks/{FOLDER.name}/{path.name} has every run.")


if __name__ == "__main__":
    main()
