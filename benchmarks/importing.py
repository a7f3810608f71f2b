"""The cost of an import: `python -m benchmarks.importing [--rounds 7]`, aiogroup beside aiokafka, on which it builds.

Every run is a new process that imports one of the two and nothing before it; the clients take turns. The files are
compiled beforehand, in a folder of their own, whatever the environment says about that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.results import Table
from benchmarks.turns import LIMIT_S, STDERR_CHARS, take_turns

ROUNDS = 7
SCENARIO = "import"
AIOKAFKA, AIOGROUP = "aiokafka", "aiogroup"
CLIENTS = (AIOKAFKA, AIOGROUP)
COLUMNS = (
    ("wall_ms", "import ms", "median"),
    ("cpu_ms", "CPU ms", "median"),
    ("modules", "modules", "median"),
)
SCRIPT = """
import sys, time
before, wall, cpu = len(sys.modules), time.perf_counter(), time.process_time()
import {client}
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
modules = len(sys.modules) - before
import json
print(json.dumps({{"wall_ms": wall * 1000, "cpu_ms": cpu * 1000, "modules": modules}}))
"""


def table() -> Table:
    return Table("import", COLUMNS, base=AIOKAFKA, ratio_of="cpu_ms")


def imported(client: str, compiled: str) -> dict[str, Any]:
    """One import in a process of its own; the compiled files are kept in the folder `compiled`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(client=client)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**environment, "PYTHONPYCACHEPREFIX": compiled},
    )
    if done.returncode:
        return {"failed": done.stderr[-STDERR_CHARS:].strip() or f"exit {done.returncode}"}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def imports(rounds: int, into: Table) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as compiled:
        # The run that does not count imports aiogroup, and so aiokafka, too: afterwards both are compiled.
        for client, run in take_turns(CLIENTS, rounds, lambda client: imported(client, compiled)):
            into.row(SCENARIO, client).runs.append(run)
    yield into.markdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    for part in imports(parser.parse_args().rounds, table()):
        print(part)


if __name__ == "__main__":
    main()
