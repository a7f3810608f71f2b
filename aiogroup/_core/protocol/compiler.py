"""Builds the encoder and the decoder of a structure in one version from its declaration, each once.

Both are functions whose text is made here and compiled, as `dataclasses` makes `__init__`. For a partition in version
10 of OffsetCommit's answer they are

    def run(reader):
        try:
            partition_index, error_code, ahead, = unpack_6(reader.view, reader.pos)
        except struct_error:
            raise reader.short(6, 1) from None
        reader.pos += 7
        if ahead:
            reader.pos -= 1
            reader.tags()
        return make_7(partition_index, error_code)

    def run(writer, value):
        data = writer.data
        begin = len(data)
        try:
            data += pack_6(value.partition_index, value.error_code)
            data.append(0)  # no tags
        except faults_7:
            del data[begin:]
            explain_8(writer, value)
            raise

What is mostly so is done in the text; all else by methods of `Reader` and `Writer`, which get a byte that was read
`ahead` again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import groupby, repeat
from struct import Struct, calcsize
from struct import error as struct_error
from typing import Any, Final, TypeAlias

from aiogroup._core.native import Maker
from aiogroup._core.protocol.codec import Reader, Writer, numbers, string_size, uuid_of, varint
from aiogroup._core.protocol.schema import Array, Nested, Scalar, Spec, Structure, Value, WireType, specs
from aiogroup.errors import UnsupportedVersionError

Read: TypeAlias = Callable[[Reader], Any]
Write: TypeAlias = Callable[[Writer, Any], None]
_Key: TypeAlias = tuple[type[Structure], int, bool]

# One entry for each structure and version in use: bounded, as aiogroup declares the structures and versions.
_decoders: dict[_Key, Read] = {}
_encoders: dict[_Key, Write] = {}

_UUID: Final = Scalar.UUID.letter
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
        self._objects: dict[str, Any] = {
            "struct_error": struct_error, "uuid_of": uuid_of, "numbers": numbers, "repeat": repeat,
            "varint": varint, "string_size": string_size,
        }  # fmt: skip
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
        run: list[Spec] = []
        for spec in self._placed:
            if _is_fixed(spec):
                run.append(spec)
            else:
                yield from self._value(run, spec)
                run = []
        if self._tagged:
            yield from self._run(run)
            known = self._name({spec.tag: self._of_tag(spec) for spec in self._tagged}, "known")
            yield f"tags = reader.tags({known})"
            for spec in self._tagged:
                yield f"{spec.name} = tags.get({spec.tag}, {self._name(spec.default, 'default')})"
        elif self._flexible and run:
            yield from self._run(run, "B")
            yield "if ahead:"
            yield "    reader.pos -= 1"
            yield "    reader.tags()"
        elif self._flexible:
            yield "if reader.pos < len(reader.view) and not reader.view[reader.pos]:"
            yield "    reader.pos += 1"
            yield "else:"
            yield "    reader.tags()"
        else:
            yield from self._run(run)
        read = (*self._placed, *self._tagged)
        values = (spec.name if spec in read else self._name(spec.default, "default") for spec in specs(self._structure))
        yield f"return {self._name(maker(self._structure), 'make')}({', '.join(values)})"

    def _run(self, run: list[Spec], ahead: str = "") -> Iterator[str]:
        """Neighbours of fixed size, in one piece, and `ahead` the number behind them, of this letter."""
        letters = [_letter(spec) for spec in run]
        names = [spec.name for spec in run]
        if ahead:
            letters.append(ahead)
            names.append("ahead")
        if not names:
            return
        layout = Struct(">" + "".join(letters))
        sizes = [calcsize(">" + "".join(group)) for _, group in groupby(letters[: len(run)], key=_UUID.__eq__)]
        if ahead:
            sizes.append(calcsize(">" + ahead))
        yield "try:"
        yield f"    {', '.join(names)}, = {self._name(layout.unpack_from, 'unpack')}(reader.view, reader.pos)"
        yield "except struct_error:"
        yield f"    raise reader.short({', '.join(map(str, sizes))}) from None"
        yield f"reader.pos += {layout.size}"
        yield from (f"{spec.name} = uuid_of({spec.name})" for spec in run if spec.type is Scalar.UUID)

    def _length(self, run: list[Spec], letter: str) -> Iterator[str]:
        """Neighbours of fixed size, and `ahead` the length of what follows them; -1 means null."""
        if not self._flexible:
            yield from self._run(run, letter)
        elif run:
            yield from self._run(run, "B")
            yield "ahead = (ahead if ahead < 128 else reader.longer()) - 1"
        else:
            yield "ahead = reader.uvarint() - 1"

    def _value(self, run: list[Spec], spec: Spec) -> Iterator[str]:
        """A value, and the neighbours of fixed size before it."""
        type_, nullable = spec.type, spec.is_nullable(self._version)
        if type_ is Scalar.STRING:
            yield from self._length(run, "h")
            yield f"{spec.name} = reader.{'nullable_' * nullable}text(ahead)"
        elif isinstance(type_, Array):
            least = min_bytes(type_.element, self._version, self._flexible)
            yield from self._length(run, "i")
            yield f"if ahead < 0 or ahead * {least} > len(reader.view) - reader.pos:"
            yield f"    reader.check_count(ahead, {least}, nullable={nullable})"
            yield f"{spec.name} = {self._elements(type_.element)}{' if ahead >= 0 else None' * nullable}"
        elif isinstance(type_, Nested):
            read = self._name(decoder(type_.type, self._version, self._flexible), "read")
            yield from self._run(run)
            yield f"{spec.name} = {f'reader.nullable({read})' if nullable else f'{read}(reader)'}"
        else:
            yield from self._run(run)
            yield f"{spec.name} = reader.{self._method(type_, nullable=nullable)}()"

    def _elements(self, type_: Scalar | Nested) -> str:
        if isinstance(type_, Nested):
            read = decoder(type_.type, self._version, self._flexible)
        elif type_.is_number:
            return f"reader.fixed(numbers(ahead, {type_.letter!r}))"
        else:
            read = getattr(Reader, self._method(type_))
        return f"tuple(map({self._name(read, 'read')}, repeat(reader, ahead)))"

    def _of_tag(self, spec: Spec) -> Read:
        if isinstance(spec.type, Scalar):
            return getattr(Reader, self._method(spec.type, nullable=spec.is_nullable(self._version)))  # type: ignore[no-any-return]
        return self._compiled("reader", *self._value([], spec), f"return {spec.name}")


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
        for is_fixed, group in groupby(self._placed, key=_is_fixed):
            run = list(group)
            if is_fixed:
                layout = Struct(">" + "".join(map(_letter, run)).replace("?", "b"))  # "?" would write None as False
                values = ", ".join(f"value.{spec.name}{'.bytes' * (spec.type is Scalar.UUID)}" for spec in run)
                yield f"data += {self._name(layout.pack, 'pack')}({values})"
            else:
                for spec in run:
                    yield from self._field(spec)
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

    def _field(self, spec: Spec) -> Iterator[str]:
        return self._value(spec.type, f"value.{spec.name}", nullable=self._may_be_null(spec))

    def _value(self, type_: WireType, value: str, *, nullable: bool) -> Iterator[str]:
        """Lines that write a value. One that is null where it must not be raises one of `_FAULTS`."""
        if isinstance(type_, Nested):
            write = self._name(encoder(type_.type, self._version, self._flexible), "write")
            yield f"writer.nullable({value}, {write})" if nullable else f"{write}(writer, {value})"
        elif isinstance(type_, Array) or (type_ is Scalar.STRING and self._flexible):
            if nullable:
                yield f"if {value} is None:"
                yield "    data.append(0)" if self._flexible else "    writer.int32(-1)"
                yield "else:"
            lines = self._array(type_.element, value) if isinstance(type_, Array) else _string(value)
            yield from (f"{'    ' * nullable}{line}" for line in lines)
        else:
            yield f"writer.{self._method(type_, nullable=nullable)}({value})"

    def _array(self, type_: Scalar | Nested, value: str) -> Iterator[str]:
        if self._flexible:
            yield f"data += varint(len({value}) + 1)"
        else:
            yield f"writer.int32(len({value}))"
        if isinstance(type_, Scalar) and type_.is_number:
            yield f"data += numbers(len({value}), {type_.letter!r}).pack(*{value})"
        else:
            yield f"for each in {value}:"
            yield from (f"    {line}" for line in self._value(type_, "each", nullable=False))

    def _may_be_null(self, spec: Spec) -> bool:
        # Answers to Fetch with an error have no records, in versions of which the schema says that there are some.
        return spec.is_nullable(self._version) or spec.type is Scalar.RECORDS

    def _of_tag(self, spec: Spec) -> Callable[[Value], bytearray]:
        new = self._name(Writer, "new")
        lines = (f"writer = {new}()", "data = writer.data", *self._field(spec), "return data")
        return self._compiled("value", *lines)

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
        return [(spec, self._compiled("writer, value", "data = writer.data", *self._field(spec))) for spec in fields]

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


def _is_fixed(spec: Spec) -> bool:
    return isinstance(spec.type, Scalar) and bool(spec.type.letter)


def _letter(spec: Spec) -> str:
    return spec.type.letter if isinstance(spec.type, Scalar) else ""


def _string(value: str) -> tuple[str, ...]:
    """Lines that write a compact string."""
    return f"text = {value}.encode()", "data += string_size(len(text))", "data += text"
