"""The job: folds the lines of a fleet's event log with Spark, and applies the rules to the result.

Every line goes through one shuffle, by its member and never by its group, so that one large group is as fast as many
small ones. The driver gets no lines. It gets, group by group, the stretches (a row for each rebalance of a member) and
the merged histograms (a row for each bucket). From there on it runs the same code as the reference.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aiogroup.spark.liveness.advice import ENOUGH, Enough, Findings, Proposal, findings_of
from aiogroup.spark.liveness.buckets import BUCKET, Bucket
from aiogroup.spark.liveness.episodes import story_of
from aiogroup.spark.liveness.errors import EventsError, first_line
from aiogroup.spark.liveness.schema import CORRUPT, DAMAGE, FILE, HISTOGRAMS
from aiogroup.spark.liveness.stretches import (
    ENDING,
    HEARD,
    INCIDENTS,
    MOST_MS,
    NUMBER,
    SETTINGS,
    SILENCE_MS,
    Incident,
    Stretch,
    in_order,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, WindowSpec

__all__ = ["Advice", "Damaged", "advise", "histogram_rows", "stretch_rows"]

MEMBER: Final = ("group", "client_id", "host", "pid", "consumer_number")
ORDER: Final = ("at_ms", "seq", "mono_ms", "event")
TOLD: Final = (
    "rebalance_started", "member_moved", "rebalance_waiting_for_application", "rebalance_completed", "member_failed",
)  # fmt: skip
"""The events that give a stretch more than their time, besides incidents and samples."""

Histograms: TypeAlias = dict[str, dict[str, dict[Bucket, int]]]
"""The merged histograms: by group, name and bucket."""


class Damaged(NamedTuple):
    """A file that is not completely in the advice. `why` says what is wrong with the file as a whole, or is "".
    `corrupt_count` is how many of its lines were no events.
    """

    file: str
    why: str
    corrupt_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """What the log of a fleet says: the findings of each group by its name, how many lines were no events, and which
    files are damaged.
    """

    findings: tuple[Findings, ...]
    corrupt_count: int
    damaged: tuple[Damaged, ...] = ()

    @property
    def proposals(self) -> list[Proposal]:
        return [each for found in self.findings for each in found.proposals]


def advise(events: DataFrame, settings: Mapping[str, int | None] | None = None, *, enough: Enough = ENOUGH) -> Advice:
    """Fold the events and apply the rules of docs/time-outs.md to each group.

    `events` come from `read_events`. `settings` override the settings in the samples, for every group. `enough` is the
    least that a proposal may rest on: use less for a rehearsal, which is shorter than a day.

    Raises:
        EventsError: the events could not be read to the end, for example because a file was deleted meanwhile.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)

    try:
        return _advise(events, settings, enough)
    except (PySparkException, Py4JJavaError) as error:
        raise EventsError(f"the events could not be read to the end: {first_line(error)}") from error


def _advise(events: DataFrame, settings: Mapping[str, int | None] | None, enough: Enough) -> Advice:
    """Spark merges the histograms while it makes the stretches: the last tasks of either job alone leave cores idle."""
    from pyspark import inheritable_thread_target  # noqa: PLC0415 (an extra)

    with ThreadPoolExecutor(1) as beside:
        merge = inheritable_thread_target(events.sparkSession)(partial(_histograms, events))
        histograms = beside.submit(merge)
        return _advice_of(_in_turn(stretch_rows(events)), histograms.result, settings, enough)


def _advice_of(
    stretches: Iterable[Row],
    histograms: Callable[[], Histograms],
    settings: Mapping[str, int | None] | None,
    enough: Enough,
) -> Advice:
    findings: list[Findings] = []
    corrupt_count, damaged = 0, dict[str, Damaged]()
    for group, rows in groupby(stretches, key=lambda row: row["group"]):
        if group is None:
            for row in rows:
                corrupt_count += row["corrupt_count"]
                if (file := row[FILE]) is not None:
                    so_far = damaged.get(file, Damaged(file, "", 0))
                    why, count = row["damage"] or so_far.why, so_far.corrupt_count + row["corrupt_count"]
                    damaged[file] = Damaged(file, why, count)
            continue
        story = story_of(group, map(_stretch, rows))
        found = findings_of(story, histograms().get(group, {}), settings, enough)
        findings.append(found.without_lives())
    in_order = sorted(findings, key=lambda each: each.story.group)
    return Advice(tuple(in_order), corrupt_count, tuple(sorted(damaged.values())))


def _in_turn(rows: DataFrame) -> Iterator[Row]:
    """The rows group by group, one Spark partition after another: the driver never holds more than one group, and the
    next partition.

    A global sort would compute the rows twice, first to find out where its partitions begin.
    """
    return rows.repartition("group").sortWithinPartitions("group").toLocalIterator(prefetchPartitions=True)


def stretch_rows(events: DataFrame) -> DataFrame:
    """One row for each stretch, with the fields of `Stretch`, and rows without a group for bad lines and files."""
    from pyspark.sql import Window  # noqa: PLC0415 (an extra)
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    numbered = _numbered(events.select(*_place(), *_needed(), FILE, DAMAGE, _is_corrupt()))
    folded = numbered.groupBy(*MEMBER, FILE, "life", "step").agg(*_folds())
    life = Window.partitionBy(*MEMBER, FILE, "life")
    return folded.withColumn("turn", F.col("step") - F.min("step").over(life)).drop("step")


def _place() -> list[Column]:
    """The member of a line, and the line's place among the member's lines. A line that is no event has no group,
    whatever could be read from it.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    group = F.when(F.col(CORRUPT).isNull() & (F.col("group") != ""), F.col("group")).alias("group")
    missing = {"client_id": "", "consumer_number": 0}
    own = {name: F.coalesce(name, F.lit(value)).alias(name) for name, value in missing.items()} | {"group": group}
    return [own.get(name, F.col(name)) for name in (*MEMBER, *ORDER)]


def _needed() -> list[Column]:
    """The parts of a line that go into its stretch. They are few columns, mostly empty, because lines are shuffled and
    sorted.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    event, is_sample = F.col("event"), F.col("event") == "sample"
    at = F.col("at_ms")
    heard = F.when(event.isin(*HEARD), at).when(is_sample, F.try_subtract(at, _bounded("since_heartbeat_ms")))
    settings = [F.col("settings")[name] for name in SETTINGS]
    numbers = [F.when(each.rlike(NUMBER), each.cast("long")).alias(f"s{n}") for n, each in enumerate(settings)]
    name = F.col("settings")["group_instance_id"]
    told = F.struct(
        "why",
        "reason",
        "error",
        "new",
        *(_bounded(name).alias(name) for name in ("generation", "duration_ms", "waited_ms")),
        F.size(F.coalesce("partitions", F.array().cast("array<string>"))).alias("count"),
    )
    return [
        heard.alias("heard_ms"),
        F.when(event.isin(*TOLD), told).alias("told"),
        F.when(is_sample, F.struct(*numbers)).alias("numbers"),
        F.when(is_sample & (name != ""), name).alias("instance_id"),
        F.when(event.isin(*INCIDENTS), _incident()).alias("incident"),
    ]


def _bounded(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    return F.when(F.col(name).between(-MOST_MS, MOST_MS), F.col(name))


def _is_corrupt() -> Column:
    """Whether the row is a line that is no event. A row about a file is not a line."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    return (F.col(CORRUPT).isNotNull() & F.col(DAMAGE).isNull()).alias("is_corrupt")


def _before(own: WindowSpec) -> dict[str, Column]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    return {name: F.lag(name).over(own) for name in ORDER}


def _is_copy(before: Mapping[str, Column]) -> Column:
    """Whether the line is a copy of the one before: copies have the same member and the same place in its order."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    is_copy = F.lit(True)
    for name in ORDER:
        is_copy = is_copy & (before[name] == F.col(name))
    return F.coalesce(is_copy, F.lit(False))


def _numbered(lines: DataFrame) -> DataFrame:
    """Each line once, with the number of the life, and a number that grows with each stretch of a member."""
    from pyspark.sql import Window  # noqa: PLC0415 (an extra)
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    # bad rows have no member, and the file, which is null for events, keeps them apart
    own = Window.partitionBy(*MEMBER, FILE).orderBy(*ORDER)
    before = _before(own)
    # Bad rows have any numbers. Spark fails where a result does not fit, unless it is told to try.
    silence_ms = F.try_subtract(F.col("at_ms"), before["at_ms"])
    begins_anew = (
        before["event"].isin(*ENDING)
        | ((silence_ms > SILENCE_MS) & (F.col("seq") <= before["seq"]))
        | (F.try_multiply(F.lit(2), F.col("seq")) < before["seq"])
    )
    begins_anew = F.coalesce(begins_anew, F.lit(False)).cast("long")
    is_after = F.coalesce(before["event"] == "rebalance_completed", F.lit(False)).cast("long")
    # The line before a line is the same, whether or not it has copies.
    marked = lines.select(
        "*",
        _is_copy(before).alias("is_copy"),
        begins_anew.alias("begins"),
        F.greatest(begins_anew, is_after).alias("cuts"),
    )
    once = marked.where(~F.col("is_copy")).drop("is_copy")
    so_far = own.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return once.withColumn("life", F.sum("begins").over(so_far)).withColumn("step", F.sum("cuts").over(so_far))


def _folds() -> list[Column]:
    """The aggregates that `reference._fold` computes of a list."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    at, event, told = F.col("at_ms"), F.col("event"), F.col("told")

    def of(name: str, value: Column) -> Column:
        return F.when(event == name, value)

    def moved_to(state: str) -> Column:
        return F.max(of("member_moved", F.when(told["new"] == state, at)))

    began = (told[name].alias(name) for name in ("why", "reason"))
    completed = (told[name].alias(name) for name in ("generation", "duration_ms", "count"))
    return [
        F.min(at).alias("first_at_ms"),
        F.max(at).alias("last_at_ms"),
        F.count(F.lit(1)).alias("lines_count"),
        F.count(F.when(F.col("is_corrupt"), 1)).alias("corrupt_count"),
        F.max(DAMAGE).alias("damage"),
        F.min("heard_ms").alias("heard_first_ms"),
        F.max("heard_ms").alias("heard_last_ms"),
        F.max("instance_id").alias("instance_id"),
        F.max(event == "consumer_stopped").alias("is_stopped"),
        F.min(of("member_failed", at)).alias("failed_at_ms"),
        F.max(of("member_failed", told["why"])).alias("failed_why"),
        F.max(of("member_failed", told["error"])).alias("failed_error"),
        F.max(of("rebalance_started", F.struct(*ORDER, *began))).alias("started"),
        moved_to("joining").alias("joining_at_ms"),
        moved_to("adopting").alias("synced_at_ms"),
        F.max(of("rebalance_waiting_for_application", told["waited_ms"])).alias("waited_ms"),
        F.min(of("rebalance_completed", F.struct(*ORDER, *completed))).alias("completed"),
        F.max(F.when(F.col("numbers").isNotNull(), F.struct(*ORDER, "numbers"))).alias("sampled"),
        F.collect_list("incident").alias("incidents"),
    ]


def _incident() -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    amount = F.lit(None).cast("long")
    for event, field in INCIDENTS.items():
        if field is not None:
            amount = F.when(F.col("event") == event, _bounded(field)).otherwise(amount)
    expected = F.coalesce("is_expected", F.lit(False))
    place = F.concat_ws("-", "topic", F.col("partition").cast("string"))
    return F.struct(
        "at_ms",
        "seq",
        "event",
        F.when(~expected, amount).alias("amount"),
        F.when(F.col("topic").isNull(), F.col("why")).otherwise(place).alias("subject"),
    )


def _stretch(row: Row) -> Stretch:
    started, completed, sampled = row["started"], row["completed"], row["sampled"]
    return Stretch(
        group=row["group"],
        client_id=row["client_id"],
        host=row["host"],
        pid=row["pid"],
        consumer_number=row["consumer_number"],
        life=row["life"],
        turn=row["turn"],
        first_at_ms=row["first_at_ms"],
        last_at_ms=row["last_at_ms"],
        lines_count=row["lines_count"],
        heard_first_ms=row["heard_first_ms"],
        heard_last_ms=row["heard_last_ms"],
        instance_id=row["instance_id"],
        is_stopped=row["is_stopped"],
        failed_at_ms=row["failed_at_ms"],
        failed_why=row["failed_why"],
        failed_error=row["failed_error"],
        started_at_ms=started and started["at_ms"],
        why=started and started["why"],
        reason=started and started["reason"],
        joining_at_ms=row["joining_at_ms"],
        synced_at_ms=row["synced_at_ms"],
        waited_ms=row["waited_ms"],
        completed_at_ms=completed and completed["at_ms"],
        generation=completed and completed["generation"],
        duration_ms=completed and completed["duration_ms"],
        partitions_count=completed and completed["count"],
        settings_at_ms=sampled and sampled["at_ms"],
        settings=sampled and tuple(sampled["numbers"]),
        incidents=in_order(Incident(*each) for each in row["incidents"]),
    )


def histogram_rows(events: DataFrame) -> DataFrame:
    """The merged histograms: `group`, `name`, `bucket`, `step` and the `count` of the bucket."""
    from pyspark.sql import Window  # noqa: PLC0415 (an extra)
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    samples = events.where(F.col(HISTOGRAMS).isNotNull())
    own = Window.partitionBy(*MEMBER).orderBy(*ORDER)
    marked = samples.select(*_place(), "bucket_step", HISTOGRAMS).withColumn("is_copy", _is_copy(_before(own)))
    once = marked.where(~F.col("is_copy") & F.col("group").isNotNull())
    named = once.select("group", "bucket_step", F.explode(HISTOGRAMS).alias("name", "counts"))
    counted = named.select("group", "name", "bucket_step", F.explode("counts").alias("bucket", "count"))
    step = F.coalesce("bucket_step", F.lit(1)).alias("step")
    counted = counted.where(F.col("bucket").rlike(BUCKET) & (F.col("count") > 0))
    return counted.groupBy("group", "name", F.col("bucket").cast("long").alias("bucket"), step).agg(
        F.sum("count").alias("count")
    )


def _histograms(events: DataFrame) -> Histograms:
    found: Histograms = defaultdict(lambda: defaultdict(dict))
    for row in histogram_rows(events).collect():
        found[row["group"]][row["name"]][Bucket(row["bucket"], row["step"])] = row["count"]
    return found
