"""Where the C is not used, the package works all the same, and says why and what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import aiogroup
from aiogroup._core import native
from aiogroup._core.native.diagnosis import REINSTALL, why_not_compiled

ROOT = Path(__file__).parents[2]
EXTENSION = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"


@pytest.fixture
def site(tmp_path):
    """A folder with a copy of the package that was not compiled."""
    kept_out = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT / "aiogroup", tmp_path / "site/aiogroup", ignore=kept_out)
    return tmp_path / "site"


def versions(site, cwd=None, **variables):
    """What `python -m aiogroup` prints where only the package of `site`, and those that it needs, are on the path."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, [site, *packages]))}
    command = [sys.executable, "-S", "-m", "aiogroup"]
    return subprocess.run(
        command, cwd=cwd or site.parent, env=given | variables, capture_output=True, text=True, check=True
    ).stdout


def test_what_was_switched_off_is_reported(site):
    told = versions(site, AIOGROUP_PURE_PYTHON="1")
    assert f"\nPython {sys.version_info.major}.{sys.version_info.minor}." in told
    assert "AIOGROUP_PURE_PYTHON is set in the environment\nwhat to do: unset AIOGROUP_PURE_PYTHON\n" in told


def test_an_extension_that_cannot_be_imported_is_reported_with_the_error_and_does_without(site):
    (site / "aiogroup/_core/native" / EXTENSION).write_bytes(b"compiled for something else")
    told = versions(site)
    assert re.search(rf"could not be imported: .*{re.escape(EXTENSION)}.*\nwhat to do: install aiogroup again", told)


def test_an_extension_that_is_older_than_the_package_is_reported(site):
    older = sorted(set(native.__all__) - {"IMPORT_ERROR", "IS_COMPILED", "write_fetch"})
    (site / "aiogroup/_core/native/_native.py").write_text(f"{' = '.join(older)} = None\n")
    assert "could not be imported: cannot import name 'write_fetch'" in versions(site)


def test_the_command_to_install_it_again_can_be_typed(tmp_path):
    """Every option is one of pip's, and what to install is named: an index need not have aiogroup."""
    (tmp_path / "aiogroup-1.0.tar.gz").touch()
    command = re.search(r": pip (install .+?)(?:, where|$)", REINSTALL)[1].replace("SOURCES", "aiogroup-1.0.tar.gz")
    ended = subprocess.run(
        [sys.executable, "-m", "pip", *command.split(), "--dry-run", "--no-index"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Processing ./aiogroup-1.0.tar.gz" in ended.stdout, ended.stderr


def test_an_extension_for_another_python_is_reported(site):
    (site / "aiogroup/_core/native/_native.cpython-39-x86_64-linux-gnu.so").touch()
    told = versions(site)
    assert "compiled for another Python (_native.cpython-39-x86_64-linux-gnu.so)" in told
    assert sys.implementation.cache_tag in told


def test_a_clone_that_hides_the_installed_package_is_reported(site, tmp_path):
    installed = tmp_path / "installed"
    shutil.copytree(site, installed)
    (installed / "aiogroup/_core/native" / EXTENSION).touch()
    told = versions(installed, cwd=site)
    assert f"{site / 'aiogroup'} was not compiled, and hides {installed / 'aiogroup'}" in told
    assert "start Python from another folder" in told


def test_what_was_missing_when_it_was_installed_is_reported(site, monkeypatch, tmp_path):
    monkeypatch.setattr(native, "IS_COMPILED", False)
    monkeypatch.setattr(native, "IMPORT_ERROR", ModuleNotFoundError("none", name="aiogroup._core.native._native"))
    monkeypatch.setattr(native, "__file__", str(site / "aiogroup/_core/native/__init__.py"))
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))

    monkeypatch.setenv("CC", "no-such-compiler -O2")
    told = why_not_compiled()
    assert told.why.endswith("was not compiled when aiogroup was installed: there is no C compiler (no-such-compiler)")
    assert re.match(r"install one \(Debian: .*\), then install aiogroup again", told.what_to_do)

    monkeypatch.setenv("CC", sys.executable)
    told = why_not_compiled()
    assert told.why.endswith(f"{tmp_path / 'Python.h'} is missing")
    assert "dev), then install aiogroup again" in told.what_to_do

    (tmp_path / "Python.h").touch()
    told = why_not_compiled()
    assert told.why.endswith("was installed; what it takes is here now")
    assert told.what_to_do.startswith("install aiogroup again")


def test_nothing_is_reported_where_it_is_compiled(monkeypatch):
    monkeypatch.setattr(native, "IS_COMPILED", True)
    assert why_not_compiled() is None


def test_the_version_is_the_installed_one(site):
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*|0\+unknown", aiogroup.__version__)
    installed = site / "aiogroup-7.8.9.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: aiogroup\nVersion: 7.8.9\n")
    assert versions(site).startswith(f"aiogroup 7.8.9 in {site / 'aiogroup'}\n")


def test_other_names_are_still_unknown():
    with pytest.raises(AttributeError, match="'aiogroup' has no attribute 'Consmer'"):
        aiogroup.Consmer  # noqa: B018 (asking is what raises)


def test_only_the_demo_has_to_be_started_from_the_clone():
    """`python -m examples.x` would import the clone's package, compiled or not, in place of the installed one."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.py")]
    named = {name for page in pages for name in re.findall(r"-m examples\.(\w+)", page.read_text())}
    assert named <= {"demo"}
    for path in ROOT.glob("examples/*.py"):
        assert "import examples" not in path.read_text(), path
        assert "from examples" not in path.read_text(), path
