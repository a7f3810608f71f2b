"""Builds the encoder and the decoder of a structure in one version from its declaration, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple, TypeAlias

from aiogroup._core.native import Maker
from aiogroup._core.protocol.codec import Reader, Writer
from aiogroup._core.protocol.schema import Array, Nested, Scalar, Spec, Structure, Value, WireType, specs
from aiogroup.errors import ProtocolError, UnsupportedVersionError

Read: TypeAlias = Callable[[Reader], Any]
Write: TypeAlias = Callable[[Writer, Any], None]
_Step: TypeAlias = Callable[[Reader, list[Any]], None]
_Key: TypeAlias = tuple[type[Structure], int, bool]

# One entry for each structure and version in use: bounded, as aiogroup declares the structures and versions.
_decoders: dict[_Key, Read] = {}
_encoders: dict[_Key, Write] = {}


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
    if type_ in (Scalar.BYTES, Scalar.RECORDS):
        return 1 if flexible else 4
    return type_.least_bytes


def decoder(structure: type[Structure], version: int, flexible: bool) -> Read:
    """A function that reads one `structure` of `version`; fields that the version lacks have their defaults."""
    key = (structure, version, flexible)
    found = _decoders.get(key)
    if found is None:
        found = _decoders[key] = _decoder(structure, version, flexible)
    return found


def _decoder(structure: type[Structure], version: int, flexible: bool) -> Read:
    steps: list[_Step] = []
    tagged: dict[int, tuple[int, Read]] = {}
    run = ""
    constants: list[Any] = []

    def flush() -> None:
        nonlocal run, constants
        if run:
            steps.append(_run_step(Struct(">" + run)))
            run = ""
        if constants:
            steps.append(_constant_step(tuple(constants)))
            constants = []

    for index, spec in enumerate(specs(structure)):
        present = spec.in_version(version)
        if present and spec.tag is None:
            letter = spec.type.letter if isinstance(spec.type, Scalar) else ""
            if letter and not constants:
                run += letter
                continue
            flush()
            if letter:
                run = letter
            else:
                steps.append(_value_step(_reader(spec.type, version, flexible, spec.is_nullable(version))))
            continue
        if present and flexible and spec.tag is not None:
            tagged[spec.tag] = index, _reader(spec.type, version, flexible, spec.is_nullable(version))
        if run:
            flush()
        constants.append(spec.default)
    flush()
    if flexible:
        steps.append(_tags_step(tagged))
    return _build(structure, tuple(steps))


def _build(structure: type[Structure], steps: tuple[_Step, ...]) -> Read:
    make = maker(structure)

    def read(reader: Reader) -> Value:
        values: list[Any] = []
        for step in steps:
            step(reader, values)
        return make(*values)

    return read


def maker(structure: type[Structure]) -> Callable[..., Any]:
    """A function that makes a structure from the values of all its fields, in order."""
    # A frozen dataclass sets each field through object.__setattr__, at ten times the cost of an assignment: 2.4 us for
    # one partition of a fetch response.
    return Maker(structure, tuple(spec.name for spec in specs(structure)))


def _run_step(layout: Struct) -> _Step:
    size = layout.size
    unpack = layout.unpack_from

    # Reader.fixed without the call: half of the fields of a partition in a fetch response are read here.
    def step(reader: Reader, values: list[Any]) -> None:
        pos = reader.pos
        try:
            values += unpack(reader.view, pos)
        except struct_error:
            raise reader.short(size) from None
        reader.pos = pos + size

    return step


def _constant_step(constants: tuple[Any, ...]) -> _Step:
    def step(reader: Reader, values: list[Any]) -> None:
        values.extend(constants)

    return step


def _value_step(read: Read) -> _Step:
    def step(reader: Reader, values: list[Any]) -> None:
        values.append(read(reader))

    return step


def _tags_step(tagged: dict[int, tuple[int, Read]]) -> _Step:
    known = {tag: read for tag, (_, read) in tagged.items()}

    def step(reader: Reader, values: list[Any]) -> None:
        pos = reader.pos
        view = reader.view
        if pos < len(view) and view[pos] == 0:
            reader.pos = pos + 1
            return
        for tag, value in reader.tags(known).items():
            values[tagged[tag][0]] = value

    return step


def _reader(type_: WireType, version: int, flexible: bool, nullable: bool) -> Read:
    if isinstance(type_, Array):
        return _array_reader(type_.element, version, flexible, nullable)
    if isinstance(type_, Nested):
        read = decoder(type_.type, version, flexible)
        return _nullable_struct_reader(read) if nullable else read
    return getattr(Reader, _method(type_, flexible, nullable))  # type: ignore[no-any-return]


def _method(type_: Scalar, flexible: bool, nullable: bool) -> str:
    if type_ in (Scalar.STRING, Scalar.BYTES, Scalar.RECORDS):
        name = type_.name.lower()
        name = ("compact_" if flexible else "") + ("nullable_" if nullable else "") + name
        return "bytes_" if name == "bytes" else name
    return type_.name.lower()


def _nullable_struct_reader(inner: Read) -> Read:
    def read(reader: Reader) -> Value:
        marker = reader.int8()
        if marker == -1:
            return None
        if marker != 1:
            raise ProtocolError(f"{marker} before byte {reader.pos} where 1 (a structure) or -1 (null) must be")
        return inner(reader)

    return read


def _array_reader(element: WireType, version: int, flexible: bool, nullable: bool) -> Read:
    element_bytes = min_bytes(element, version, flexible)
    letter = element.letter if isinstance(element, Scalar) else ""
    inner = _reader(element, version, flexible, nullable=False)

    def read(reader: Reader) -> tuple[Any, ...] | None:
        count = reader.count(compact=flexible, element_bytes=element_bytes)
        if count is None:
            if nullable:
                return None
            raise ProtocolError(f"null before byte {reader.pos} where an array must be")
        if letter:
            return reader.fixed(Struct(f">{count}{letter}"))
        return tuple([inner(reader) for _ in range(count)])

    return read


def encoder(structure: type[Structure], version: int, flexible: bool) -> Write:
    """A function that writes one `structure` in `version`; it refuses a value that the version cannot carry.

    Raises (when writing):
        UnsupportedVersionError: such a value.
        ValueError: a value that does not fit its type.
    """
    key = (structure, version, flexible)
    found = _encoders.get(key)
    if found is None:
        found = _encoders[key] = _encoder(structure, version, flexible)
    return found


def _encoder(structure: type[Structure], version: int, flexible: bool) -> Write:
    fields: list[_Field] = []
    tagged: list[_Field] = []
    for spec in specs(structure):
        if not spec.in_version(version):
            if not spec.ignorable:
                fields.append(_Field(spec, _refusal(structure, spec, version)))
            continue
        write = _writer(spec.type, version, flexible, spec.is_nullable(version))
        if not spec.is_nullable(version) and spec.type is not Scalar.RECORDS:
            letter = spec.type.letter if isinstance(spec.type, Scalar) and spec.type is not Scalar.BOOLEAN else ""
            field = _Field(spec, _non_null(structure, spec, version, write), letter)
        else:
            field = _Field(spec, write)
        (fields if spec.tag is None else tagged).append(field)
    return _write_all(structure, tuple(fields), tuple(tagged), flexible)


class _Field(NamedTuple):
    """How one field is written. A field with a `letter` of `struct` can be written together with its neighbours."""

    spec: Spec
    write: Write
    letter: str = ""


def _write_all(
    structure: type[Structure], fields: tuple[_Field, ...], tagged: tuple[_Field, ...], flexible: bool
) -> Write:
    def write_each(writer: Writer, message: Value) -> None:
        """Write field by field, to name the field that is wrong."""
        spec = None
        try:
            for spec, write_field, _ in (*fields, *tagged):
                value = getattr(message, spec.name)
                if spec.tag is None or value != spec.default:
                    write_field(writer, value)
        except (AttributeError, TypeError, ValueError) as error:
            where = f"{structure.__name__}.{spec.name if spec else '?'}"
            raise ValueError(f"{where}: {error}") from error

    steps = tuple(_steps(fields))
    tags = [(spec.tag, attrgetter(spec.name), spec.default, write) for spec, write, _ in tagged if spec.tag is not None]

    def write(writer: Writer, message: Value) -> None:
        begin = len(writer.data)
        try:
            for get, write_step in steps:
                write_step(writer, get(message))
            if flexible:
                bodies: dict[int, bytes | bytearray] = {}
                for tag, get, default, write_field in tags:
                    value = get(message)
                    if value is not default and value != default:
                        body = Writer()
                        write_field(body, value)
                        bodies[tag] = body.data
                writer.tags(bodies)
        except (AttributeError, TypeError, ValueError, struct_error):
            del writer.data[begin:]
            write_each(writer, message)
            raise

    return write


def _steps(fields: tuple[_Field, ...]) -> Iterator[tuple[Callable[[Value], Any], Write]]:
    """For each field, or run of neighbouring numbers, a function that gets its value and one that writes it."""
    for letter, group in groupby(fields, key=lambda field: bool(field.letter)):
        run = tuple(group)
        if letter and len(run) > 1:
            layout = Struct(">" + "".join(field.letter for field in run))
            yield attrgetter(*(field.spec.name for field in run)), _run_writer(layout)
        else:
            yield from ((attrgetter(field.spec.name), field.write) for field in run)


def _run_writer(layout: Struct) -> Write:
    pack = layout.pack

    def write(writer: Writer, values: tuple[float, ...]) -> None:
        writer.data += pack(*values)

    return write


def _refusal(structure: type[Structure], spec: Spec, version: int) -> Write:
    def refuse(writer: Writer, value: Value) -> None:
        if value != spec.default:
            raise UnsupportedVersionError(
                f"version {version} of {structure.__name__} cannot carry {spec.name} (versions {_span(spec)} "
                f"do): leave it at {spec.default!r}, or use a broker and a version that can"
            )

    return refuse


def _span(spec: Spec) -> str:
    return f"{spec.since}+" if spec.until > 1000 else f"{spec.since} to {spec.until}"


def _non_null(structure: type[Structure], spec: Spec, version: int, write: Write) -> Write:
    def checked(writer: Writer, value: Value) -> None:
        if value is None:
            raise UnsupportedVersionError(f"version {version} of {structure.__name__} has no null for {spec.name}")
        write(writer, value)

    return checked


def _writer(type_: WireType, version: int, flexible: bool, nullable: bool) -> Write:
    if isinstance(type_, Array):
        return _array_writer(type_.element, version, flexible)
    if isinstance(type_, Nested):
        write = encoder(type_.type, version, flexible)
        return _nullable_struct_writer(write) if nullable else write
    if type_ is Scalar.RECORDS:
        # Through the writer's own class: a broker's keeps records apart.
        return _write_compact_records if flexible else _write_records
    return getattr(Writer, _method(type_, flexible, nullable))  # type: ignore[no-any-return]


def _write_records(writer: Writer, value: bytes | memoryview | None) -> None:
    writer.nullable_records(value)


def _write_compact_records(writer: Writer, value: bytes | memoryview | None) -> None:
    writer.compact_nullable_records(value)


def _nullable_struct_writer(inner: Write) -> Write:
    def write(writer: Writer, value: Value) -> None:
        writer.int8(-1 if value is None else 1)
        if value is not None:
            inner(writer, value)

    return write


def _array_writer(element: WireType, version: int, flexible: bool) -> Write:
    inner = _writer(element, version, flexible, nullable=False)

    def write(writer: Writer, value: Value) -> None:
        writer.count(None if value is None else len(value), compact=flexible)
        for each in value or ():
            inner(writer, each)

    return write
