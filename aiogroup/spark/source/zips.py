"""Keeps PySpark's processes from reading the directories of zip files again for each task."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["forgetting"]


def forgetting() -> Callable[[], None]:
    """A function to call at the end of a task in a Python process of PySpark; pickle sends it by value.

    PySpark calls `importlib.invalidate_caches()` when a task begins. Python before 3.12 then reads the directory of
    each zip file in `sys.path` that has an importer (0.1 s for pyspark.zip). The function drops these importers; Python
    makes a new one when it needs it.
    """

    def forget_zips() -> None:
        import sys  # noqa: PLC0415 (of the process that it is in)
        import zipimport  # noqa: PLC0415 (likewise)

        if sys.version_info < (3, 12):
            for path, importer in tuple(sys.path_importer_cache.items()):
                if isinstance(importer, zipimport.zipimporter):
                    sys.path_importer_cache.pop(path, None)
                    zipimport._zip_directory_cache.pop(importer.archive, None)  # type: ignore[attr-defined]

    return forget_zips
