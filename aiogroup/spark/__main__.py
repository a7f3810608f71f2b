"""`python -m aiogroup.spark drain | pending`: work off what a service has left to batch jobs, or see what that is."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiogroup.errors import AiogroupError, ConfigError
from aiogroup.spark.drain import SESSION_TIMEOUT_MS, SLICE_RECORDS, drain, pending_ranges
from aiogroup.spark.progress import DrainReport
from aiogroup.spark.reading import TASK_RECORDS
from aiogroup.spark.session import CONNECTOR, make_session
from aiogroup.spark.sinks import load_function, to_parquet
from aiogroup.verifiable.properties import load_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aiogroup.spark", description="What a group has left to batch jobs")
    commands = parser.add_subparsers(dest="command", required=True)
    showing = commands.add_parser("pending", help="print it: topic, partition, range, log start and end")
    draining = commands.add_parser("drain", help="read it with Spark, and tell the group that it is done")
    for each in (showing, draining):
        each.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]")
        each.add_argument("--group", required=True)
        each.add_argument("--topic", required=True, action="append", help="may be given several times")
        each.add_argument("--catchup-group", help="the service's parallel_group_id; GROUP.catchup by default")
        each.add_argument("--isolation-level", choices=("read_uncommitted", "read_committed"), help="the service's")
        each.add_argument(
            "--command-config", type=Path, metavar="FILE", help="Java properties: security.protocol, sasl.*, ssl.*"
        )
    goal = draining.add_mutually_exclusive_group(required=True)
    goal.add_argument("--to", metavar="parquet:PATH", help="one folder for each slice")
    goal.add_argument("--foreach", metavar="MODULE:FUNCTION", help="called with the DataFrame of each slice")
    draining.add_argument("--min-records", type=int, default=0, help="do nothing below it")
    draining.add_argument("--slice-records", type=int, default=SLICE_RECORDS, help="of each partition between commits")
    draining.add_argument("--task-records", type=int, default=TASK_RECORDS, help="that one task reads")
    draining.add_argument("--session-timeout-ms", type=int, default=SESSION_TIMEOUT_MS)
    draining.add_argument("--master", help="spark-submit's, or local[*]")
    draining.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark's own settings")
    draining.add_argument("--connector", default=CONNECTOR, metavar="GROUP:ARTIFACT:VERSION", help="fetched by Spark")
    draining.add_argument("--jars", default="", metavar="PATH[,...]", help="the connector's jars, instead of fetching")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 when nothing is pending any more, 1 on an error, 2 for bad arguments, 3 when some is left."""
    given = _parser().parse_args(arguments)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what went wrong is said once, below
    try:
        return _show(given) if given.command == "pending" else _drain(given)
    except (AiogroupError, OSError, ValueError) as error:
        print(f"aiogroup: {error}", file=sys.stderr)  # noqa: T201 (a command line)
        return 1
    except KeyboardInterrupt:
        print("aiogroup: interrupted; the slice is pending still", file=sys.stderr)  # noqa: T201
        return 130


def _show(given: argparse.Namespace) -> int:
    for tp, each in sorted(pending_ranges(**_access(given)).items()):
        for start, end in each.ranges:
            _say(f"{tp.topic}\t{tp.partition}\t{start}-{end}\t{end - start}\t{each.log_start}\t{each.log_end}")
    return 0


def _drain(given: argparse.Namespace) -> int:
    process, access = _goal(given), _access(given)
    pending = pending_ranges(**access)  # what is wrong with the group is told before Spark takes its time to start
    count = sum(each.record_count for each in pending.values())
    _tell(f"{count:,} offsets pending in {len(pending)} partitions")
    if not pending or count < given.min_records:
        return 3 if count else 0
    # Like Ctrl-C: the claim is given back, so that another driver need not wait for the session to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    spark = make_session(
        given.master, jars=filter(None, given.jars.split(",")), connector=given.connector, conf=_conf(given.conf)
    )
    try:
        report = drain(
            spark,
            process,
            **access,
            min_records=given.min_records,
            slice_records=given.slice_records,
            task_records=given.task_records,
            session_timeout_ms=given.session_timeout_ms,
            on_progress=_tell,
        )
    finally:
        spark.stop()
    _say(_summary(report))
    return 0 if report.is_complete else 3


def _goal(given: argparse.Namespace) -> Callable[[DataFrame], object]:
    if given.foreach is not None:
        return load_function(given.foreach)
    kind, _, path = given.to.partition(":")
    if kind != "parquet" or not path:
        raise ConfigError(f"--to {given.to}: parquet:PATH is needed, or --foreach MODULE:FUNCTION")
    return to_parquet(path)


def _access(given: argparse.Namespace) -> dict[str, Any]:
    properties = {} if given.command_config is None else load_properties(given.command_config)
    if given.isolation_level is not None:
        properties["isolation.level"] = given.isolation_level
    return {
        "bootstrap_servers": given.bootstrap_server,
        "group_id": given.group,
        "topics": given.topic,
        "properties": properties,
        "catchup_group_id": given.catchup_group,
    }


def _conf(pairs: Sequence[str]) -> dict[str, str]:
    conf = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--conf {pair}: KEY=VALUE is needed")
        conf[key] = value
    return conf


def _summary(report: DrainReport) -> str:
    missing = report.missing
    parts = [
        f"{report.record_count:,} records in {report.slice_count} slices, {report.elapsed_ms / 1000:.1f} s",
        (
            f"{missing.total_count:,} offsets without a record: {missing.expired_count:,} deleted by retention, "
            f"{missing.control_count:,} markers of transactions, {missing.aborted_count:,} aborted, "
            f"{missing.compacted_count:,} compacted, {missing.unchecked_count:,} not looked at"
        ),
        f"{report.dropped_count} slices dropped, to be repeated",
        f"{report.left_count:,} offsets left pending",
    ]
    return "\n".join(parts)


def _tell(line: object) -> None:
    print(f"aiogroup: {line}", file=sys.stderr, flush=True)  # noqa: T201 (a command line)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 (a command line)


if __name__ == "__main__":
    sys.exit(main())
