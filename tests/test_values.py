"""A class of `aiogroup._core.values` is to its users what `dataclasses` would have made of it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pprint
from typing import ClassVar

import pydantic.dataclasses
import pytest

from aiogroup._core.protocol.messages import REQUESTS
from aiogroup._core.telemetry import events
from aiogroup._core.telemetry.event import Event
from aiogroup._core.values import dataclass


@dataclass(frozen=True, slots=True)
class Ours:
    """Some value."""

    KIND: ClassVar[str] = "some"
    name: str
    count: int = 0
    tags: tuple[str, ...] = ()

    @property
    def total(self):
        return self.count + len(self.tags)


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """Some value."""

    KIND: ClassVar[str] = "some"
    name: str
    count: int = 0
    tags: tuple[str, ...] = ()

    @property
    def total(self):
        return self.count + len(self.tags)


class Checked:
    def __post_init__(self):
        if self.count < 0:
            raise ValueError(f"{self.count} is below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class OurOptions(Checked):
    name: str
    count: int = 0
    secret: str | None = dataclasses.field(default=None, repr=False)
    seen: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TheirOptions(Checked):
    name: str
    count: int = 0
    secret: str | None = dataclasses.field(default=None, repr=False)
    seen: list[int] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class One(Empty):
    first: float


@dataclasses.dataclass(frozen=True, slots=True)
class Heir(One):
    second: float


MADE = {Ours: Ours("a", tags=("b",)), Theirs: Theirs("a", tags=("b",))}
KINDS = pytest.mark.parametrize("kind", [Ours, Theirs])


@KINDS
def test_what_dataclasses_can_do_with_it(kind):
    value = kind("a", 2, ("b",))
    assert [(each.name, each.type) for each in dataclasses.fields(kind)] == [
        ("name", "str"),
        ("count", "int"),
        ("tags", "tuple[str, ...]"),
    ]
    written = {"KIND": "ClassVar[str]", "name": "str", "count": "int", "tags": "tuple[str, ...]"}
    assert inspect.get_annotations(kind) == written
    assert dataclasses.asdict(value) == {"name": "a", "count": 2, "tags": ("b",)}
    assert dataclasses.astuple(value) == ("a", 2, ("b",))
    assert dataclasses.replace(value, count=3) == kind("a", 3, ("b",))
    assert dataclasses.is_dataclass(kind)
    assert (value.total, value.KIND, kind.__doc__, kind.__match_args__) == (
        3,
        "some",
        "Some value.",
        ("name", "count", "tags"),
    )


@KINDS
def test_it_is_a_value(kind):
    assert kind("a") == kind("a", 0, ())
    assert hash(kind("a")) == hash(kind("a", 0, ()))
    assert kind("a") != kind("b")
    assert kind("a") != ("a", 0, ())
    assert MADE[Ours] != MADE[Theirs]
    assert repr(kind("a", tags=("b",))) == f"{kind.__name__}(name='a', count=0, tags=('b',))"


@KINDS
def test_it_cannot_be_changed(kind):
    value = kind("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot assign to field 'count'$"):
        value.count = 1
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot delete field 'count'$"):
        del value.count
    with pytest.raises((AttributeError, TypeError)):
        value.other = 1
    assert not hasattr(value, "__dict__")
    assert value == kind("a")


@KINDS
def test_it_is_made_as_its_fields_say(kind):
    assert kind(count=1, name="a") == kind("a", 1)
    parameters = inspect.signature(kind).parameters
    assert {name: each.default for name, each in parameters.items()} == {
        "name": inspect.Parameter.empty,
        "count": 0,
        "tags": (),
    }
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) missing 1 required positional .*: 'name'$"):
        kind()
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        kind("a", size=1)


def test_a_class_says_how_it_is_made_before_it_was_ever_made():
    def kind():
        return dataclass(frozen=True, slots=True)(type("New", (), {"__annotations__": {"a": "int"}, "a": 1}))

    assert str(inspect.signature(kind())) == "(a: 'int' = 1) -> None"
    assert [each.default for each in dataclasses.fields(kind())] == [1]
    first = kind()
    heir = type("Heir", (first,), {"__init__": lambda self: super(type(self), self).__init__(2)})
    assert heir().a == 2
    assert first().a == 1
    assert first.__init__ is first.__init__


@KINDS
def test_pydantic_can_inherit_from_it(kind):
    heir = pydantic.dataclasses.dataclass(frozen=True)(
        type("Heir", (kind,), {"__annotations__": {"size": int}, "size": 3})
    )
    assert dataclasses.astuple(heir("a")) == ("a", 0, (), 3)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@KINDS
def test_it_can_be_pickled_and_copied(kind, protocol):
    value = kind("a", 2, ("b",))
    assert pickle.loads(pickle.dumps(value, protocol)) == value
    assert copy.copy(value) == copy.deepcopy(value) == value


@KINDS
def test_it_can_be_matched(kind):
    match kind("a", 2):
        case Ours("a", count) | Theirs("a", count):
            assert count == 2
        case _:
            pytest.fail("not matched")


@pytest.mark.parametrize("kind", [OurOptions, TheirOptions])
def test_options_are_named_checked_and_keep_a_secret(kind):
    options = kind(name="a", secret="b")
    assert repr(options) == f"{kind.__name__}(name='a', count=0, seen=[])"
    assert options.seen is not kind(name="a").seen
    assert kind(name="a", seen=[1]).seen == [1]
    assert (options.secret, kind.__match_args__) == ("b", ())
    assert dataclasses.replace(options, count=1) == kind(count=1, name="a", secret="b") != kind(count=1, name="a")
    assert [each.kw_only for each in dataclasses.fields(kind)] == [True] * 4
    written = "name: 'str', count: 'int' = 0, secret: 'str | None' = None, seen: 'list[int]' = <factory>"
    assert str(inspect.signature(kind)) == f"(*, {written}) -> None"
    assert pickle.loads(pickle.dumps(options)) == copy.copy(options) == options
    with pytest.raises(ValueError, match=r"^-1 is below 0$"):
        dataclasses.replace(options, count=-1)
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) missing 1 required keyword-only .*: 'name'$"):
        kind()
    with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given$"):
        kind("a")


def test_none_and_one_field_and_an_heir_of_dataclasses():
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    nan = float("nan")
    assert One(nan) == One(nan) != One(float("nan")), "as tuples compare"
    assert repr(Empty()) == "Empty()"
    assert Empty() != One(1)
    assert (One(1), hash(One(1)), repr(One(1))) == (One(1.0), hash(One(1.0)), "One(first=1)")
    assert One.__doc__ == "One(first)"
    heir = Heir(1, 2)
    assert dataclasses.astuple(heir) == (1, 2)
    assert pickle.loads(pickle.dumps(heir)) == heir != Heir(1, 3)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"uncompared": dataclasses.field(default=1, compare=False)}, "uncompared"),
        ({"named": dataclasses.field(default=1, kw_only=True)}, "named"),
        ({"shared": []}, "shared"),
        ({"self": 1}, "self"),
        ({"fixed": dataclasses.field(default=1, init=False)}, "fixed"),
        ({"early": 1, "late": dataclasses.field()}, "late"),
    ],
)
def test_what_it_could_not_do_right_is_refused(fields, name):
    namespace = {"__annotations__": dict.fromkeys(fields, "int"), **fields}
    with pytest.raises(TypeError, match=rf"^Odd\.{name}: only defaults"):
        dataclass(frozen=True, slots=True)(type("Odd", (), namespace))


@pytest.mark.parametrize("name", ["__eq__", "__hash__", "__init__", "__setstate__"])
def test_a_function_that_would_be_lost_is_refused(name):
    with pytest.raises(TypeError, match=rf"^Odd\.{name} would be lost here"):
        dataclass(frozen=True, slots=True)(type("Odd", (), {name: print}))


@KINDS
def test_it_is_shown_as_a_dataclass(kind):
    assert pprint.pformat(kind("a" * 40, tags=("b" * 40,))).count("\n") == 2
    tags = []
    value = kind("a", tags=tags)
    tags.append(value)
    assert repr(value) == f"{kind.__name__}(name='a', count=0, tags=[...])"


class Outer:
    @dataclass(frozen=True, slots=True)
    class Ours:
        name: str
        MyClassVars: str = "a field"

    @dataclasses.dataclass(frozen=True, slots=True)
    class Theirs:
        name: str
        MyClassVars: str = "a field"


@pytest.mark.parametrize("kind", [Outer.Ours, Outer.Theirs])
def test_a_class_inside_of_another(kind):
    value = kind("a")
    assert repr(value) == f"Outer.{kind.__name__}(name='a', MyClassVars='a field')"
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.skipif(not hasattr(copy, "replace"), reason="Python 3.13 and newer")
@KINDS
def test_copy_replaces(kind):
    assert copy.replace(kind("a"), count=2) == kind("a", 2)


def test_an_heir_that_would_lose_fields_is_refused():
    with pytest.raises(TypeError, match=r"^Odd: .*One has fields"):
        dataclass(frozen=True, slots=True)(type("Odd", (One,), {"__annotations__": {"second": "float"}}))


def test_only_frozen_classes_with_slots_are_made():
    with pytest.raises(TypeError, match=r"take dataclasses\.dataclass"):
        dataclass(frozen=False, slots=True)


def test_every_event_says_its_fields_and_can_be_pickled():
    kinds = [each for each in vars(events).values() if inspect.isclass(each)]
    kinds = [each for each in kinds if issubclass(each, Event) and each is not Event]
    assert len(kinds) > 40
    for kind in kinds:
        names = [each.name for each in dataclasses.fields(kind)]
        event = kind(*range(len(names)))
        assert event.fields() == dataclasses.asdict(event) == {name: place for place, name in enumerate(names)}
        assert pickle.loads(pickle.dumps(event)) == event


def test_a_request_can_be_replaced_in_part():
    for request in REQUESTS.values():
        assert dataclasses.replace(request()) == request()
