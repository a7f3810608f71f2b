"""The checksum of batches, CRC-32C (Castagnoli), computed by the processor through the crc32c package."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

__all__ = ["crc32c"]


def _alone() -> Any:  # noqa: ANN401 (a module)
    """The package's extension module without the package itself; the package if it is built in another way.

    The package looks up its version and imports the modules of its command line, which takes 30 ms for one function.
    """
    package = find_spec("crc32c")
    inner = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations) if package else None
    if inner is None or inner.loader is None:
        import crc32c  # noqa: PLC0415 (says that it is not there)

        return crc32c
    module = module_from_spec(inner)
    inner.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _alone().crc32c
