"""Where the command writes records: Parquet files, or a function of the application."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aiogroup.errors import ConfigError
from aiogroup.spark.reading import SLICE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["load_function", "to_parquet"]


def to_parquet(path: str) -> Callable[[DataFrame], None]:
    """A `process` for `drain` that writes each slice into a folder of its own, `path/slice=TOPIC-PARTITION-START-END`.

    A repeated slice replaces the files that a killed attempt left. Several drivers may write into one path.
    """

    def write(frame: DataFrame) -> None:
        writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(SLICE).parquet(path)

    return write


def load_function(name: str) -> Callable[[DataFrame], object]:
    """The function that `module:function` names. Modules are also looked for in the current folder.

    Raises:
        ConfigError: there is no such function.
    """
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name:
        raise ConfigError(f"{name!r}: module:function is needed, say jobs.orders:process")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:
        raise ConfigError(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{name!r} is no function; give one that takes a DataFrame")
    function: Callable[[DataFrame], object] = found
    return function
