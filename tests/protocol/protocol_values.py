"""Values of messages by chance, derived from their declarations."""

from __future__ import annotations

import uuid
from functools import cache
from typing import TYPE_CHECKING, Any

from aiogroup._core.protocol.schema import Array, Nested, Scalar, Spec, specs

if TYPE_CHECKING:
    from random import Random

_BITS = {Scalar.INT8: 8, Scalar.INT16: 16, Scalar.INT32: 32, Scalar.INT64: 64}
# One, two, three and four bytes in UTF-8, and the edges of them.
_LETTERS = "a\0\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffffé€😀"
# Behind 62 and 126 a length takes a byte more as a varint, behind 127 a compact one does.
_LENGTHS = (0, 1, 1, 2, 3, 12, 62, 63, 64, 126, 127, 128)


def value(rng: Random, structure: type[Any], version: int) -> Any:
    """A structure that `version` can carry: fields it lacks are at their default."""
    return structure(
        **{
            spec.name: _of(rng, spec.type, version, nullable=spec.is_nullable(version))
            for spec in _carried(structure, version)
        }
    )


@cache
def _carried(structure: type[Any], version: int) -> list[Spec]:
    return [spec for spec in specs(structure) if spec.in_version(version)]


def _of(rng: Random, type_: Any, version: int, *, nullable: bool = False) -> Any:
    if nullable and rng.random() < 0.3:
        return None
    if isinstance(type_, Array):
        return tuple(_of(rng, type_.element, version) for _ in range(rng.randrange(3)))
    if isinstance(type_, Nested):
        return value(rng, type_.type, version)
    if type_ in _BITS:
        most = 1 << _BITS[type_] - 1
        return rng.choice((0, 1, -1, most - 1, -most, rng.randrange(-most, most)))
    if type_ is Scalar.BOOLEAN:
        return rng.random() < 0.5
    if type_ is Scalar.UUID:
        return uuid.UUID(int=rng.choice((1, (1 << 128) - 1, rng.randrange(1, 1 << 128))))  # zero is none at all
    if type_ is Scalar.STRING:
        # Empty strings are a golden variant, and as a topic's name they are refused.
        return "".join(rng.choices(_LETTERS, k=max(1, rng.choice(_LENGTHS))))
    return rng.randbytes(rng.choice(_LENGTHS))
