"""Checks over Spark Connect that an action of the application has read every record."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from aiogroup.spark.errors import NotProcessedError
from aiogroup.spark.readers import Counted, Reading
from aiogroup.spark.watched import NO_ACTION, Watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["WatchedRemotely"]


class WatchedRemotely(Watched):
    """`Watched` over Spark Connect. The server sends the observed metrics with the answer to each action that succeeds,
    and the client keeps them in the `Observation` until the next such answer. So the `Observation` is read whenever an
    operation ends.

    With `keep` nothing is observed: then it is known only whether there was any operation.
    """

    def __init__(self, spark: SparkSession, reading: Reading, keep: str | None = None) -> None:
        super().__init__(spark, reading, keep)
        self._ran_any = False
        self._rows: set[tuple[int, ...]] = set()
        self._last: dict[str, Any] = {}
        observed = reading.raw
        if keep is None:
            from pyspark.sql.connect.observation import Observation  # noqa: PLC0415 (an extra)

            observation = Observation(f"aiogroup-{uuid4().hex[:8]}")
            observed = observed.observe(observation, *reading.metrics())  # type: ignore[arg-type]
            self._last = observation.get
        self.frame = reading.shown(observed)

    def __enter__(self) -> Self:
        self._spark.registerProgressHandler(self._notice)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._spark.removeProgressHandler(self._notice)

    def _notice(self, *_: object, done: bool, **__: object) -> None:
        """Spark calls this while an operation runs, and at its end."""
        if done:
            self._ran_any = True
            if self._last:
                self._rows.add(tuple(int(self._last[name]) for name in self._reading.names))

    def count(self, kept: Counted | None) -> Counted:
        if not self._ran_any and (kept is None or kept.records):
            raise NotProcessedError(NO_ACTION)
        if kept is not None:
            return kept
        seen = max(map(self._reading.counted, self._rows), key=attrgetter("units"), default=None)
        if seen is not None and seen.units == self._reading.units_count:
            return seen
        counted = self._counted_again()
        most = 0 if seen is None else seen.units
        if most < counted.units:
            raise NotProcessedError(
                self._too_few(most, counted) + "Spark Connect does not tell what is read by a statement of SQL, MERGE "
                'among them, or by a join that leaves nothing: then give keep, for example keep="MEMORY_AND_DISK"'
            )
        return counted
