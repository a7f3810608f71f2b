"""`@dataclass(frozen=True, slots=True)` at a tenth of its cost: how aiogroup's messages, facts and events are made.

`dataclasses.dataclass` compiles the source of six functions for each class, 0.4 ms in all: importing aiogroup would
take longer for that than for everything else. Here the functions of a class are made from functions that are compiled
already. Its fields are those of `dataclasses`, which therefore knows such a class as one of its own: `fields`,
`replace`, `asdict`, `match`, pickling and type checkers work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """A frozen class with slots. Its fields may have defaults; whatever else `field` can do is refused."""
        if not (frozen and slots):
            raise TypeError("only frozen classes with slots are made here: take dataclasses.dataclass")
        return _made


def _made(cls: type) -> type:
    """The class anew, as `dataclasses` does for the sake of its slots."""
    for base in cls.__mro__[1:]:
        if dataclasses.is_dataclass(base) and dataclasses.fields(base):
            raise TypeError(f"{cls.__qualname__}: {base.__qualname__} has fields, which are not inherited here")
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    # Without the bases: of a frozen one dataclasses would demand frozen heirs, and compile two functions for each.
    plain: type[Any] = type(cls.__name__, (), {**own, "__doc__": "-"})  # for want of one a signature would be made
    plain = dataclasses.dataclass(init=False, repr=False, eq=False)(plain)
    fields = dataclasses.fields(plain)
    names = tuple(field.name for field in fields)
    made = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__")}
    params = made["__dataclass_params__"]
    params.init = params.repr = params.eq = params.frozen = True
    for name in names:
        made.pop(name, None)  # its default, where its slot will be
    made |= {
        "__doc__": cls.__doc__ or f"{cls.__name__}({', '.join(names)})",
        "__slots__": names,
        "__init__": _init(cls, fields),
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }
    return type(cls)(cls.__name__, cls.__bases__, _compared_and_shown(names) | made)


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> FunctionType:
    missing = dataclasses.MISSING
    defaults = tuple(field.default for field in fields if field.default is not missing)
    for place, field in enumerate(fields):
        is_required = place < len(fields) - len(defaults)
        is_plain = field.init and field.repr and field.compare and not field.kw_only
        if not is_plain or field.default_factory is not missing or is_required != (field.default is missing):
            raise TypeError(f"{cls.__qualname__}.{field.name}: only defaults, of the last fields, are known here")
    code = _init_code(len(fields))
    named = {f"field_{place}": field.name for place, field in enumerate(fields)}
    code = code.replace(
        co_varnames=tuple(named.get(name, name) for name in code.co_varnames),
        co_consts=tuple(named.get(const, const) for const in code.co_consts),
    )
    init = FunctionType(code, _GLOBALS, "__init__", defaults)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


_GLOBALS: Final = {"set_field": object.__setattr__}


@cache
def _init_code(count: int) -> CodeType:
    """An `__init__` that sets `count` fields. Their names are exchanged in it, as compiling is what takes the time."""
    names = [f"field_{place}" for place in range(count)]
    body = "; ".join(f"set_field(self, {name!r}, {name})" for name in names)
    made: dict[str, Any] = {}
    exec(f"def __init__(self, {', '.join(names)}): {body or 'pass'}", made)  # noqa: S102 (nothing in it is another's)
    code: CodeType = made["__init__"].__code__
    return code


def _compared_and_shown(names: tuple[str, ...]) -> dict[str, Any]:
    values = _values(names)

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 (it becomes one)
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    def __repr__(self: object) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(names, values(self), strict=True))
        return f"{self.__class__.__qualname__}({shown})"

    return {"__eq__": __eq__, "__hash__": __hash__, "__repr__": __repr__}


def _values(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:  # noqa: ANN401 (any class that is made here, or inherits from one)
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:  # noqa: ANN401
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
