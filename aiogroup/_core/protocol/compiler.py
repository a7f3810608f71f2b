"""Builds the encoder and the decoder of a structure in one version from its declaration, each once.

Both are functions whose text is made here and compiled, as `dataclasses` makes `__init__`. For a partition in version
10 of OffsetCommit they are

    def run(reader):
        try:
            partition_index, error_code, = unpack_1(reader.view, reader.pos)
        except struct_error:
            raise reader.short(6) from None
        reader.pos += 6
        reader.tags()
        return make_2(partition_index, error_code)

    def run(writer, value):
        begin = len(writer.data)
        try:
            writer.data += pack_2(value.partition_index, value.error_code)
            writer.tags()
        except faults_1:
            del writer.data[begin:]
            explain_3(writer, value)
            raise
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import groupby
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, TypeAlias

from aiogroup._core.native import Maker
from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup._core.protocol.schema import Array, Nested, Scalar, Spec, Structure, Value, WireType, specs
from aiogroup.errors import UnsupportedVersionError

Read: TypeAlias = Callable[[Reader], Any]
Write: TypeAlias = Callable[[Writer, Any], None]
_Key: TypeAlias = tuple[type[Structure], int, bool]

# One entry for each structure and version in use: bounded, as aiogroup declares the structures and versions.
_decoders: dict[_Key, Read] = {}
_encoders: dict[_Key, Write] = {}

_ANY_LENGTH: Final = (Scalar.STRING, Scalar.BYTES, Scalar.RECORDS)
_FAULTS: Final = (AttributeError, TypeError, ValueError, struct_error)
"""What a value of the wrong type or size raises."""


def decoder(structure: type[Structure], version: int, flexible: bool) -> Read:
    """A function that reads one `structure` of `version`; fields that the version lacks have their defaults."""
    key = (structure, version, flexible)
    found = _decoders.get(key)
    if found is None:
        found = _decoders[key] = _Decoder(structure, version, flexible).function()
    return found


def encoder(structure: type[Structure], version: int, flexible: bool) -> Write:
    """A function that writes one `structure` in `version`; it refuses a value that the version cannot carry.

    Raises (when writing):
        UnsupportedVersionError: such a value.
        ValueError: a value that does not fit its type.
    """
    key = (structure, version, flexible)
    found = _encoders.get(key)
    if found is None:
        found = _encoders[key] = _Encoder(structure, version, flexible).function()
    return found


def maker(structure: type[Structure]) -> Callable[..., Any]:
    """A function that makes a structure from the values of all its fields, in order."""
    # A frozen dataclass sets each field through object.__setattr__, at ten times the cost of an assignment: 2.4 us for
    # one partition of a fetch response.
    return Maker(structure, tuple(spec.name for spec in specs(structure)))


class _Text:
    """The text of a function for one structure and version, and the objects that the text names."""

    def __init__(self, structure: type[Structure], version: int, flexible: bool) -> None:
        self._structure = structure
        self._version = version
        self._flexible = flexible
        self._objects: dict[str, Any] = {"struct_error": struct_error}
        present = [spec for spec in specs(structure) if spec.in_version(version)]
        self._placed = [spec for spec in present if spec.tag is None]
        self._tagged = [spec for spec in present if spec.tag is not None and flexible]

    def _name(self, value: Any, kind: str) -> str:  # noqa: ANN401 (whatever the text needs)
        name = f"{kind}_{len(self._objects)}"
        self._objects[name] = value
        return name

    def _compiled(self, arguments: str, *lines: str) -> Callable[..., Any]:
        text = "\n    ".join((f"def run({arguments}):", *lines))
        where = f"<version {self._version} of {self._structure.__name__}>"
        exec(compile(text, where, "exec"), self._objects)  # noqa: S102 (no foreign text is in it)
        function: Callable[..., Any] = self._objects.pop("run")
        return function

    def _method(self, type_: Scalar, *, nullable: bool = False) -> str:
        """The name of the method of `Reader` and `Writer` for a type."""
        if type_ not in _ANY_LENGTH:
            return type_.name.lower()
        name = f"{'compact_' * self._flexible}{'nullable_' * nullable}{type_.name.lower()}"
        return "bytes_" if name == "bytes" else name


class _Decoder(_Text):
    def function(self) -> Read:
        return self._compiled("reader", *self._lines())

    def _lines(self) -> Iterator[str]:
        for are_numbers, group in groupby(self._placed, key=_is_number):
            if are_numbers:
                yield from self._numbers(list(group))
            else:
                yield from (
                    f"{spec.name} = {self._value(spec.type, spec.is_nullable(self._version))}" for spec in group
                )
        if self._tagged:
            known = self._name({spec.tag: self._of_tag(spec) for spec in self._tagged}, "known")
            yield f"tags = reader.tags({known})"
            for spec in self._tagged:
                yield f"{spec.name} = tags.get({spec.tag}, {self._name(spec.default, 'default')})"
        elif self._flexible:
            yield "reader.tags()"
        read = (*self._placed, *self._tagged)
        values = (spec.name if spec in read else self._name(spec.default, "default") for spec in specs(self._structure))
        yield f"return {self._name(maker(self._structure), 'make')}({', '.join(values)})"

    def _numbers(self, run: list[Spec]) -> Iterator[str]:
        """Neighbouring numbers, in one piece."""
        layout = _layout(run, boolean="?")
        names = "".join(f"{spec.name}, " for spec in run)
        yield "try:"
        yield f"    {names}= {self._name(layout.unpack_from, 'unpack')}(reader.view, reader.pos)"
        yield "except struct_error:"
        yield f"    raise reader.short({layout.size}) from None"
        yield f"reader.pos += {layout.size}"

    def _value(self, type_: WireType, nullable: bool) -> str:
        """An expression that reads a value."""
        if isinstance(type_, Scalar):
            return f"reader.{self._method(type_, nullable=nullable)}()"
        if isinstance(type_, Nested):
            read = self._name(decoder(type_.type, self._version, self._flexible), "read")
            return f"reader.nullable({read})" if nullable else f"{read}(reader)"
        least = min_bytes(type_.element, self._version, self._flexible)
        count = f"reader.count({least}, compact={self._flexible}, nullable={nullable})"
        if isinstance(type_.element, Scalar):
            if type_.element.letter:
                return f"reader.numbers({count}, {type_.element.letter!r})"
            read = self._name(getattr(Reader, self._method(type_.element)), "read")
        else:
            read = self._name(decoder(type_.element.type, self._version, self._flexible), "read")
        return f"reader.array({count}, {read})"

    def _of_tag(self, spec: Spec) -> Read:
        return self._compiled("reader", f"return {self._value(spec.type, spec.is_nullable(self._version))}")


class _Encoder(_Text):
    def function(self) -> Write:
        return self._compiled("writer, value", *self._lines())

    def _lines(self) -> Iterator[str]:
        yield "data = writer.data"
        yield "begin = len(data)"
        yield "try:"
        yield from (f"    {line}" for line in self._fields())
        yield f"except {self._name(_FAULTS, 'faults')}:"
        yield "    del data[begin:]"
        yield f"    {self._name(self._explain, 'explain')}(writer, value)"
        yield "    raise"

    def _fields(self) -> Iterator[str]:
        for spec in specs(self._structure):
            if not spec.in_version(self._version) and not spec.ignorable:
                yield f"if value.{spec.name} != {self._name(spec.default, 'default')}:"
                yield f"    {self._name(self._refuse, 'refuse')}({self._name(spec, 'spec')})"
        for are_numbers, group in groupby(self._placed, key=_is_number):
            run = list(group)
            if are_numbers:
                names = ", ".join(f"value.{spec.name}" for spec in run)
                yield f"data += {self._name(_layout(run, boolean='b').pack, 'pack')}({names})"
            else:
                yield from (self._value(spec) for spec in run)
        if self._tagged:
            yield "tags = {}"
            for spec in self._tagged:
                yield f"if value.{spec.name} != {self._name(spec.default, 'default')}:"
                yield f"    tags[{spec.tag}] = {self._name(self._of_tag(spec), 'body')}(value)"
            yield "writer.tags(tags)"
        elif self._flexible:
            yield "data.append(0)  # no tags"
        elif not self._placed:
            yield "pass"

    def _value(self, spec: Spec) -> str:
        """A statement that writes a value. One that is null where it must not be raises one of `_FAULTS`."""
        type_, value, nullable = spec.type, f"value.{spec.name}", self._may_be_null(spec)
        if isinstance(type_, Scalar):
            return f"writer.{self._method(type_, nullable=nullable)}({value})"
        if isinstance(type_, Nested):
            write = self._name(encoder(type_.type, self._version, self._flexible), "write")
            return f"writer.nullable({value}, {write})" if nullable else f"{write}(writer, {value})"
        if isinstance(type_.element, Scalar):
            write = self._name(getattr(Writer, self._method(type_.element)), "write")
        else:
            write = self._name(encoder(type_.element.type, self._version, self._flexible), "write")
        return f"writer.{'nullable_' * nullable}array({value}, {write}, compact={self._flexible})"

    def _may_be_null(self, spec: Spec) -> bool:
        # Answers to Fetch with an error have no records, in versions of which the schema says that there are some.
        return spec.is_nullable(self._version) or spec.type is Scalar.RECORDS

    def _of_tag(self, spec: Spec) -> Callable[[Value], bytearray]:
        new = self._name(Writer, "new")
        return self._compiled("value", f"writer = {new}()", self._value(spec), "return writer.data")

    def _explain(self, writer: Writer, value: Value) -> None:
        """Write field by field, to name the field that is wrong."""
        for spec, write in self._one_by_one:
            try:
                if getattr(value, spec.name) is None and not self._may_be_null(spec):
                    raise UnsupportedVersionError(
                        f"version {self._version} of {self._structure.__name__} has no null for {spec.name}"
                    )
                write(type(writer)(), value)
            except _FAULTS as error:
                raise ValueError(f"{self._structure.__name__}.{spec.name}: {error}") from error

    @cached_property
    def _one_by_one(self) -> list[tuple[Spec, Write]]:
        fields = (*self._placed, *self._tagged)
        return [(spec, self._compiled("writer, value", self._value(spec))) for spec in fields]

    def _refuse(self, spec: Spec) -> None:
        span = f"{spec.since}+" if spec.until > 1000 else f"{spec.since} to {spec.until}"
        raise UnsupportedVersionError(
            f"version {self._version} of {self._structure.__name__} cannot carry {spec.name} (versions {span} do): "
            f"leave it at {spec.default!r}, or use a broker and a version that can"
        )


def min_bytes(type_: WireType, version: int, flexible: bool, nullable: bool = False) -> int:
    """The least number of bytes that a value takes, by which the count of an array is checked."""
    if isinstance(type_, Nested):
        if nullable:
            return 1
        inner: int = sum(
            min_bytes(spec.type, version, flexible, spec.is_nullable(version))
            for spec in specs(type_.type)
            if spec.tag is None and spec.in_version(version)
        )
        return max(1, inner + (1 if flexible else 0))
    if isinstance(type_, Array):
        return 1 if flexible else 4
    if type_ is Scalar.STRING:
        return 1 if flexible else 2
    if type_ in _ANY_LENGTH:
        return 1 if flexible else 4
    return type_.least_bytes


def _is_number(spec: Spec) -> bool:
    return isinstance(spec.type, Scalar) and bool(spec.type.letter)


def _layout(run: list[Spec], boolean: str) -> Struct:
    letters = "".join(spec.type.letter for spec in run if isinstance(spec.type, Scalar))
    return Struct(">" + letters.replace("?", boolean))  # "?" would write None as False
