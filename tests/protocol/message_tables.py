"""`python -m tests.protocol.message_tables` writes the tables of Kafka's messages: modules of frozen classes, in
`aiogroup/_core/protocol/messages/` and `aiogroup/embedded/messages/`.

They are made from Kafka's own schemas, the JSON files in the jar `kafka-clients`, which `python -m aiogroup.devkafka
fetch` downloads, and from `message_rows.py`. What is written is committed. To speak a newer version, change its number
there and run this again; newer schemas come with the version of Kafka in `aiogroup/devkafka/jars.py`. As this imports
aiogroup, tables that cannot be imported must be checked out first.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from aiogroup.devkafka.jars import KAFKA_VERSION, jars
from tests.protocol.message_rows import ABOUT, BROKER, CLIENT, DEFAULTS, FIELDS, MORE, STRUCTURES

ROOT = Path(__file__).parents[2]
MADE = "Made from Kafka's schemas by `python -m tests.protocol.message_tables`: change its rows, not this file."
WIDTH = 120
LAST = 0x7FFF
SCALARS = {
    "bool": ("BOOLEAN", "bool"),
    **{name: (name.upper(), "int") for name in ("int8", "int16", "int32", "int64", "uint16", "uint32")},
    "float64": ("FLOAT64", "float"),
    "uuid": ("UUID16", "UUID"),
    "string": ("STRING", "str"),
    "bytes": ("BYTES", "bytes"),
    "records": ("RECORDS", "bytes | memoryview"),
}
"""Kafka's types, as `schema.py` and as Python name them."""
DECLARES = {"LAST", "Request", "Response", "Structure", "array", "structure", "wire"}
"""What a module may need of `schema.py` beside its types."""


class Span(NamedTuple):
    """Versions, which Kafka writes as `3+`, `0-7`, `2` or `none`."""

    lowest: int
    highest: int

    @classmethod
    def of(cls, text: str) -> Span:
        if text == "none":
            return NEVER
        first, _, last = text.removesuffix("+").partition("-")
        return cls(int(first), LAST if text.endswith("+") else int(last or first))

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def within(self, other: Span) -> Span:
        return Span(max(self.lowest, other.lowest), min(self.highest, other.highest)) or NEVER

    def joined(self, other: Span) -> Span:
        if self and other and max(self.lowest, other.lowest) > min(self.highest, other.highest) + 1:
            raise ValueError(f"between {self} and {other} are others")
        return Span(min(self.lowest, other.lowest), max(self.highest, other.highest))


NEVER = Span(LAST, -1)


@dataclass(frozen=True)
class Field:
    """One field. `options` is what `wire` is told beside the type and the versions."""

    name: str
    type: str
    versions: Span
    nullable: Span
    options: tuple[str, ...]
    ignorable: bool

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    def line(self, around: Span) -> str:
        """Its line in a structure that exists in the versions `around`."""
        kind, python = SCALARS.get(self.element, (self.element, self.element))
        if self.type != self.element:
            kind, python = f"array({kind})", f"tuple[{python}, ...]"
        if self.nullable or self.type == "records" or "default=None" in self.options:
            python += " | None"
        arguments = [kind]
        since = self.versions.lowest if self.versions.lowest > around.lowest else 0
        if since:
            arguments.append(f"since={since}")
        if self.versions.highest < around.highest:
            arguments.append(f"until={self.versions.highest}")
        if self.nullable:
            is_always = self.nullable.lowest <= self.versions.lowest
            arguments.append(f"nullable={since if is_always else self.nullable.lowest}")
        arguments += [*self.options, *["ignorable=True"] * self.ignorable]
        told = ", ".join(arguments)
        line = f"    {self.name}: {python} = wire({told})"
        return line if len(line) <= WIDTH else f"    {self.name}: {python} = wire(\n        {told}\n    )"

    def joined(self, other: Field) -> Field:
        """The same field of two structures that are to be one."""
        versions, nullable = self.versions.joined(other.versions), self.nullable.joined(other.nullable)
        one, two = (
            replace(each, versions=versions, nullable=nullable, ignorable=self.ignorable or other.ignorable)
            for each in (self, other)
        )
        if one != two:
            raise ValueError(f"{self} and {other} cannot be one field")
        return one


@dataclass
class Structure:
    """A class that is to be written, and the versions in which a message holds it."""

    name: str
    bases: str
    about: str
    around: Span
    constants: Mapping[str, object] = field(default_factory=dict)
    fields: dict[str, Field] = field(default_factory=dict)

    def add(self, fields: Mapping[str, Field], around: Span) -> None:
        """What it has where it is declared, perhaps again."""
        self.around = self.around.joined(around)
        longer, shorter = sorted((self.fields, fields), key=len, reverse=True)
        self.fields = {
            name: longer[name].joined(shorter[name]) if name in longer and name in shorter else each
            for name, each in {**longer, **shorter}.items()
        }

    def lines(self) -> list[str]:
        return [each.line(self.around) for each in self.fields.values()]

    def text(self) -> str:
        lines = ["@structure", f"class {self.name}({self.bases}):", docstring(self.about), ""]
        if self.constants:
            lines += [*(f"    {name} = {value}" for name, value in self.constants.items()), ""]
        return "\n".join([*lines, *self.lines()])


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def docstring(text: str, indent: str = "    ") -> str:
    if len(whole := f'{indent}"""{text}"""') <= WIDTH:
        return whole
    lines = textwrap.wrap(whole[:-3], WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join([*lines, f'{indent}"""'])


def default_of(kind: str, text: str | None) -> str:
    """How `wire` is told of Kafka's default; nothing where it is the type's own."""
    if text is None or (text == "null" and kind == "records"):
        return ""
    if text == "null":
        return "default=None"
    value = text.capitalize() if kind == "bool" else repr(text if kind == "string" else int(text, 0))
    return "" if value in ("0", "False", "''") else f"default={value}"


class Classes:
    """The classes of a request or of an answer, the inner ones first."""

    def __init__(self, schema: dict[str, Any], around: Span, of: Structure) -> None:
        self._message: str = schema["name"]
        self._valid = Span.of(schema["validVersions"])
        self._common = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
        self.found: dict[str, Structure] = {}
        self._add(of, [*schema["fields"], *MORE.get(self._message, ())], around)

    def _add(self, structure: Structure, declared: list[dict[str, Any]], around: Span) -> None:
        fields = {}
        for raw in declared:
            versions = Span.of(raw["versions"]).within(around)
            if not versions:
                continue
            each = self._field(raw, versions)
            fields[each.name] = each
            if each.element not in SCALARS:
                inner = Structure(each.element, "Structure", raw["about"], versions)
                self._add(inner, raw.get("fields") or self._common[raw["type"].removeprefix("[]")], versions)
        self.found.setdefault(structure.name, structure).add(fields, around)

    def _field(self, raw: dict[str, Any], versions: Span) -> Field:
        nullable = Span.of(raw.get("nullableVersions", "none")).within(versions)
        tagged = Span.of(raw.get("taggedVersions", "none")).within(versions)
        if not nullable.within(self._valid):
            nullable = NEVER  # it was, in versions that Kafka has removed
        if (nullable and nullable.highest < versions.highest) or (tagged and tagged != versions):
            raise ValueError(f"{self._message}.{raw['name']}: schema.py cannot say this")
        kind = raw["type"].removeprefix("[]")
        default = DEFAULTS.get(f"{self._message}.{raw['name']}", raw.get("default"))
        options = (
            f"tag={raw['tag']}" if tagged else "",
            default_of(kind, None if default is None else str(default)),
        )
        kind = STRUCTURES.get(f"{self._message}.{kind}", kind)
        name = snake(FIELDS.get(raw["name"], raw["name"]))
        type_ = f"[]{kind}" if raw["type"].startswith("[]") else kind
        return Field(name, type_, versions, nullable, tuple(filter(None, options)), raw.get("ignorable", False))


def messages(api: str, spoken: Span, schemas: Mapping[str, dict[str, Any]]) -> Iterator[Classes]:
    """The answer, then the request, which names it."""
    request, answer = f"{api}Request", f"{api}Response"
    schema = schemas[request]
    valid = Span.of(schema["validVersions"])
    if spoken.within(valid) != spoken:
        raise ValueError(f"Kafka {KAFKA_VERSION} has {api} in {valid}, not in {spoken}")
    # A broker may speak lower versions than a client.
    around = Span(0, spoken.highest)
    flexible = Span.of(schema["flexibleVersions"]).lowest
    constants = {
        "API_KEY": schema["apiKey"],
        "MIN_VERSION": spoken.lowest,
        "MAX_VERSION": spoken.highest,
        "FLEXIBLE_SINCE": "LAST" if flexible == LAST else flexible,
        "RESPONSE": answer,
    }
    yield Classes(schemas[answer], around, Structure(answer, "Response", f"The answer to `{request}`.", around))
    yield Classes(schema, around, Structure(request, f"Request[{answer}]", ABOUT[api], around, constants))


def imports(body: str) -> str:
    code = re.sub(r'""".*?"""', "", body, flags=re.DOTALL)
    words = set(re.findall(r"\w+", code))
    used = words & (DECLARES | {name for name, _ in SCALARS.values()})
    # Constants, classes, functions, and numbers in names as numbers: so ruff sorts.
    order = sorted(used, key=lambda name: (not name.isupper(), not name[0].isupper(), name.replace("INT8", "INT08")))
    line = f"from aiogroup._core.protocol.schema import {', '.join(order)}"
    if len(line) > WIDTH:
        line = "\n".join(["from aiogroup._core.protocol.schema import (", *(f"    {name}," for name in order), ")"])
    if "UUID" in words:
        line = f"from typing import TYPE_CHECKING\n\n{line}\n\nif TYPE_CHECKING:\n    from uuid import UUID"
    return line


def module(apis: Mapping[str, tuple[int, int]], schemas: Mapping[str, dict[str, Any]]) -> str:
    """The text of a module with these APIs."""
    known: dict[str, Structure] = {}
    for api, versions in apis.items():
        for classes in messages(api, Span(*versions), schemas):
            for name, each in classes.found.items():
                if known.setdefault(name, each).lines() != each.lines():
                    raise ValueError(f"{api} has another {name} than a message before it: name it in STRUCTURES")
    body = "\n\n\n".join(each.text() for each in known.values())
    named = ", ".join(f"{api} ({schemas[f'{api}Request']['apiKey']})" for api in apis)
    head = docstring(f"{named}.", "").removesuffix('"""').rstrip()
    return f'{head}\n\n{MADE}\n"""\n\nfrom __future__ import annotations\n\n{imports(body)}\n\n\n{body}\n'


def schemas() -> dict[str, dict[str, Any]]:
    """Kafka's schemas by the names of their messages."""
    (jar,) = (path for path in jars() if path.name == f"kafka-clients-{KAFKA_VERSION}.jar")
    with ZipFile(jar) as files:
        names = [name for name in files.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        texts = [files.read(name).decode() for name in names]
    # JSON with comments, each of which has a line of its own.
    found = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    return {each["name"]: each for each in found}


def modules() -> dict[Path, str]:
    """What is to be committed: the text of each module, by its place."""
    known = schemas()
    client = {f"_core/protocol/messages/{snake(api)}.py": {api: versions} for api, versions in CLIENT.items()}
    broker = {f"embedded/messages/{name}.py": apis for name, apis in BROKER.items()}
    return {ROOT / "aiogroup" / place: module(apis, known) for place, apis in {**client, **broker}.items()}


if __name__ == "__main__":
    for path, text in modules().items():
        path.write_text(text)
