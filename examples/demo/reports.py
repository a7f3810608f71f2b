"""Evaluates the members' reports: processed, repeated and lost records, and how long the hand-over took."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Report:
    """One member's report, read as it grows; a line that a SIGKILL cut off is ignored."""

    path: Path
    processed: list[tuple[Place, int]] = field(default_factory=list)
    """Each record with the instant at which it was processed, in nanoseconds of the machine's clock."""
    holds: set[int] = field(default_factory=set)
    """The partitions that are the member's now."""
    _read_bytes: int = 0

    def read(self) -> None:
        """Read the lines that were written since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(new)
        for line in new.splitlines():
            word, partition, offset, at_ns = line.split()
            match word:
                case b"processed":
                    self.processed.append(((int(partition), int(offset)), int(at_ns)))
                case b"assigned":
                    self.holds.add(int(partition))
                case b"revoked":
                    self.holds.discard(int(partition))


def times_processed(*reports: Report) -> Counter[Place]:
    """How often each record was processed."""
    return Counter(place for report in reports for place, _ in report.processed)


def hand_over_ms(survivor: Report, partitions: set[int], since_ns: int) -> int | None:
    """From `since_ns` to the survivor's first record of these partitions; `None` when there is none."""
    first = (at for (partition, _), at in survivor.processed if at > since_ns and partition in partitions)
    at_ns = next(first, None)
    return None if at_ns is None else (at_ns - since_ns) // 1_000_000
