"""`@dataclass(frozen=True, slots=True)` at a tenth of its cost, for aiogroup's messages, facts and events.

`dataclasses.dataclass` compiles the source of six functions for each class, which takes 0.4 ms: importing aiogroup
would take longer for that than for everything else. Here the functions of a class are made from functions that are
compiled already; its `__init__` and its fields are made when they are first asked for. The fields are those of
`dataclasses`, which therefore treats such a class as one of its own: `fields`, `replace`, `asdict`, `match`, pickling
and type checkers work. An import executes 0.48 million instructions for such a class, 1.07 for a `NamedTuple`, and 3.95
for one of `dataclasses`.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType, MethodType
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
    for base in cls.__mro__[1:-1]:
        if dataclasses.is_dataclass(base) and dataclasses.fields(base):
            raise TypeError(f"{cls.__qualname__}: {base.__qualname__} has fields, which are not inherited here")
    own = dict(vars(cls))
    own.pop("__dict__", None)
    own.pop("__weakref__", None)
    if lost := _OURS & own.keys():  # a class with __eq__ has a __hash__, too, which is None
        raise TypeError(f"{cls.__qualname__}.{min(lost)} would be lost here: take dataclasses.dataclass")
    annotations = own.get("__annotations__") or inspect.get_annotations(cls)
    said = {name: each for name, each in annotations.items() if not str(each).startswith(_NO_FIELDS)}
    given = {name: own.pop(name, _MISSING) for name in said}  # slots take the place of the defaults
    names = tuple(said)
    declared = _Declared(said, given, kw_only, hasattr(cls, "__post_init__"))
    declared.check(cls.__qualname__)
    own["__dataclass_fields__"] = _Fields(declared)
    own["__doc__"] = cls.__doc__ or f"{cls.__name__}({', '.join(names)})"
    own["__match_args__"] = () if kw_only else names
    own["__qualname__"] = cls.__qualname__
    own["__slots__"] = names
    own["__init__"] = _Init(declared)
    own["__eq__"], own["__hash__"] = _comparing(cls.__qualname__, names)
    return type(cls)(cls.__name__, cls.__bases__, {**_SHARED, **own})


_OURS: Final = {"__eq__", "__hash__", "__init__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"}
_NO_FIELDS: Final = ("ClassVar", "typing.ClassVar")


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Pattern:
    """What `dataclasses` makes of a class is looked up here."""

    field: object


_MISSING: Final = dataclasses.MISSING
_KIND: Final = dataclasses.fields(_Pattern)[0]._field_type  # type: ignore[attr-defined]
_PARAMS: Final = vars(_Pattern)["__dataclass_params__"]
_PARAMS.init = _PARAMS.repr = _PARAMS.eq = _PARAMS.frozen = True


class _Declared:
    """The fields of a class as they are written: `said` has their annotations, `given` their defaults."""

    __slots__ = ("given", "is_checked", "kw_only", "said")

    def __init__(self, said: Mapping[str, Any], given: Mapping[str, Any], kw_only: bool, is_checked: bool) -> None:
        self.said = said
        self.given = given
        self.kw_only = kw_only
        self.is_checked = is_checked

    def check(self, of: str) -> None:
        has_default = False
        for name, given in self.given.items():
            default, is_known = given, name != "self"
            if isinstance(given, dataclasses.Field):
                is_known = given.init and given.compare and given.kw_only in (self.kw_only, _MISSING)
                default = given.default if given.default_factory is _MISSING else _FACTORY
            is_late = default is _MISSING and has_default
            has_default = default is not _MISSING
            if not is_known or is_late or default.__class__.__hash__ is None:
                raise TypeError(f"{of}.{name}: only defaults, of the last fields, and repr=False are known here")

    def field(self, name: str) -> dataclasses.Field[Any]:
        """The field that `dataclasses` would make, without its three searches of each annotation for `ClassVar` and
        the like.
        """
        given = self.given[name]
        made: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
        made.name, made.type, made._field_type, made.kw_only = name, self.said[name], _KIND, self.kw_only
        field: dataclasses.Field[Any] = made
        return field

    def init(self, owner: type) -> FunctionType:
        factories, defaults = {}, {}
        for place, (name, given) in enumerate(self.given.items()):
            default = given
            if isinstance(given, dataclasses.Field):
                default = given.default
                if given.default_factory is not _MISSING:
                    factories[f"factory_{place}"] = given.default_factory
                    default = _FACTORY
            if default is not _MISSING:
                defaults[name] = default
        maker = _init_maker(len(self.given), tuple(factories), kw_only=self.kw_only, is_checked=self.is_checked)
        pattern = maker(**factories)
        module = vars(sys.modules[owner.__module__]) if owner.__module__ in sys.modules else {}
        init = FunctionType(_renamed(pattern.__code__, tuple(self.given)), module, closure=pattern.__closure__)
        if self.kw_only:
            init.__kwdefaults__ = defaults
        else:
            init.__defaults__ = tuple(defaults.values())
        init.__annotations__ = {**self.said, "return": None}
        init.__qualname__ = f"{owner.__qualname__}.__init__"
        return init


class _Fields(Mapping[str, dataclasses.Field[Any]]):
    """The `__dataclass_fields__` of a class, made when they are first asked for: most classes are never asked.

    As an attribute it is the dict that `dataclasses` and libraries in C expect. It is a mapping itself for libraries
    that look into the `__dict__` of a class, as pydantic does.
    """

    def __init__(self, declared: _Declared) -> None:
        self._declared = declared

    def __get__(self, one: object, owner: type | None = None) -> dict[str, dataclasses.Field[Any]]:
        return self._made

    def __getitem__(self, name: str) -> dataclasses.Field[Any]:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    @cached_property
    def _made(self) -> dict[str, dataclasses.Field[Any]]:
        return {name: self._declared.field(name) for name in self._declared.given}


class _Init:
    """The `__init__` of a class until it is first asked for: a process uses few of the classes that it imports."""

    def __init__(self, declared: _Declared) -> None:
        self._declared = declared

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, one: object, owner: type | None = None) -> Callable[..., None]:
        init = self._declared.init(self._owner)
        self._owner.__init__ = init  # type: ignore[misc]
        return init if one is None else MethodType(init, one)


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


def _comparing(kind: str, names: tuple[str, ...]) -> tuple[Callable[..., Any], ...]:
    """`__eq__` and `__hash__` of the class `kind`: of all values in order, as a tuple."""
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

    __eq__.__qualname__ = f"{kind}.__eq__"
    __hash__.__qualname__ = f"{kind}.__hash__"
    return __eq__, __hash__


def _renamed(code: CodeType, names: tuple[str, ...]) -> CodeType:
    named = {f"field_{place}": name for place, name in enumerate(names)}
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


_SHARED: Final = {
    "__dataclass_params__": _PARAMS,
    "__repr__": _show,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
if hasattr(dataclasses, "_replace"):  # from Python 3.13 on, for copy.replace
    _SHARED["__replace__"] = dataclasses._replace
