"""Only what pyproject.toml has no stable words for: the C of aiogroup/_core/native. Without a compiler, or with
AIOGROUP_PURE_PYTHON=1 in the environment, it is left out.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = "aiogroup/_core/native"
SOURCES = ("module", "record", "wire", "reader", "columns", "extent", "cursor", "merge", "frame", "maker", "fetch")


class BuildExtension(build_ext):
    """An optional extension that could not be compiled leaves nothing of an earlier build behind."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            raise


class BuildWheel(bdist_wheel):
    """A wheel without the compiled C is tagged as what it is: Python alone, for every version and machine."""

    def run(self) -> None:
        self.run_command("build")
        if not any(Path(path).exists() for path in self.get_finalized_command("build_ext").get_outputs()):
            self.distribution.ext_modules = None
            self.root_is_pure = True
        super().run()


COMPILED = Extension(
    "aiogroup._core.native._native",
    sources=[f"{NATIVE}/{name}.c" for name in SOURCES],
    depends=[f"{NATIVE}/native.h"],
    extra_compile_args=["-O3", "-Wall", "-Wextra"],
    optional=True,
)
setup(
    cmdclass={"build_ext": BuildExtension, "bdist_wheel": BuildWheel},
    ext_modules=[] if os.environ.get("AIOGROUP_PURE_PYTHON") else [COMPILED],
)
