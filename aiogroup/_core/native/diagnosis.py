"""Finds out why records are decoded in Python and not by the C, and what to do about it. Imported only when needed."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

from aiogroup._core import native
from aiogroup._core.values import dataclass

__all__ = ["NotCompiled", "why_not_compiled"]

EXTENSION: Final = "aiogroup._core.native._native"
REINSTALL: Final = (
    "install aiogroup again from its sources, without pip's cache: "
    "pip install --force-reinstall --no-deps --no-cache-dir --no-binary aiogroup SOURCES, where SOURCES is the file "
    "aiogroup-VERSION.tar.gz or the folder of a clone"
)
"""A name instead of SOURCES would need an index that has aiogroup. With one, pip would take the wheel without the C
where no other fits, but for `--no-binary`."""


@dataclass(frozen=True, slots=True)
class NotCompiled:
    """`why` the C is not used, and `what_to_do` to have it used."""

    why: str
    what_to_do: str


def why_not_compiled() -> NotCompiled | None:
    """The reason why the C is not used; `None` if it is used."""
    if native.IS_COMPILED:
        return None
    error = native.IMPORT_ERROR
    if error is None:
        return NotCompiled("AIOGROUP_PURE_PYTHON is set in the environment", "unset AIOGROUP_PURE_PYTHON")
    if not isinstance(error, ModuleNotFoundError) or error.name != EXTENSION:
        return NotCompiled(f"the C extension could not be imported: {error}", REINSTALL)
    here = Path(native.__file__).parents[2]
    for folder in sys.path:
        there = Path(folder or ".").resolve() / here.name
        if there != here and _compiled_in(there):
            return NotCompiled(
                f"{here} was not compiled, and hides {there}, which is installed and compiled",
                "start Python from another folder: `python examples/hello_group.py` does not look into the folder that "
                "you are in, `python -m examples.hello_group` does",
            )
    if others := _compiled_in(here):
        return NotCompiled(
            f"the C extension was compiled for another Python ({', '.join(others)}) than this one, "
            f"{sys.implementation.cache_tag} on {sysconfig.get_platform()}",
            REINSTALL,
        )
    missing, what_to_do = _missing_now()
    return NotCompiled(f"the C extension was not compiled when aiogroup was installed{missing}", what_to_do)


def _compiled_in(package: Path) -> list[str]:
    return sorted(path.name for path in package.glob("_core/native/_native.*") if path.suffix in (".so", ".pyd"))


def _missing_now() -> tuple[str, str]:
    """What a build would lack now, and what to do about it: the same was probably missing when aiogroup was
    installed.
    """
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if os.name != "nt" and shutil.which(compiler) is None:
        return f": there is no C compiler ({compiler})", f"install one (Debian: apt-get install gcc), then {REINSTALL}"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f": {headers} is missing", f"install it (Debian: apt-get install python{version}-dev), then {REINSTALL}"
    return "; what it takes is here now", REINSTALL
