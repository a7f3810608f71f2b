"""`make fuzz MINUTES=60`: mutated input for the sanitized C, each held against the Python (differential.py).

An input that takes new steps through the C is kept and mutated further. The input that ends the process, by a
sanitizer, a difference or a hang, is left in a file; `make fuzz INPUT=<file>` repeats it. `--keep` writes the inputs
that were needed for all steps into the corpus.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import hashlib
import mmap
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from aiogroup._core import native
from aiogroup._core.protocol.framing import encode_response
from aiogroup._core.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.fetching import wire_batches as w
from tests.native.differential import HEADER, TARGETS, check

CORPUS = Path(__file__).parent / "corpus"
AT_MOST_BYTES = 6_000
CORPUS_BYTES = 30_000
"""Of one target, so that all of them stay small in the tree."""
ROUND_SECONDS = 20
NUMBERS = [
    w.varint(each)
    for each in (-1, -2, 0, 1, 2, 63, 64, 512, 513, 4096, 4097, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
] + [b"\xff" * 10, b"\x80" * 9, b"\x80" * 10 + b"\1", b"\xff" * 5, b"\x80\0"]
FIELDS = [0, 1, 2, 0xFF, 0x7FFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def corpus():
    """The inputs of the tree, by target."""
    return {
        target: [bytes.fromhex(line) for line in (CORPUS / f"{target}.txt").read_text().split()] for target in TARGETS
    }


def seeds():
    """What is well-formed, to begin with."""
    batches = [
        w.built(1),
        w.built(4, 9, epoch=4),
        w.batch([w.Sent(5, b"k", b"v" * 600, 7, [("h", b"x"), ("h", None)]), w.Sent(9, None, None)]),
        w.batch([w.Sent(70, b"", b"v" * 2_000, 7)], attributes=w.LOG_APPEND_TIME),
        w.batch([w.Sent(80), w.Sent(81)], attributes=w.TRANSACTIONAL, producer=3),
        w.marker(90, 3, abort=True),
        w.message(100, b"k", b"v"),
        w.built(3, 2**62),
    ]
    for number, batch in enumerate(batches):
        rest = b"".join(batches[number + 1 :])
        for flags in (0, 3, 6, 11):
            yield bytes([0, flags, 3, 0]) + batch + rest
        yield bytes([2, 0, 0, 5]) + batch + rest
    for version in range(12, FetchRequest.MAX_VERSION + 1):
        for has_ids in (version >= 13, version < 13):
            yield bytes([1, has_ids, version, 0]) + answer(version)
    for transactions in (0, 1):
        yield bytes([3, 0, 0, 0]) + answer(FetchRequest.MAX_VERSION, transactions)


def answer(version, transactions=1):
    parts = tuple(
        PartitionData(
            number, 0, 10, records=records, aborted_transactions=(AbortedTransaction(3, 5),) * number * transactions
        )
        for number, records in enumerate((None, b"", b"r" * 90, b"s" * 300))
    )
    topics = tuple(FetchableTopicResponse(partitions=parts[count:]) for count in (0, 3, 4))
    return encode_response(FetchRequest, FetchResponse(responses=topics, session_id=3), version, 7)


def mutated(rng, data, other):
    """Some changes, each of a kind that finds something in formats of lengths and counts."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(4, len(data)) if len(data) > 4 else len(data)
        match rng.randrange(10):
            case 0 | 1 if at < len(data):
                data[at] = (
                    rng.choice((rng.randrange(256), data[at] ^ 1 << rng.randrange(8), data[at] - 1, data[at] + 1)) % 256
                )
            case 2:
                data[at:at] = rng.choice(NUMBERS)
            case 3:
                data[at : at + rng.choice((0, 1, 1, 2, 5))] = rng.choice(NUMBERS)
            case 4:
                size = rng.choice((1, 2, 4, 8))
                data[at : at + size] = (rng.choice(FIELDS) % 256**size).to_bytes(size, "big")
            case 5:
                del data[at : at + rng.choice((1, 1, 2, 8, 100))]
            case 6:
                del data[at:]
            case 7:
                data[at:at] = data[at : at + rng.choice((1, 4, 60, 200))]
            case 8 if len(other) > 4:
                here = rng.randrange(4, len(other))
                data[at:] = other[here:]
            case 9 if len(data) >= 4:
                data[rng.randrange(1, 4)] = rng.randrange(256)
            case _ if len(data) >= 4 + HEADER:
                field, size = rng.choice(((0, 8), (8, 4), (21, 2), (23, 4), (27, 8), (35, 8), (57, 4)))
                data[4 + field : 4 + field + size] = (rng.choice(FIELDS) % 256**size).to_bytes(size, "big")
    return bytes(data[:AT_MOST_BYTES])


class Steps:
    """How many new steps through the C the last inputs took; where the build does not tell, by what came of them."""

    def __init__(self):
        self._library = None
        if native.IS_COMPILED:
            library = ctypes.CDLL(sys.modules["aiogroup._core.native._native"].__file__)
            if hasattr(library, "aiogroup_new_steps"):
                self._library = library
                library.aiogroup_forget_steps()
        self._outcomes = set()

    def new(self, outcome):
        is_new = outcome not in self._outcomes
        self._outcomes.add(outcome)
        return self._library.aiogroup_new_steps() if self._library is not None else is_new


class Hunt:
    def __init__(self, seed, current):
        self.rng = random.Random(seed)
        self.current = current
        self.steps = Steps()
        self.kept = {target: [] for target in TARGETS}
        self.outcomes = Counter()
        self.rounds = 0

    def run(self, data):
        """One round. The parent sees its input in memory that both share, whatever ends this process."""
        self.current[: 4 + len(data)] = len(data).to_bytes(4, "big") + data
        signal.alarm(ROUND_SECONDS)
        outcome = check(data)
        signal.alarm(0)
        self.outcomes[outcome] += 1
        self.rounds += 1
        if self.steps.new(outcome):
            self.kept[TARGETS[data[0] % len(TARGETS)]].append(data)

    def mutate(self):
        target = self.rng.choice(TARGETS)
        known = self.kept[target]
        # What came last is what was followed least so far.
        data = known[-1 - int(self.rng.random() ** 2 * len(known))]
        self.run(data[:1] + mutated(self.rng, data, self.rng.choice(known))[1:])


def smallest(inputs):
    """Those of one target that are needed for all steps, short ones first, as far as there is room."""
    steps, needed, room = Steps(), [], CORPUS_BYTES
    for data in sorted(inputs, key=lambda each: (len(each), each)):
        if steps.new(check(data)) and len(data) <= room:
            needed.append(data)
            room -= len(data)
    return needed


def main():
    words = argparse.ArgumentParser(prog="python -m tests.native.fuzz", description=__doc__.splitlines()[0])
    words.add_argument("--minutes", type=float, default=60)
    words.add_argument("--seed", type=int, default=int(time.time()))
    words.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="for what is found")
    words.add_argument("--input", type=Path, help="run this one alone")
    words.add_argument("--keep", action="store_true", help="write what new steps needed into the corpus of the tree")
    words.add_argument("--corpus", type=Path, default=CORPUS, help="where --keep writes it")
    asked = words.parse_args()
    if not native.IS_COMPILED:
        raise SystemExit("error: the C is not compiled here, and there is nothing to fuzz: use `make fuzz`")
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)  # where a round hangs
    if asked.input is not None:
        print(check(asked.input.read_bytes()))
        return
    current = mmap.mmap(-1, 4 + 2 * AT_MOST_BYTES)
    child = os.fork()
    if not child:
        go_on(asked, current)
        return
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        data = current[4 : 4 + int.from_bytes(current[:4], "big")]
        asked.folder.mkdir(parents=True, exist_ok=True)
        found = asked.folder / f"found-{hashlib.sha256(data).hexdigest()[:12]}.bin"
        found.write_bytes(data)
        raise SystemExit(f"error: the process of the rounds ended with {code}; its last input is in {found.resolve()}")


def go_on(asked, current):
    hunt = Hunt(asked.seed, current)
    began_at = time.monotonic()
    for data in [*seeds(), *(each for inputs in corpus().values() for each in inputs)]:
        hunt.run(data)
    told_at = began_at
    while (now := time.monotonic()) < began_at + asked.minutes * 60:
        for _ in range(100):
            hunt.mutate()
        if now > told_at + 60:
            told_at = now
            tell(hunt, now - began_at)
    tell(hunt, time.monotonic() - began_at)
    for outcome, count in sorted(hunt.outcomes.items()):
        print(f"{count:>9,}  {outcome}")
    if asked.keep:
        for target, inputs in hunt.kept.items():
            (asked.corpus / f"{target}.txt").write_text("".join(f"{each.hex()}\n" for each in smallest(inputs)))


def tell(hunt, seconds):
    kept = sum(map(len, hunt.kept.values()))
    print(f"{seconds / 60:.1f} minutes, {hunt.rounds:,} rounds, {kept} inputs kept", flush=True)


if __name__ == "__main__":
    main()
