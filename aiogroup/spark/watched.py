"""A DataFrame of pieces, and whether the application has read all of it: the part that both kinds of sessions share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Self

from aiogroup.spark.errors import IncompleteError
from aiogroup.spark.readers import Counted, Reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NO_ACTION", "Watched"]

NO_ACTION: Final = "process returned without an action on its DataFrame: write it, or run foreach"


class Watched(ABC):
    """Pieces as a DataFrame, `frame`, and how much of it the actions inside `with watched:` read.

    With `keep`, the name of a storage level, the records are read once, kept by Spark, and counted beforehand.

    Raises:
        IncompleteError: there are more records than offsets.
    """

    frame: DataFrame

    def __init__(self, spark: SparkSession, reading: Reading, keep: str | None = None) -> None:
        from pyspark.storagelevel import StorageLevel  # noqa: PLC0415 (an extra)

        self._spark = spark
        self._reading = reading
        self._level = None if keep is None else getattr(StorageLevel, keep)

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...

    def forget(self) -> None:
        """Let Spark drop the records."""
        if self._level is not None:
            self._reading.raw.unpersist()

    def kept(self) -> Counted | None:
        """Read the records to keep, and count them; `None` without `keep`."""
        if self._level is None:
            return None
        self._reading.raw.persist(self._level)
        return self._counted_again()

    @abstractmethod
    def count(self, kept: Counted | None) -> Counted:
        """The count, once the records are processed. `kept` is what `kept()` gave.

        One action must have read each record of the DataFrame, whatever else was run. To read more than there are is no
        fault: Spark reads again what a lost executor had.

        Raises:
            NotProcessedError: nothing was run on the DataFrame, or no action read all of it.
            IncompleteError: there are more records than offsets.
        """

    def _counted_again(self) -> Counted:
        counted = self._reading.count_again()
        if counted.units > self._reading.units_count:
            most = self._reading.units_count
            raise IncompleteError(
                f"{counted.units} {self._reading.units} came out of {most} offsets: run the job again"
            )
        return counted

    def _too_few(self, most: int, counted: Counted) -> str:
        return (
            f"no action of process is known to have read more than {max(0, most)} of the {counted.units} "
            f"{self._reading.units} of its DataFrame: let one be over all of them (write, foreachPartition). "
        )
