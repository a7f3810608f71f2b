"""docs/comparison.md: each cell of its table has its evidence, in its second table."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import confluent_kafka
import pytest

ROOT = Path(__file__).parents[1]


def table(path: Path, after: str) -> dict[str, list[str]]:
    """The rows of the first table behind a text: what is compared, and the cells."""
    lines = path.read_text().split(after, 1)[1].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    rows = {}
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        label, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        rows[label] = cells
    return rows


EVIDENCE = table(ROOT / "docs/comparison.md", "## The evidence")
CLAIMS = [
    claim.strip()
    for cells in EVIDENCE.values()
    for cell in cells
    for claim in cell.split("; ")
    if not claim.startswith(("the list", "librdkafka has"))
]


def test_each_cell_of_the_comparison_has_its_evidence():
    compared = table(ROOT / "docs/comparison.md", "# Beside other clients")
    assert len(compared) > 20
    assert list(EVIDENCE) == list(compared)
    for label, cells in EVIDENCE.items():
        assert len(cells) == len(compared[label]) == 3, label
        assert all(cells), label


def exists(name: str) -> bool:
    """Whether a file of an installed package, or a dotted name of it, exists."""
    package, *rest = re.split(r"[./]", name)
    if "/" in name:
        return (Path(str(importlib.import_module(package).__file__)).parent.parent / name).exists()
    value = importlib.import_module(package)
    for number, part in enumerate(rest):
        if not hasattr(value, part):
            try:
                value = importlib.import_module(".".join([package, *rest[: number + 1]]))
            except ImportError:
                return False
        else:
            value = getattr(value, part)
    return True


def is_taken(setting: str) -> bool:
    name, _, value = setting.partition("=")
    secure = {"security.protocol": "sasl_ssl", "sasl.username": "a", "sasl.password": "b"}
    try:
        consumer = confluent_kafka.Consumer(
            {"group.id": "g", name: value, **(secure if name.startswith("sasl") else {})}
        )
    except confluent_kafka.KafkaException:
        return False
    consumer.close()
    return True


def holds(claim: str, seen: list[str]) -> bool:
    match claim.split("`"):
        case ["", test, ""] if test.startswith("tests/"):
            path, _, name = test.partition("::")
            return re.search(rf"\bdef {name}\(" if name else "def test_", (ROOT / path).read_text()) is not None
        case ["", name, ""]:
            return exists(name)
        case ["no ", name, ""]:
            return not exists(name)
        case ["takes ", setting, ""]:
            return is_taken(setting)
        case ["refuses ", setting, ""]:
            return not is_taken(setting)
        case ["", text, " is in ", path, ""]:
            seen.append(text)
            return text in source(path)
        case ["", text, " is not in ", path, ""]:
            return text not in source(path)
        case ["it is not in ", path, ""]:
            return seen[-1] not in source(path)
    raise AssertionError(f"not a form that the page names: {claim}")


def source(path: str) -> str:
    package = importlib.import_module(path.partition("/")[0])
    return (Path(str(package.__file__)).parent.parent / path).read_text()


def test_the_evidence_holds():
    seen: list[str] = []
    broken = [claim for claim in CLAIMS if not holds(claim, seen)]
    assert len(CLAIMS) > 75
    assert broken == []


@pytest.mark.parametrize(
    "claim", ["`tests/test_types.py::test_none`", "no `aiokafka.AIOKafkaConsumer`", "`aiokafka.None`"]
)
def test_evidence_that_does_not_hold_is_noticed(claim):
    assert not holds(claim, [])
