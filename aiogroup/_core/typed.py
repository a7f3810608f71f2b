"""The type parameters of `Consumer`, `Record` and their like: what the deserializers of keys and values return.

`Consumer[str, Order]` reads keys as `str` and values as `Order`; without a deserializer they are `bytes`. For type
checkers alone: at run time nothing is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Generic", "K", "V"]

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes, covariant=True)  # noqa: PLC0105 (it is read in editors and docs)
    V = TypeVar("V", default=bytes, covariant=True)  # noqa: PLC0105
else:
    from types import GenericAlias
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

    class Generic:
        """Makes a class subscriptable. `typing.Generic` would refuse `Consumer[str]`, as its `V` has no default."""

        __slots__ = ()
        __class_getitem__ = classmethod(GenericAlias)
