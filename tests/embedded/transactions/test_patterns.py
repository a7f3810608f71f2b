"""Patterns of ListTransactions: as RE2 reads them, which was asked of Kafka 4.3.1, and never slow."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiogroup.embedded.machine.transactions.patterns import Pattern, PatternError

NAMES = ("t", "ab", "aA1", "x.y")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a", ""),
        ("a.", "ab"),
        (".*", "t ab aA1 x.y"),
        ("(a+)+$", ""),
        ("[[:alpha:]]+", "t ab"),
        (r"\pL+", "t ab"),
        (r"\p{Lu}+", ""),
        ("(?P<n>ab)", "ab"),
        ("(?<n>ab)", "ab"),
        (r"\w\w\d", "aA1"),
        ("a*?b", "ab"),
        (r"ab\z", "ab"),
        ("(?i)AB", "ab"),
        ("(?i:A)b", "ab"),
        ("(?U)a.", "ab"),
        (r"\Qx.y\E", "x.y"),
        ("^ab$", "ab"),
        (r"\bab\b", "ab"),
        (r"[^\d]+", "t ab x.y"),
        ("a{,2}", ""),
        ("a{2", ""),
        (r"x\.y", "x.y"),
        ("(?s).*", "t ab aA1 x.y"),
        ("a|", ""),
        ("|ab", "ab"),
        (r"\x61b", "ab"),
        (r"\141b", "ab"),
        ("[a&&b]", ""),
        ("(?:a)b", "ab"),
        ("[]a]+b", "ab"),
        (r"\a", ""),
        (r"\07", ""),
    ],
)
def test_what_kafka_finds(pattern, found):
    wanted = Pattern(pattern)
    assert [each for each in NAMES if wanted.matches(each)] == found.split()


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "(?=a)b",
        r"(a)\1",
        "a{1001}",
        r"\C",
        "a**",
        "a++",
        "(?>a)",
        r"\Z",
        "(?x)a b",
        "[a-",
        "*a",
        r"\u0061b",
        "(?#c)ab",
    ],
)
def test_what_kafka_refuses(pattern):
    with pytest.raises(PatternError):
        Pattern(pattern)


def test_it_never_takes_long():
    text = "a" * 200
    for pattern in ("(a+)+b", "(a|a)*b", "((a*)*)*b", "(a?){200}a{200}b", "(.*)(.*)(.*)(.*)b"):
        assert not Pattern(pattern).matches(text)
    with pytest.raises(PatternError, match="steps"):
        Pattern("((a{1000}){1000}){1000}|" * 3 + ".*" * 50).matches("a" * 30_000)
    with pytest.raises(PatternError, match="steps"):
        Pattern("((((){1000}){1000}){1000}){1000}").matches("")
    with pytest.raises(PatternError, match="within each other"):
        Pattern("(" * 10_000)


@given(st.text("ab|()*+?.[]^{}1,-", max_size=12), st.text("ab1", max_size=5))
def test_it_finds_what_pythons_engine_finds(pattern, text):
    """But for what both read in another way: braces that are no repetition, and nested classes."""
    try:
        ours = Pattern(pattern)
    except PatternError:
        return
    if "{" in pattern or "[[" in pattern or "^" in pattern:
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # of what Python will read in another way one day
            theirs = re.compile(pattern)
    except re.error:
        return
    assert ours.matches(text) is bool(theirs.fullmatch(text))
