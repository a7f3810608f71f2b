"""The job: claim partitions, read a round of the pending ranges, process it, commit it as done, until none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aiogroup._core.recovery.ranges import Range, Ranges, count, subtract, union
from aiogroup._core.recovery.token import LogId
from aiogroup._runtime.loop.clock import sleep_ms, steady_ms
from aiogroup.admin import list_members
from aiogroup.config import ConsumerConfig
from aiogroup.errors import AiogroupError, ConfigError
from aiogroup.spark.access import Access
from aiogroup.spark.claims import IDLE_MS, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Claims
from aiogroup.spark.completeness import WatchedByListener
from aiogroup.spark.current import Current, at_work
from aiogroup.spark.errors import ClaimLostError, NotProcessedError, RangeBeyondEndError, TopicRecreatedError
from aiogroup.spark.gaps import Missing, explain
from aiogroup.spark.interrupts import noticing_interrupts
from aiogroup.spark.isolation import isolate
from aiogroup.spark.progress import DrainReport, Progress, RoundProgress
from aiogroup.spark.readers import reading_of
from aiogroup.spark.reading import Reader, check_reader, check_session
from aiogroup.spark.remote import WatchedRemotely
from aiogroup.spark.rounds import described, telling
from aiogroup.spark.session import cancelled_on_error, is_remote
from aiogroup.spark.slices import Slice, cut, grid_of
from aiogroup.spark.standing import Standing, look, look_at_rest
from aiogroup.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ROUND_RECORDS", "SESSION_TIMEOUT_MS", "check_keep", "check_sizes", "drain", "pending_ranges", "standing_of"]

ROUND_RECORDS: Final = 10_000_000
TELL_MS: Final = 60_000
"""How often an idle driver says which other drivers it waits for."""
DROPS_IN_A_ROW: Final = 3
LAGGING_LOOKS: Final = 5
"""How many times to look at a log that ends before a pending range: a new leader may report an old end at first."""

READERS: Final = ("org.apache.spark.sql.kafka010", "aiogroup.spark.source", "aiogroup/spark/source")
"""Text that only errors from the connector, or from aiogroup's own reader, contain."""

Slices = Mapping[TopicPartition, Slice]


def pending_ranges(
    *,
    bootstrap_servers: str,
    group_id: str,
    topics: str | Iterable[str],
    properties: Mapping[str, str] | None = None,
    consumer: Mapping[str, Any] | None = None,
    catchup_group_id: str | None = None,
) -> Standing:
    """The ranges that the group has left to jobs and that no job has done, by partition.

    `properties` are those of a Java consumer (security, isolation.level), `consumer` are settings of `Consumer` that
    have no Java name. `catchup_group_id` is the service's `parallel_group_id`, `<group_id>.catchup` by default. Without
    an isolation level the service's is used.

    `Standing.lagging` has the partitions in which the group is behind and no token says what is left to jobs.

    Raises:
        GroupNotFoundError: the cluster has no such group.
        TopicGoneError: a topic does not exist.
        ForeignTokenError: the commit's token must not be obeyed.
        NotHandedOffError: the service reads its ranges itself.
        CatchupGroupError: the service reads the progress of jobs from another group.
        IsolationLevelError: the service reads committed records only, and uncommitted ones were asked for.
        GroupAuthorizationError, TopicAuthorizationError: grant what the message says.
        ConfigError: a setting is not valid.
        AiogroupError: no broker was reached, or it refused.
    """
    access = Access.of(bootstrap_servers, group_id, topics, properties, consumer, catchup_group_id)
    return standing_of(access, is_patient=True)


def standing_of(access: Access, *, is_patient: bool) -> Standing:
    """As `pending_ranges`. Without `is_patient` a running member may seem to lag, because it has not yet committed what
    it has just read.
    """
    with start_blocking_portal() as portal:
        return portal.call(look_at_rest if is_patient else look, access)


def check_sizes(
    access: Access, round_records: int, slice_records: int | None, task_records: int | None, session_timeout_ms: int
) -> None:
    """Refuse numbers that could only fail later, once Spark has started.

    Raises:
        ConfigError: a number is not valid.
    """
    sizes = {"round_records": round_records, "slice_records": slice_records, "task_records": task_records}
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value}: at least 1 is needed")
    ConsumerConfig.of(**Claims.settings(access, session_timeout_ms))


def check_keep(keep: str | None) -> None:
    """Refuse a storage level that Spark does not know.

    Raises:
        ConfigError: there is none of this name.
    """
    if keep is None:  # what needs no PySpark must not fail without it
        return
    from pyspark.storagelevel import StorageLevel  # noqa: PLC0415 (an extra)

    known = [name for name, level in vars(StorageLevel).items() if isinstance(level, StorageLevel) and name != "NONE"]
    if keep not in known:
        raise ConfigError(f"keep={keep!r}: a storage level of Spark is needed: {', '.join(known)}")


def drain(
    spark: SparkSession | Callable[[], SparkSession],
    process: Callable[[DataFrame], object],
    *,
    bootstrap_servers: str,
    group_id: str,
    topics: str | Iterable[str],
    properties: Mapping[str, str] | None = None,
    consumer: Mapping[str, Any] | None = None,
    catchup_group_id: str | None = None,
    min_records: int = 0,
    round_records: int = ROUND_RECORDS,
    slice_records: int | None = None,
    task_records: int | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    others_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    keep: str | None = None,
    on_error: Literal["stop", "isolate"] = "stop",
    reader: Reader = "aiogroup",
    on_progress: Callable[[Progress], object] = lambda progress: None,
    on_round: Callable[[RoundProgress], object] | None = None,
) -> DrainReport:
    """Process everything that is pending, at least once, and commit it as done.

    `spark` is a session, or a function such as `make_session`. The function is called once there is something to read,
    and the driver joins the group meanwhile.

    Partitions are claimed by joining the second commit log's group, so that several drivers share them. `process` is
    called once for each round, with a DataFrame like that of `read_ranges` that holds a slice of each claimed
    partition. A round has at most `round_records` offsets, dealt out by what each partition has left; `slice_records`
    limits the offsets of one partition. `process` must make its results durable, and one of its actions must read every
    record. When it returns, the records that this action read are counted against the offsets, and then the slices are
    committed as done. If anything fails before, they stay pending. A task reads at most `task_records` offsets; by
    default, a third of what each core has to read in the round.

    `reader` is aiogroup's own data source, which needs aiogroup on the executors, or Spark's "connector" for Kafka.

    With `keep`, the name of one of Spark's storage levels such as "MEMORY_AND_DISK", a slice is read from Kafka once,
    counted and kept, and `process` may read it as often as it likes and in any way: several sinks, or
    `frame.select(...).foreachPartition(...)`, whose readings Spark does not report.

    With `on_error="isolate"` a round for which `process` raised is repeated partition by partition, and a slice that
    fails again is halved. What succeeds is committed. The failed records are listed in `DrainReport.failed` and stay
    pending. If none of the first 16 attempts succeeds, the records are not the cause, and the first error is raised.

    `on_progress` is called after each round. `on_round` is called with the tasks of the round under way, at most once a
    second and from another thread.

    With fewer than `min_records` pending nothing is done. The other arguments are those of `pending_ranges`. While
    other drivers hold the remaining partitions, it waits for them, until they have made no progress for
    `others_timeout_ms`; a driver that died leaves the group after its `session_timeout_ms`.

    Raises:
        DrainError: see its subclasses.
        ConfigError: a setting is not valid.
        AiogroupError: an error of `pending_ranges`, or the one that ended the membership.
        Exception: the error of `process`; the slices are still pending.
    """
    access = Access.of(bootstrap_servers, group_id, topics, properties, consumer, catchup_group_id)
    check_sizes(access, round_records, slice_records, task_records, session_timeout_ms)
    check_keep(keep)
    if on_error not in ("stop", "isolate"):
        raise ConfigError(f"on_error={on_error!r}: 'stop' or 'isolate' is needed")
    check_reader(reader)
    if not callable(spark):
        check_session(spark, reader)
    with start_blocking_portal() as portal:
        sizes = (round_records, slice_records, task_records)
        job = _Job(spark, process, access, portal, *sizes, keep, on_error, reader, on_progress, on_round)
        return job.done(min_records, session_timeout_ms, others_timeout_ms)


@dataclass(slots=True)
class _Job:
    spark: SparkSession | Callable[[], SparkSession]
    process: Callable[[DataFrame], object]
    access: Access
    portal: BlockingPortal
    round_records: int
    slice_records: int | None
    task_records: int | None
    keep: str | None
    on_error: Literal["stop", "isolate"]
    reader: Reader
    on_progress: Callable[[Progress], object]
    on_round: Callable[[RoundProgress], object] | None
    began_at_ms: int = field(default_factory=steady_ms)
    standing: Standing = field(default_factory=Standing)
    so_far: DrainReport = field(default_factory=DrainReport)
    rounds_count: int = 0
    round_name: str = ""
    drops_in_a_row: int = 0
    overtaken_by: Exception | None = None

    def report(self) -> DrainReport:
        elapsed_ms, lagging = steady_ms() - self.began_at_ms, self.standing.lagging
        return replace(self.so_far, left_count=self.left_count, elapsed_ms=elapsed_ms, lagging=lagging)

    @property
    def reading(self) -> Access:
        """The access with the isolation level that the last look found."""
        return self.access.at(self.standing.isolation_level)

    @property
    def left_count(self) -> int:
        return sum(count(each.ranges) for each in self.standing.values())

    @property
    def failed(self) -> dict[TopicPartition, Ranges]:
        """The offsets that this job does not try again."""
        by_tp = groupby(sorted(self.so_far.failed, key=attrgetter("tp")), attrgetter("tp"))
        return {tp: reduce(union, (each.ranges for each in of_tp)) for tp, of_tp in by_tp}

    @property
    def has_untried(self) -> bool:
        """Whether anything is pending besides `failed`."""
        failed = self.failed
        return any(subtract(each.ranges, failed.get(tp, ())) for tp, each in self.standing.items())

    def session(self) -> SparkSession:
        """The session, which is started now if none is yet.

        Raises:
            DrainError: it does not start, or cannot read Kafka.
        """
        if callable(self.spark):
            spark = self.spark()
            check_session(spark, self.reader)
            self.spark = spark
        return self.spark

    def look(self) -> Standing:
        """Ask the brokers what is pending, and remember it."""
        for looks_left in reversed(range(LAGGING_LOOKS)):
            self.standing = self.portal.call(look, self.access)
            last = {tp: (each.ranges[-1].end, each.log_end) for tp, each in self.standing.items() if each.ranges}
            beyond = {tp: ends for tp, ends in last.items() if ends[0] > ends[1]}
            if beyond and not looks_left:
                raise RangeBeyondEndError(beyond)
            if not beyond:
                break
            self.portal.call(sleep_ms, IDLE_MS)
        return self.standing

    def done(self, min_records: int, session_timeout_ms: int, others_timeout_ms: int) -> DrainReport:
        """Process what is pending, unless it is less than `min_records`. The driver joins while Java starts."""
        record_count = sum(each.record_count for each in self.look().values())
        if self.left_count and record_count >= min_records:
            claims = Claims(self.access, session_timeout_ms)
            with self.portal.wrap_async_context_manager(claims):
                if record_count:
                    self.session()
                self._run(claims, others_timeout_ms)
        if self.standing.lagging:
            self.standing = self.portal.call(look_at_rest, self.access)
        return self.report()

    def _run(self, claims: Claims, others_timeout_ms: int) -> None:
        """Process round after round, until nothing is pending, or the drivers that hold the rest make no progress."""
        left_count, changed_at_ms = -1, steady_ms()
        told_at_ms: int | None = None
        while True:
            is_busy = self._round(claims)
            if not self.has_untried:
                return
            if is_busy or self.left_count != left_count:
                left_count, changed_at_ms = self.left_count, steady_ms()
            if steady_ms() - changed_at_ms >= others_timeout_ms:
                return
            if not is_busy:
                if told_at_ms is None or steady_ms() - told_at_ms >= TELL_MS:
                    told_at_ms = steady_ms() if self._tell_whom_it_waits_for() else told_at_ms
                self.portal.call(claims.release, IDLE_MS)

    def _tell_whom_it_waits_for(self) -> bool:
        """Report which drivers hold the remaining ranges. Returns whether any driver is known; while partitions move,
        none is.
        """
        try:
            members = self.portal.call(partial(list_members, self.access.catchup_group_id, **self.access.settings()))
        except AiogroupError:
            return False  # if the brokers have a problem, the next round needs them and raises it
        held = {each: len(set(each.partitions) & self.standing.keys()) for each in members}
        waits_for = tuple(
            f"{each.client_id} at {each.host}, which holds {held_count} partitions"
            for each, held_count in held.items()
            if held_count
        )
        if waits_for:
            self.on_progress(self._progress(waits_for))
        return bool(waits_for)

    def _progress(self, waits_for: tuple[str, ...] = ()) -> Progress:
        done_count = sum(map(count, self.so_far.done.values()))
        range_count = sum(len(each.ranges) for each in self.standing.values())
        elapsed_ms = steady_ms() - self.began_at_ms
        return Progress(self.so_far.record_count, done_count, self.left_count, range_count, elapsed_ms, waits_for)

    def _round(self, claims: Claims) -> bool:
        """Process one round of the claimed partitions; returns whether there was anything to do."""
        numbers = self.portal.call(claims.hold)
        try:
            # The token ids are read after the claim and before the first fetch. At the commit they must be the same.
            slices = self._cut(numbers)
            if slices:
                self._work_or_isolate(slices, partial(self._work, claims, numbers))
            return bool(slices)
        finally:
            self.portal.call(claims.release)

    def _cut(self, numbers: Mapping[TopicPartition, int]) -> Slices:
        standing, of_each = self.look(), self.slice_records
        grid = grid_of(self.round_records, of_each, len(standing.log_starts))
        slices = cut(standing, numbers, self.round_records, grid, slice_most=of_each, without=self.failed)
        self.rounds_count += 1
        left_count = sum(each.record_count for tp, each in standing.items() if tp in numbers)
        others_count = -(-left_count // max(1, sum(map(len, slices.values())))) - 1
        self.round_name = f"round {self.rounds_count} of {self.rounds_count + others_count}"
        return slices

    def _work_or_isolate(self, slices: Slices, work: Callable[[Slices], bool | Exception]) -> None:
        outcome = work(slices)
        if isinstance(outcome, Exception):
            if self.on_error == "stop":
                raise outcome
            failed = isolate(slices, outcome, work)
            self.so_far = replace(self.so_far, failed=(*self.so_far.failed, *failed))

    def _work(self, claims: Claims, numbers: Mapping[TopicPartition, int], slices: Slices) -> bool | Exception:
        """Process and commit these slices; returns whether any is durable, or the error of `process` or of Spark."""
        claimed = {tp: each for tp, each in self.standing.items() if tp in numbers}
        renewing = self.portal.start_task_soon(claims.renew, claimed, numbers)
        try:
            came = self._read(slices)
        finally:
            renewing.cancel()
        if isinstance(came, Exception):
            self.drops_in_a_row = 0
            return came
        is_durable = came is not None and self._commit(claims, numbers, slices, *came)
        self.drops_in_a_row = 0 if is_durable else self.drops_in_a_row + 1
        if self.drops_in_a_row == DROPS_IN_A_ROW:
            raise ClaimLostError(DROPS_IN_A_ROW) from self.overtaken_by
        return is_durable

    def _read(self, slices: Slices) -> tuple[int, Missing] | Exception | None:
        """Call `process` with the records, then count what it has read.

        Returns:
            The number of records, and what Kafka has at the other offsets. Or the error of `process` or of Spark. Or
                `None` if retention deleted records while they were read, so that the slices have to be cut again.

        Raises:
            AiogroupError: the job cannot go on.
        """
        missing = Missing(expired_count=sum(each.expired_count for each in slices.values()))
        pieces = [piece for each in slices.values() for piece in each.pieces]
        if not pieces:
            return 0, missing
        spark, offsets_count = self.session(), sum(map(len, pieces))
        with noticing_interrupts():
            reading = reading_of(spark, pieces, self.reading, self.task_records, self.reader)
            watched = (WatchedRemotely if is_remote(spark) else WatchedByListener)(spark, reading, self.keep)
        is_in_process, now = False, Current(self.access.group_id, _offsets(slices), self.keep)
        try:
            with (
                noticing_interrupts(),
                cancelled_on_error(spark, f"{self.round_name}: {described(slices)}, {offsets_count:,} offsets"),
                telling(spark, self.round_name, slices, self.on_round),
            ):
                kept = watched.kept()
                with watched:
                    is_in_process = True
                    with at_work(now):
                        self.process(watched.frame)
                    is_in_process = False
                counted = watched.count(kept)
        except Exception as error:
            # Where retention deletes all the time, it would explain every error of process: so the retries are limited.
            is_last = self.drops_in_a_row == DROPS_IN_A_ROW - 1
            if self._is_overtaken(slices, error) and (not is_last or _is_of_the_reader(error)):
                self.overtaken_by = error
                return None
            if isinstance(error, NotProcessedError) and not is_in_process:
                for undo in now.undo:  # or the next job would leave out what the table does not have
                    undo()
            if isinstance(error, AiogroupError) and not is_in_process:
                raise
            return error
        finally:
            watched.forget()
        if counted.missing is not None:
            return counted.records, missing + counted.missing
        found = self.portal.call(explain, self.reading, [(piece.tp, gap) for piece, gap in counted.gaps])
        unchecked_count = offsets_count - counted.records - found.total_count
        return counted.records, missing + found + Missing(unchecked_count=unchecked_count)

    def _is_overtaken(self, slices: Slices, error: Exception) -> bool:
        """Whether retention explains the error. Spark says only that it could not read; the bounds of the log say why.

        Raises:
            TopicRecreatedError, AiogroupError: another explanation, which is final.
        """
        try:
            standing = self.look()
        except AiogroupError as reason:
            if reason.retriable:
                return False  # brokers that cannot be reached do not explain the error
            raise reason from error
        former = {
            tp.topic for tp, each in slices.items() if standing.topic_ids[tp.topic] != each.pending.place.topic_id
        }
        if former:
            raise TopicRecreatedError(former) from error
        starts = {tp: each.log_start for tp, each in standing.items()}
        return any(starts.get(piece.tp, 0) > piece.start for each in slices.values() for piece in each.pieces)

    def _commit(
        self,
        claims: Claims,
        numbers: Mapping[TopicPartition, int],
        slices: Slices,
        records_count: int,
        missing: Missing,
    ) -> bool:
        """Commit the slices whose tokens are still the same as done; returns whether any is durable."""
        standing = self.look()
        entries = standing.entries({tp: (each.id, each.ranges) for tp, each in slices.items()})
        durable = self.portal.call(claims.commit, entries, numbers)
        self._note(slices, durable, records_count, missing)
        self.look()
        if durable:
            self.on_progress(self._progress())
        return bool(durable)

    def _note(
        self,
        slices: Slices,
        durable: frozenset[TopicPartition],
        records_count: int,
        missing: Missing,
    ) -> None:
        so_far = self.so_far
        if len(durable) < len(slices):  # the round was counted as a whole
            records_count, missing = min(records_count, sum(len(slices[tp]) for tp in durable)), Missing()
        done = {tp: union(so_far.done.get(tp, ()), slices[tp].ranges) for tp in durable}
        self.so_far = replace(
            so_far,
            record_count=so_far.record_count + records_count,
            done={**so_far.done, **done},
            missing=so_far.missing + missing,
            slice_count=so_far.slice_count + len(durable),
            dropped_count=so_far.dropped_count + len(slices) - len(durable),
        )


def _is_of_the_reader(error: BaseException) -> bool:
    """Whether the error comes from a Kafka reader. Spark says nothing more about records that could not be read."""
    causes = (error.__cause__, error.__context__)
    return any(name in str(error) for name in READERS) or any(
        each is not None and _is_of_the_reader(each) for each in causes
    )


def _offsets(slices: Slices) -> dict[LogId, Ranges]:
    """The offsets to read of these slices."""
    return {
        each.pending.place: tuple(Range(piece.start, piece.end) for piece in each.pieces) for each in slices.values()
    }
