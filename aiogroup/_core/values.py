"""`@dataclass(frozen=True, slots=True)` at a tenth of its cost, for aiogroup's messages, facts and events.

`dataclasses.dataclass` compiles the source of six functions for each class, which takes 0.4 ms: importing aiogroup
would take longer for that than for everything else. Here the functions of a class are made from functions that are
compiled already. The fields are those of `dataclasses`, which therefore treats such a class as one of its own:
`fields`, `replace`, `asdict`, `match`, pickling and type checkers work.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """A frozen class with slots. Its fields may have defaults and `repr=False`; other options are refused."""
        if not (frozen and slots):
            raise TypeError("only frozen classes with slots are made here: take dataclasses.dataclass")
        return partial(_with_functions, kw_only=kw_only)


def _with_functions(cls: type, *, kw_only: bool) -> type:
    """A new class in place of `cls`, as `dataclasses` makes one too: slots cannot be added to a class."""
    for base in cls.__mro__[1:]:
        if dataclasses.is_dataclass(base) and dataclasses.fields(base):
            raise TypeError(f"{cls.__qualname__}: {base.__qualname__} has fields, which are not inherited here")
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    for name in sorted(_OURS & own.keys()):  # a class with __eq__ has a __hash__, too, which is None
        raise TypeError(f"{cls.__qualname__}.{name} would be lost here: take dataclasses.dataclass")
    fields = {
        # slots take the place of the defaults
        name: _field(name, said, own.pop(name, _MISSING), kw_only=kw_only)
        for name, said in (own.get("__annotations__") or inspect.get_annotations(cls)).items()
        if not str(said).startswith(("ClassVar", "typing.ClassVar"))
    }
    names = tuple(fields)
    given = {
        "__dataclass_fields__": fields,
        "__dataclass_params__": _PARAMS,
        "__doc__": cls.__doc__ or f"{cls.__name__}({', '.join(names)})",
        "__match_args__": () if kw_only else names,
        "__qualname__": cls.__qualname__,
        "__slots__": names,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }
    if hasattr(dataclasses, "_replace"):  # from Python 3.13 on, for copy.replace
        given["__replace__"] = dataclasses._replace
    functions = _functions(cls, tuple(fields.values()), kw_only=kw_only)
    return type(cls)(cls.__name__, cls.__bases__, {**functions, "__repr__": _show, **own, **given})


_OURS: Final = {"__eq__", "__hash__", "__init__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"}


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Pattern:
    """What `dataclasses` makes of a class is looked up here."""

    field: object


_MISSING: Final = dataclasses.MISSING
_KIND: Final = dataclasses.fields(_Pattern)[0]._field_type  # type: ignore[attr-defined]
_PARAMS: Final = vars(_Pattern)["__dataclass_params__"]
_PARAMS.init = _PARAMS.repr = _PARAMS.eq = _PARAMS.frozen = True


def _field(name: str, said: Any, given: Any, *, kw_only: bool) -> dataclasses.Field[Any]:  # noqa: ANN401
    """The field that `dataclasses` would make, without its three searches of each annotation for `ClassVar` and the
    like.
    """
    made: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
    made.name, made.type, made._field_type = name, said, _KIND
    made.kw_only = kw_only if made.kw_only is _MISSING else made.kw_only
    field: dataclasses.Field[Any] = made
    return field


def _functions(cls: type, fields: tuple[dataclasses.Field[Any], ...], *, kw_only: bool) -> dict[str, Any]:
    factories, defaults = {}, {}
    for place, field in enumerate(fields):
        if field.default_factory is not _MISSING:
            factories[f"factory_{place}"] = field.default_factory
            defaults[field.name] = _FACTORY
        elif field.default is not _MISSING:
            defaults[field.name] = field.default
        is_required = field.name not in defaults
        is_known = field.init and field.compare and field.kw_only is kw_only and field.name != "self"
        if not is_known or (is_required and defaults) or field.default.__class__.__hash__ is None:
            raise TypeError(
                f"{cls.__qualname__}.{field.name}: only defaults, of the last fields, and repr=False are known here"
            )
    is_checked = hasattr(cls, "__post_init__")
    pattern = _init_maker(len(fields), tuple(factories), kw_only=kw_only, is_checked=is_checked)(**factories)
    names = {f"field_{place}": field.name for place, field in enumerate(fields)}
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    init = FunctionType(_renamed(pattern.__code__, names), module, closure=pattern.__closure__)
    if kw_only:
        init.__kwdefaults__ = defaults
    else:
        init.__defaults__ = tuple(defaults.values())
    init.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    functions: dict[str, Any] = {"__init__": init, **_comparing(tuple(names.values()))}
    for name, function in functions.items():
        function.__qualname__ = f"{cls.__qualname__}.{name}"
    return functions


class _Factory:
    """In place of the default of a field that has a `default_factory`."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


@cache
def _init_maker(count: int, factories: tuple[str, ...], *, kw_only: bool, is_checked: bool) -> Callable[..., Any]:
    """The function that makes an `__init__` with the fields field_0, field_1 and so on. `_renamed` puts in the real
    names, since compiling is slow.
    """
    names = [f"field_{place}" for place in range(count)]
    steps = []
    for factory in factories:
        name = factory.replace("factory", "field")
        steps.append(f"if {name} is FACTORY: {name} = {factory}()")
    steps += [f"set_field(self, {name!r}, {name})" for name in names]
    steps += ["self.__post_init__()"] * is_checked
    body = "".join(f"\n  {step}" for step in steps or ["pass"])
    source = f"""
def make(set_field, FACTORY, {", ".join(factories)}):
 def __init__(self, {"*, " * (kw_only and count > 0)}{", ".join(names)}):{body}
 return __init__
"""
    compiled: dict[str, Any] = {}
    exec(source, compiled)  # noqa: S102 (no foreign text is in it)
    return partial(compiled["make"], object.__setattr__, _FACTORY)


def _comparing(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """`__eq__` and `__hash__`: of all values in order, as a tuple."""
    values: Callable[[object], tuple[Any, ...]]
    if len(names) > 1:
        values = attrgetter(*names)
    else:

        def values(one: object) -> tuple[Any, ...]:
            return tuple([getattr(one, name) for name in names])

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 (for a class)
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807 (for a class)
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _renamed(code: CodeType, named: dict[str, str]) -> CodeType:
    return code.replace(
        co_varnames=tuple([named.get(name, name) for name in code.co_varnames]),
        co_names=tuple([named.get(name, name) for name in code.co_names]),
        co_consts=tuple([named.get(const, const) for const in code.co_consts]),
    )


def _plain_show(self: Any) -> str:  # noqa: ANN401 (a class that is made here, or one that inherits from it)
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({shown})"


_plain_show.__qualname__ = "__create_fn__.<locals>.__repr__"  # by this name pprint knows a class of dataclasses
_show: Final = recursive_repr("...")(_plain_show)
_show.__wrapped__ = _plain_show  # type: ignore[attr-defined]


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:  # noqa: ANN401
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:  # noqa: ANN401
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
