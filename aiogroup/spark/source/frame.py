"""Pieces as a DataFrame of the data source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiogroup.properties import consumer_settings
from aiogroup.spark.access import Access
from aiogroup.spark.session import slots_of
from aiogroup.spark.slices import Piece
from aiogroup.spark.source.batch import AiogroupDataSource
from aiogroup.spark.source.options import RANGES, TASK_RECORDS, WITH_HELD, ranges_as_text
from aiogroup.spark.source.tasks import task_records as records_of_a_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["load"]


def load(
    spark: SparkSession,
    pieces: Sequence[Piece],
    access: Access,
    task_records: int | None,
    *,
    with_held: bool = True,
) -> DataFrame:
    """The records of these pieces; `with_held` also the rows that say what their offsets hold."""
    spark.dataSource.register(AiogroupDataSource)
    most = task_records or records_of_a_task(sum(map(len, pieces)), slots_of(spark))
    return (
        spark.read.format(AiogroupDataSource.name())
        .options(**_known(access.properties))
        .options(
            **{
                "bootstrap.servers": access.bootstrap_servers,
                "isolation.level": access.config().isolation_level,
                "group": access.group_id,
                "topics": ",".join(access.topics),
                RANGES: ranges_as_text(tuple(pieces)),
                TASK_RECORDS: str(most),
                WITH_HELD: "true" if with_held else "false",
            }
        )
        .load()
    )


def _known(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that mean something to a consumer. A file may have others, and a group that is not the service's."""
    _, ignored = consumer_settings(properties)
    return {key: text for key, text in properties.items() if key not in (*ignored, "group.id", "bootstrap.servers")}
