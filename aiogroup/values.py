"""`@dataclass(frozen=True, slots=True)` at a tenth of its cost, for aiogroup's messages, facts and events.

`dataclasses.dataclass` compiles the source of six functions for each class, which takes 0.4 ms: importing aiogroup
would take longer for that than for everything else. Here the functions of a class are made from functions that are
compiled already. The fields are those of `dataclasses`, which therefore treats such a class as one of its own:
`fields`, `replace`, `asdict`, `match`, pickling and type checkers work.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """A frozen class with slots. Its fields may have defaults; other options of `field` are refused."""
        if not (frozen and slots):
            raise TypeError("only frozen classes with slots are made here: take dataclasses.dataclass")
        return _made


def _made(cls: type) -> type:
    """A new class in place of `cls`, as `dataclasses` makes one too: slots cannot be added to a class."""
    if hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__qualname__}: __post_init__ is not called here: take dataclasses.dataclass")
    for base in cls.__mro__[1:]:
        if dataclasses.is_dataclass(base) and dataclasses.fields(base):
            raise TypeError(f"{cls.__qualname__}: {base.__qualname__} has fields, which are not inherited here")
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    fields = {
        name: _field(name, said, own.pop(name, dataclasses.MISSING))  # slots take the place of the defaults
        for name, said in (own.get("__annotations__") or inspect.get_annotations(cls)).items()
        if "ClassVar" not in str(said)
    }
    names = tuple(fields)
    made = {
        "__dataclass_fields__": fields,
        "__dataclass_params__": _PARAMS,
        "__doc__": cls.__doc__ or f"{cls.__name__}({', '.join(names)})",
        "__match_args__": names,
        "__slots__": names,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }
    functions = _functions(cls, tuple(fields.values()))
    return type(cls)(cls.__name__, cls.__bases__, {**functions, "__repr__": _show, **own, **made})


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Pattern:
    """What `dataclasses` makes of a class is looked up here."""

    field: object


_KIND: Final = dataclasses.fields(_Pattern)[0]._field_type  # type: ignore[attr-defined]
_PARAMS: Final = vars(_Pattern)["__dataclass_params__"]
_PARAMS.init = _PARAMS.repr = _PARAMS.eq = _PARAMS.frozen = True


def _field(name: str, said: Any, given: Any) -> dataclasses.Field[Any]:  # noqa: ANN401 (an annotation, and a default)
    """What `dataclasses` makes of it, which looks at each annotation for `ClassVar` and the like three times."""
    made: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
    made.name, made.type, made.kw_only, made._field_type = name, said, made.kw_only is True, _KIND
    field: dataclasses.Field[Any] = made
    return field


def _functions(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> dict[str, FunctionType]:
    missing = dataclasses.MISSING
    defaults = tuple(field.default for field in fields if field.default is not missing)
    for place, field in enumerate(fields):
        is_required = place < len(fields) - len(defaults)
        is_plain = field.init and field.repr and field.compare and not field.kw_only
        if not is_plain or field.default_factory is not missing or is_required != (field.default is missing):
            raise TypeError(f"{cls.__qualname__}.{field.name}: only defaults, of the last fields, are known here")
    named = {f"field_{place}": field.name for place, field in enumerate(fields)}
    made = {name: FunctionType(_renamed(code, named), _GLOBALS) for name, code in _code(len(fields)).items()}
    made["__init__"].__defaults__ = defaults
    for name, function in made.items():
        function.__qualname__ = f"{cls.__qualname__}.{name}"
    return made


_GLOBALS: Final = {"set_field": object.__setattr__}


@cache
def _code(count: int) -> dict[str, CodeType]:
    """Functions for `count` fields. The names of the fields are exchanged in their code, as compiling is slow."""
    names = [f"field_{place}" for place in range(count)]
    mine, others = ("".join(f"{whose}.{name}, " for name in names) for whose in ("self", "other"))
    source = f"""
def __init__(self, {", ".join(names)}):
    {"; ".join(f"set_field(self, {name!r}, {name})" for name in names) or "pass"}
def __eq__(self, other):
    return ({mine}) == ({others}) if other.__class__ is self.__class__ else NotImplemented
def __hash__(self):
    return hash(({mine}))
"""
    made: dict[str, Any] = {}
    exec(source, made)  # noqa: S102 (no foreign text is in it)
    return {name: made[name].__code__ for name in ("__init__", "__eq__", "__hash__")}


def _renamed(code: CodeType, named: dict[str, str]) -> CodeType:
    return code.replace(
        co_varnames=tuple([named.get(name, name) for name in code.co_varnames]),
        co_names=tuple([named.get(name, name) for name in code.co_names]),
        co_consts=tuple([named.get(const, const) for const in code.co_consts]),
    )


def _show(self: Any) -> str:  # noqa: ANN401 (a class that is made here, or one that inherits from it)
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self))
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:  # noqa: ANN401
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:  # noqa: ANN401
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
