"""What a task does for the next one on its worker: no zip file is read anew without need."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport

from aiogroup.spark.source.zips import forgetting


def test_no_zip_file_is_read_when_caches_are_invalidated_and_imports_go_on(tmp_path, monkeypatch):
    path = tmp_path / "modules.zip"
    with zipfile.ZipFile(path, "w") as modules:
        modules.writestr("zipped_one.py", "NUMBER = 1")
        modules.writestr("zipped_two.py", "NUMBER = 2")
    monkeypatch.setattr(sys, "path", [str(path), *sys.path])
    assert importlib.import_module("zipped_one").NUMBER == 1
    asked = []
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", lambda self: asked.append(self.archive))
    importlib.invalidate_caches()
    assert asked == [str(path)]
    forgetting()()
    importlib.invalidate_caches()
    assert asked == [str(path)]
    assert importlib.import_module("zipped_two").NUMBER == 2
