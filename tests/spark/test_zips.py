"""What a task does for the next one on its worker: no zip file is read anew without need."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from aiogroup.spark.source.zips import forget_zips

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="later versions read a zip file when they need it")


def write(path, **modules):
    with zipfile.ZipFile(f"{path}.new", "w") as archive:
        for name, code in modules.items():
            archive.writestr(f"{name}.py", code)
    Path(f"{path}.new").replace(path)


def test_no_zip_file_is_read_when_caches_are_invalidated_and_imports_go_on(tmp_path, monkeypatch):
    path = tmp_path / "modules.zip"
    write(path, zipped_one="NUMBER = 1", zipped_two="NUMBER = 2")
    monkeypatch.setattr(sys, "path", [str(path), *sys.path])
    assert importlib.import_module("zipped_one").NUMBER == 1
    asked = []
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", lambda self: asked.append(self.archive))
    importlib.invalidate_caches()
    assert str(path) in asked  # beside those of other tests
    asked.clear()
    forget_zips()
    importlib.invalidate_caches()
    assert asked == []
    assert importlib.import_module("zipped_two").NUMBER == 2


def test_a_zip_file_that_was_replaced_is_read_anew(tmp_path, monkeypatch):
    path = tmp_path / "replaced.zip"
    write(path, zipped_three="NUMBER = 3")
    monkeypatch.setattr(sys, "path", [str(path), *sys.path])
    assert importlib.import_module("zipped_three").NUMBER == 3
    forget_zips()
    write(path, zipped_padding="#" * 5_000, zipped_four="NUMBER = 4")
    importlib.invalidate_caches()
    assert importlib.import_module("zipped_four").NUMBER == 4
