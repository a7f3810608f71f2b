"""Keeps PySpark's processes from reading the directories of zip files again for each task."""

from __future__ import annotations

import sys
import zipimport

__all__ = ["forget_zips"]


def forget_zips() -> None:
    """Call it at the end of a task in a Python process of PySpark.

    PySpark calls `importlib.invalidate_caches()` when a task begins. Python before 3.12 then reads the directory of
    each zip file in `sys.path` that has an importer (0.1 s for pyspark.zip). This drops these importers; Python makes a
    new one when it needs it.
    """
    if sys.version_info < (3, 12):
        for path, importer in tuple(sys.path_importer_cache.items()):
            if isinstance(importer, zipimport.zipimporter):
                sys.path_importer_cache.pop(path, None)
                zipimport._zip_directory_cache.pop(importer.archive, None)  # type: ignore[attr-defined]
