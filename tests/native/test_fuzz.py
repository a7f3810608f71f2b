"""What the fuzzer kept in a minute: inputs that together take every step through the C which it had found."""

from __future__ import annotations

import random

import pytest

from aiogroup._core import native
from aiogroup._core.native import fetch, frames, pure
from tests.fetching import wire_batches as w
from tests.native import fuzz
from tests.native.differential import TARGETS, check

compiled = pytest.mark.skipif(not native.IS_COMPILED, reason="nothing to compare: no compiler was there")


@compiled
@pytest.mark.parametrize("target", TARGETS)
def test_c_and_python_agree_on_the_corpus(target):
    inputs = fuzz.corpus()[target]
    assert len(inputs) >= 10
    told = {check(data) for data in inputs}
    assert all(each.startswith(target) for each in told)
    assert len(told) > 5


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for path in fuzz.CORPUS.iterdir()) < 200_000


PLANTED = {
    "reader": (pure.Reader, "read", lambda read: lambda self, *args: read(self, *args)[1:]),
    "frame": (frames, "next_records", lambda find: lambda *args: (find(*args)[0], 0)),
    "extent": (pure, "extent", lambda extent: lambda *args: (5, extent(*args)[1])),
    "answer": (fetch, "read_fetch", lambda read: lambda *args: read(*args[:5], (1, 2, 4))),
}


@compiled
@pytest.mark.parametrize("target", TARGETS)
def test_a_difference_is_seen(target, monkeypatch):
    where, name, spoiled = PLANTED[target]
    monkeypatch.setattr(where, name, spoiled(getattr(where, name)))
    well_formed = [each for each in fuzz.seeds() if TARGETS[each[0]] == target]
    assert well_formed
    with pytest.raises(AssertionError):
        list(map(check, well_formed))


@compiled
def test_what_stands_after_a_batch_is_compared_too():
    told = check(bytes([0, 3, 3, 0]) + w.built(2) + w.built(2, 9))
    assert told == "reader fine batches=2 records=3 plain=2"


@compiled
def test_a_difference_in_what_is_read_at_once_is_seen(monkeypatch):
    read_plain = native.read_plain
    monkeypatch.setattr(native, "read_plain", lambda *args: (read_plain(*args)[0], 5))
    with pytest.raises(AssertionError):
        check(bytes([0, 3, 3, 0]) + w.built(2))


def test_a_mutation_leaves_the_length_within_bounds():
    rng = random.Random(1)
    data = b""
    for _ in range(2_000):
        data = fuzz.mutated(rng, data, w.built(20))
        assert len(data) <= fuzz.AT_MOST_BYTES
