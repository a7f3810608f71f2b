"""Hypothesis strategies for messages, derived from their declarations."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from aiogroup.protocol.codec import ZERO_UUID
from aiogroup.protocol.schema import Array, Nested, Scalar, specs

_BITS = {Scalar.INT8: 8, Scalar.INT16: 16, Scalar.INT32: 32, Scalar.INT64: 64}
_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@cache
def structures(structure: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Values that `version` can carry: fields it lacks are at their default."""
    here = [spec for spec in specs(structure) if spec.in_version(version)]
    values = st.tuples(*(_values(spec.type, version, nullable=spec.is_nullable(version)) for spec in here))
    names = [spec.name for spec in here]
    return values.map(lambda drawn: structure(**dict(zip(names, drawn, strict=True))))


def _values(type_: Any, version: int, *, nullable: bool) -> st.SearchStrategy[Any]:
    values = _present(type_, version)
    return st.none() | values if nullable else values


def _present(type_: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(type_, Array):
        return st.lists(_present(type_.element, version), max_size=2).map(tuple)
    if isinstance(type_, Nested):
        return structures(type_.type, version)
    if type_ in _BITS:
        bits = _BITS[type_]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    if type_ is Scalar.BOOLEAN:
        return st.booleans()
    if type_ is Scalar.UUID:
        return st.uuids().filter(lambda value: value != ZERO_UUID)
    if type_ is Scalar.STRING:
        return _TEXT.filter(bool)  # empty strings are a golden variant, and as a topic's name they are refused
    return st.binary(max_size=20)
