"""`python -m aiogroup.spark drain | pending | liveness`: a service's backlog, and advice on its time-outs."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiogroup._command.printable import document, table
from aiogroup._command.properties import PREFIX
from aiogroup._core.recovery.ranges import count
from aiogroup.errors import AiogroupError, ConfigError
from aiogroup.spark.access import Access, cluster_of
from aiogroup.spark.drain import ROUND_RECORDS, SESSION_TIMEOUT_MS, check_keep, check_sizes, drain, standing_of
from aiogroup.spark.isolation import Failed
from aiogroup.spark.liveness import command
from aiogroup.spark.progress import DrainReport
from aiogroup.spark.session import CONNECTOR, make_session
from aiogroup.spark.sinks import load_function, to_parquet, to_table
from aiogroup.spark.standing import Lagging, Pending
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


COLUMNS = ("TOPIC", "PARTITION", "RANGE", "OFFSETS", "LOG-START-OFFSET", "LOG-END-OFFSET")


PROG = "python -m aiogroup.spark"


def make_parser(prog: str = PROG) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="What a group has left to batch jobs")
    commands = parser.add_subparsers(dest="command", required=True)
    showing = commands.add_parser("pending", help="print what is pending")
    draining = commands.add_parser("drain", help="read them with Spark, and commit them as done")
    advising = commands.add_parser("liveness", help="read the event logs of a fleet, and advise on its time-outs")
    command.add_arguments(advising)
    for each in (showing, draining, advising):
        each.set_defaults(parser=each)
    for each in (showing, draining):
        each.add_argument(
            "--bootstrap-server", metavar="HOST:PORT[,...]", help=f"or the variable {PREFIX}BOOTSTRAP_SERVERS"
        )
        each.add_argument("--group", required=True, metavar="GROUP", help="the service's")
        each.add_argument("--topic", required=True, action="append", metavar="TOPIC", help="may be repeated")
        each.add_argument(
            "--catchup-group", metavar="GROUP", help="the service's parallel_group_id; GROUP.catchup by default"
        )
        each.add_argument(
            "--isolation-level", choices=("read_uncommitted", "read_committed"), help="the service's by default"
        )
        each.add_argument(
            "--command-config", type=Path, metavar="FILE", help="Java properties: security.protocol, sasl.*, ssl.*"
        )
        each.add_argument("-o", "--output", choices=("table", "json"), default="table", help="table is the default")
        each.add_argument("--traceback", action="store_true", help="show all of an error, not one line of it")
    goal = draining.add_mutually_exclusive_group(required=True)
    goal.add_argument(
        "--to",
        metavar="parquet:PATH|table:NAME",
        help="one folder for each slice, or a table of Delta or Iceberg, which takes each record once",
    )
    goal.add_argument("--foreach", metavar="MODULE:FUNCTION", help="called with the DataFrame of each slice")
    draining.add_argument("--min-records", type=int, default=0, help="do nothing if fewer are pending")
    draining.add_argument(
        "--keep", metavar="LEVEL", help="keep each slice in Spark, for example MEMORY_AND_DISK, so that it is read once"
    )
    draining.add_argument(
        "--on-error",
        choices=("stop", "isolate"),
        default="stop",
        help="isolate: if a slice fails, commit what of it does not, and end with exit code 4",
    )
    draining.add_argument(
        "--round-records",
        type=int,
        default=ROUND_RECORDS,
        help="of all partitions in one round; %(default)s by default",
    )
    draining.add_argument("--slice-records", type=int, help="most of one partition in a round")
    draining.add_argument("--task-records", type=int, help="most that one task reads")
    draining.add_argument("--session-timeout-ms", type=int, default=SESSION_TIMEOUT_MS)
    draining.add_argument("--master", help="spark-submit's, local[*], or sc://HOST:PORT")
    draining.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark's own settings")
    draining.add_argument(
        "--reader",
        choices=("aiogroup", "connector"),
        default="aiogroup",
        help="connector: Spark's own, where the executors have no aiogroup",
    )
    draining.add_argument("--connector", default=CONNECTOR, metavar="GROUP:ARTIFACT:VERSION", help="fetched by Spark")
    draining.add_argument("--jars", default="", metavar="PATH[,...]", help="the connector's jars, instead of fetching")
    return parser


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments, checked before anything is begun."""

    access: Access
    arguments: argparse.Namespace
    process: Callable[[DataFrame], object] | None
    conf: dict[str, str]
    jars: tuple[str, ...]


class _ProcessError(Exception):
    """The error of `process` in one line; its cause is the whole error."""


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command and return its exit code.

    0: nothing is pending any more. 1: an error. 2: bad arguments (by argparse). 3: ranges are still pending, or the
    group is behind and no token says what is left to jobs. 4: records have failed (`--on-error isolate`), even if other
    drivers hold the remaining ranges.
    """
    parsed = make_parser(prog).parse_args(arguments)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # an error is printed once, below
    try:
        run = _prepared(parsed)
    except (AiogroupError, OSError, ValueError) as error:
        parsed.parser.error(str(error))
    try:
        return run()
    except Exception as error:  # noqa: BLE001 (the application's function, and Spark, raise anything)
        if parsed.traceback:
            traceback.print_exc()
        _tell(error if isinstance(error, (AiogroupError, OSError, ValueError, _ProcessError)) else _first_line(error))
        return 1
    except KeyboardInterrupt:
        if parsed.command == "drain":
            _tell("interrupted; the slice is pending still")
        return 130


def _prepared(parsed: argparse.Namespace) -> Callable[[], int]:
    """Check the arguments. Returns the function that carries out the command.

    Raises:
        ConfigError, OSError, ValueError: an argument is not valid.
    """
    if parsed.command == "liveness":
        return partial(command.run, command.checked(parsed, _conf(parsed.conf)), _say, _tell)
    return partial(_show if parsed.command == "pending" else _drain, _check(parsed))


def _check(parsed: argparse.Namespace) -> _Given:
    """Check the arguments.

    Raises:
        ConfigError, OSError, ValueError: an argument is not valid.
    """
    servers, properties = cluster_of(parsed.bootstrap_server, parsed.command_config)
    if parsed.isolation_level is not None:
        properties["isolation.level"] = parsed.isolation_level
    access = Access.of(servers, parsed.group, parsed.topic, properties, catchup_group_id=parsed.catchup_group)
    if parsed.command == "pending":
        return _Given(access, parsed, None, {}, ())
    sizes = (parsed.round_records, parsed.slice_records, parsed.task_records)
    check_sizes(access, *sizes, parsed.session_timeout_ms)
    check_keep(parsed.keep)
    jars = tuple(filter(None, parsed.jars.split(",")))
    if missing := [each for each in jars if not Path(each).is_file()]:
        raise ConfigError(f"--jars: no such jar: {', '.join(missing)}")
    return _Given(access, parsed, _goal(parsed), _conf(parsed.conf), jars)


def _show(given: _Given) -> int:
    standing = standing_of(given.access, is_patient=True)
    pending = sorted(standing.items())
    if given.arguments.output == "json":
        partitions = [_pending_as_json(tp, each) for tp, each in pending]
        _say(document("pending", group=given.access.group_id, partitions=partitions))
    else:
        rows = [
            (tp.topic, tp.partition, f"{start}-{end}", end - start, each.log_start, each.log_end)
            for tp, each in pending
            for start, end in each.ranges
        ]
        if rows:
            _say(table(COLUMNS, rows))
    if not any(each.ranges for each in standing.values()) and not standing.lagging:
        _tell(f"nothing of group {given.access.group_id!r} is pending")
    return _tell_lagging(standing.lagging.values())


def _pending_as_json(tp: TopicPartition, each: Pending) -> dict[str, object]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "pending": [[start, end] for start, end in each.ranges],
        "pending_count": count(each.ranges),
        "log_start_offset": each.log_start,
        "log_end_offset": each.log_end,
    }


def _tell_lagging(lagging: Iterable[Lagging]) -> int:
    """Print the partitions that lag without a token. Returns the exit code that they alone would give."""
    told = sorted(lagging, key=lambda each: each.tp)
    for each in told:
        _tell(each)
    return 3 if told else 0


def _drain(given: _Given) -> int:
    arguments, access = given.arguments, given.access
    # Errors about the group are reported before Spark is started, which takes time.
    for is_patient in (False, True):
        standing = standing_of(access, is_patient=is_patient)
        record_count = sum(each.record_count for each in standing.values())
        is_enough = any(each.ranges for each in standing.values()) and record_count >= arguments.min_records
        if is_enough or not standing.lagging:
            break
    if standing or not standing.lagging:
        _tell(f"{record_count:,} offsets pending in {len(standing)} partitions")
    if not is_enough:
        left_count = sum(count(each.ranges) for each in standing.values())  # with those that retention has deleted
        if arguments.output == "json":
            _say(_report_as_json(access, DrainReport(left_count=left_count, lagging=dict(standing.lagging))))
        return max(3 if left_count else 0, _tell_lagging(standing.lagging.values()))
    # SIGTERM acts like Ctrl-C: the claim is given back, so that another driver need not wait for the session to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as ending:

        def start() -> SparkSession:
            connector = arguments.connector if arguments.reader == "connector" else None
            spark = make_session(arguments.master, jars=given.jars, connector=connector, conf=given.conf)
            ending.callback(spark.stop)
            return spark

        report = drain(
            start,
            _in_one_line(given),
            bootstrap_servers=access.bootstrap_servers,
            group_id=access.group_id,
            topics=access.topics,
            properties=access.properties,
            catchup_group_id=access.catchup_group_id,
            min_records=arguments.min_records,
            round_records=arguments.round_records,
            slice_records=arguments.slice_records,
            task_records=arguments.task_records,
            session_timeout_ms=arguments.session_timeout_ms,
            keep=arguments.keep,
            on_error=arguments.on_error,
            reader=arguments.reader,
            on_progress=_tell,
            on_round=_tell,
        )
    _say(_report_as_json(access, report) if arguments.output == "json" else _summary(report))
    for each in report.failed:
        _tell(f"failed: {each.tp.topic}-{each.tp.partition} {', '.join(map(str, each.ranges))}: {_why(each)}")
    code = 0 if report.is_complete else 4 if report.failed else 3
    return max(code, _tell_lagging(report.lagging.values()))


def _why(failed: Failed) -> str:
    return str(failed.error) if isinstance(failed.error, _ProcessError) else _first_line(failed.error)


def _report_as_json(access: Access, report: DrainReport) -> str:
    return document(
        "drain",
        group=access.group_id,
        record_count=report.record_count,
        slice_count=report.slice_count,
        elapsed_ms=report.elapsed_ms,
        missing=asdict(report.missing),
        dropped_count=report.dropped_count,
        left_count=report.left_count,
        failed=[
            {
                "topic": each.tp.topic,
                "partition": each.tp.partition,
                "ranges": [[start, end] for start, end in each.ranges],
                "error": _why(each),
            }
            for each in report.failed
        ],
        lagging=[
            {"topic": tp.topic, "partition": tp.partition, "lag": each.lag_count}
            for tp, each in sorted(report.lagging.items())
        ],
    )


def _in_one_line(given: _Given) -> Callable[[DataFrame], object]:
    """`process`, with each error turned into one line that names the function and the place where it was raised."""
    process, name = given.process, given.arguments.foreach or f"--to {given.arguments.to}"
    assert process is not None
    path = getattr(getattr(process, "__code__", None), "co_filename", "")

    def run(frame: DataFrame) -> object:
        try:
            return process(frame)
        except (Exception, SystemExit) as error:  # to end the command is not to process the slice
            frames = traceback.extract_tb(error.__traceback__)
            at = next((each for each in reversed(frames) if each.filename == path), None)
            where = f" ({Path(path).name}, line {at.lineno})" if at is not None and given.arguments.foreach else ""
            raise _ProcessError(
                f"{name} raised {_first_line(error)}{where}; the slice is pending still (--traceback shows all of it)"
            ) from error

    return run


def _first_line(error: BaseException) -> str:
    """The type and the first line of the message: Spark's messages go on with Java's stack. Of an error of Python on a
    worker the first line says nothing: it is that error, which ends its traceback.
    """
    text = str(error)
    _, is_python, behind = text.rpartition("Traceback (most recent call last):\n")
    raised = next((line for line in behind.splitlines() if line[:1].strip()), "") if is_python else ""
    if raised:
        return raised[:500]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def _goal(given: argparse.Namespace) -> Callable[[DataFrame], object]:
    if given.foreach is not None:
        return load_function(given.foreach)
    kind, _, name = given.to.partition(":")
    make = {"parquet": to_parquet, "table": to_table}.get(kind)
    if make is None or not name:
        raise ConfigError(f"--to {given.to}: parquet:PATH is needed, table:NAME, or --foreach MODULE:FUNCTION")
    return make(name)


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
