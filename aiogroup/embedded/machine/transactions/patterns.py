"""Regular expressions of clients, in the syntax of RE2, which Kafka takes for them: no look-around, no back references,
and the effort grows with the length of the text, not beyond all bounds.

Each part of an expression leads from places in the text to places in the text. Nothing is tried twice.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Pattern", "PatternError"]

MOST_REPEATS: Final = 1_000
MOST_STEPS: Final = 1_000_000
"""Of one match; an expression that needs more is refused, too."""
MOST_DEPTH: Final = 100

Test: TypeAlias = Callable[[str], bool]
Places: TypeAlias = "set[int]"
Part: TypeAlias = "Callable[[_Run, Places], Places]"

_DIGITS, _WORD, _SPACE = (
    frozenset(string.digits),
    frozenset(f"{string.ascii_letters}{string.digits}_"),
    frozenset("\t\n\f\r "),
)
_CLASSES: Final[dict[str, frozenset[str]]] = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_NAMED: Final[dict[str, frozenset[str]]] = {
    "alnum": _WORD - {"_"},
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": _DIGITS,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CATEGORY: Final = re.compile(r"C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")


class PatternError(Exception):
    """It is no expression that RE2 takes, or it needs too much."""


class Pattern:
    """An expression. A text matches as a whole.

    Raises:
        PatternError: RE2 would not take it.
    """

    def __init__(self, text: str) -> None:
        self._part = _Parser(text).parsed()

    def matches(self, text: str) -> bool:
        """Whether the whole text matches.

        Raises:
            PatternError: that would take too long.
        """
        return len(text) in self._part(_Run(text), {0})


class _Run:
    """One match."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = 0

    def spend(self, places: Places) -> None:
        self._steps += len(places) + 1
        if self._steps > MOST_STEPS:
            raise PatternError(f"to match it takes more than {MOST_STEPS} steps")


# Parts.


def _one(test: Test) -> Part:
    def lead(run: _Run, places: Places) -> Places:
        run.spend(places)
        text = run.text
        return {each + 1 for each in places if each < len(text) and test(text[each])}

    return lead


def _where(is_there: Callable[[str, int], bool]) -> Part:
    def lead(run: _Run, places: Places) -> Places:
        run.spend(places)
        return {each for each in places if is_there(run.text, each)}

    return lead


def _sequence(parts: list[Part]) -> Part:
    def lead(run: _Run, places: Places) -> Places:
        for part in parts:
            places = part(run, places)
            if not places:
                break
        return places

    return lead


def _any_of(parts: list[Part]) -> Part:
    def lead(run: _Run, places: Places) -> Places:
        return set().union(*(part(run, places) for part in parts))

    return parts[0] if len(parts) == 1 else lead


def _repeated(part: Part, least: int, most: int | None) -> Part:
    def lead(run: _Run, places: Places) -> Places:
        for _ in range(least):
            run.spend(places)
            places = part(run, places)
        found, new, count = set(places), places, least
        while new and (most is None or count < most):
            run.spend(new)
            new = part(run, new) - found
            found |= new
            count += 1
        return found

    return lead


# Characters.


def _literal(char: str, ignores_case: bool) -> Test:
    return _folded(lambda one: one == char) if ignores_case else lambda one: one == char


def _folded(test: Test) -> Test:
    return lambda one: test(one) or test(one.lower()) or test(one.upper())


def _not(test: Test) -> Test:
    return lambda one: not test(one)


def _is_boundary(text: str, place: int) -> bool:
    before = place > 0 and text[place - 1] in _WORD
    return before is not (place < len(text) and text[place] in _WORD)


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._names: set[str] = set()
        self._depth = 0
        self._flags = frozenset[str]()

    def parsed(self) -> Part:
        part = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("a ) too many")
        return part

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._next()
        if not char:
            raise PatternError("it ends too early")
        self._at += 1
        return char

    def _eat(self, text: str) -> bool:
        has = self._text.startswith(text, self._at)
        self._at += len(text) if has else 0
        return has

    def _match(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern).match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return found

    def _alternatives(self) -> Part:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise PatternError("too many groups within each other")
        branches = [self._branch()]
        while self._eat("|"):
            branches.append(self._branch())
        self._depth -= 1
        return _any_of(branches)

    def _branch(self) -> Part:
        parts: list[Part] = []
        while self._next() not in ("", "|", ")"):
            if self._eat("\\Q"):
                quoted, _, _ = self._text[self._at :].partition("\\E")
                self._at += len(quoted)
                self._eat("\\E")
                parts += [_one(_literal(each, "i" in self._flags)) for each in quoted]
                continue
            parts.append(self._with_repeats(self._atom()))
        return _sequence(parts)

    def _with_repeats(self, part: Part) -> Part:
        found = self._match(r"[*+?]|\{([0-9]+)(,?)([0-9]*)\}")
        if found is None or (found[0][0] == "{" and found[3] and not found[2]):
            return part
        self._eat("?")
        if re.compile(r"[*+?]|\{[0-9]+(?:,[0-9]*)?\}").match(self._text, self._at):
            raise PatternError("a repetition of a repetition")
        if found[0][0] != "{":
            return _repeated(part, int(found[0] == "+"), 1 if found[0] == "?" else None)
        least = int(found[1][:9])
        most = int(found[3][:9]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise PatternError(f"{found[0]}: at most {MOST_REPEATS}")
        return _repeated(part, least, most)

    def _atom(self) -> Part:
        char = self._take()
        if char in "*+?":
            raise PatternError(f"nothing is repeated by {char}")
        if char == "(":
            return self._group()
        if char == "[":
            return _one(self._class())
        if char == ".":
            return _one(lambda one: True) if "s" in self._flags else _one(lambda one: one != "\n")
        is_multiline = "m" in self._flags
        if char == "^":
            return _where(lambda text, at: at == 0 or (is_multiline and text[at - 1] == "\n"))
        if char == "$":
            return _where(lambda text, at: at == len(text) or (is_multiline and text[at] == "\n"))
        if char == "\\" and self._next() in ("A", "z", "b", "B"):
            kind = self._take()
            if kind in "bB":
                return _where(lambda text, at: _is_boundary(text, at) is (kind == "b"))
            return _where(lambda text, at: at == (0 if kind == "A" else len(text)))
        if char == "\\" and (test := self._kind()) is not None:
            return _one(test)
        return _one(_literal(self._escaped() if char == "\\" else char, "i" in self._flags))

    def _group(self) -> Part:
        outside = self._flags
        if self._eat("?"):
            named = self._match(r"P?<([A-Za-z0-9_]+)>")
            if named is not None:
                if named[1] in self._names:
                    raise PatternError(f"two groups have the name {named[1]}")
                self._names.add(named[1])
            else:
                found = self._match(r"([imsU]*)(?:-([imsU]+))?([:)])")
                if found is None or found[0] == ")":
                    raise PatternError("RE2 has no such group")
                self._flags = (self._flags | set(found[1])) - set(found[2] or "")
                if found[3] == ")":
                    return _sequence([])
        part = self._alternatives()
        if not self._eat(")"):
            raise PatternError("a ) is missing")
        self._flags = outside
        return part

    # Characters.

    def _kind(self) -> Test | None:
        r"""What follows a backslash and stands for several characters: `\d`, `\pL`."""
        kind = self._next()
        if kind and kind in "dwsDWS":
            chars = _CLASSES[self._take().lower()]
            return _not(chars.__contains__) if kind.isupper() else chars.__contains__
        if kind not in ("p", "P"):
            return None
        self._take()
        found = self._match(r"\{(\^?)([A-Za-z_]+)\}|()([A-Z])")
        if found is None:
            raise PatternError(f"\\{kind} without a category")
        name = found[2] or found[4]
        if _CATEGORY.fullmatch(name) is None and name != "Any":
            raise PatternError(f"the embedded broker does not know the characters of {name}")

        def is_of(one: str) -> bool:
            return name == "Any" or unicodedata.category(one).startswith(name)

        return _not(is_of) if (kind == "P") is not bool(found[1]) else is_of

    def _escaped(self) -> str:
        """The one character that the rest of an escape stands for."""
        found = self._match(r"x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|(0[0-7]{0,2}|[1-7][0-7]{1,2})")
        if found is not None:
            number = int(found[3], 8) if found[3] else int(found[1] or found[2], 16)
            if number > 0x10FFFF:
                raise PatternError(f"\\{found[0]} is no character")
            return chr(number)
        char = self._take()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if ord(char) >= 0x80 or char.isalnum():
            raise PatternError(f"RE2 has no \\{char}")
        return char

    def _class(self) -> Test:
        is_negated = self._eat("^")
        tests: list[Test] = []
        is_first = True
        while is_first or self._next() != "]":
            is_first = False
            named = self._match(r"\[:(\^?)([a-z]+):\]")
            if named is not None:
                if named[2] not in _NAMED:
                    raise PatternError(f"there is no class {named[2]}")
                within = _NAMED[named[2]].__contains__
                tests.append(_not(within) if named[1] else within)
            elif self._next() == "\\" and self._text[self._at + 1 : self._at + 2] in tuple("dwsDWSpP"):
                self._take()
                kind = self._kind()
                assert kind is not None
                tests.append(kind)
            else:
                tests.append(self._range())
        self._take()
        folded = [_folded(each) for each in tests] if "i" in self._flags else tests
        return lambda one: any(each(one) for each in folded) is not is_negated

    def _range(self) -> Test:
        first = last = self._one_of_class()
        if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._take()
            last = self._one_of_class()
        if last < first:
            raise PatternError(f"{first}-{last} is no range")
        return lambda one: first <= one <= last

    def _one_of_class(self) -> str:
        return self._escaped() if self._eat("\\") else self._take()
