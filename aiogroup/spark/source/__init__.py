"""`spark.read.format("aiogroup")`: pending ranges as a data source of Spark, read by aiogroup's own consumer."""

from aiogroup.spark.session import check_installed, check_pyspark

check_pyspark()
check_installed("pyarrow")

from aiogroup.spark.source.batch import AiogroupDataSource, PendingDataSource  # noqa: E402 (they need PySpark)
from aiogroup.spark.source.stream import settle  # noqa: E402

__all__ = ["AiogroupDataSource", "PendingDataSource", "settle"]
