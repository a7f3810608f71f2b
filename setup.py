"""Only what pyproject.toml has no stable words for: the C of aiogroup/native. Without a compiler it is left out."""

from setuptools import Extension, setup

NATIVE = "aiogroup/native"

setup(
    ext_modules=[
        Extension(
            "aiogroup.native._native",
            sources=[
                f"{NATIVE}/{name}.c"
                for name in ("module", "record", "wire", "reader", "extent", "cursor", "merge", "frame", "value")
            ],
            depends=[f"{NATIVE}/native.h"],
            extra_compile_args=["-O3", "-Wall"],
            optional=True,
        )
    ]
)
