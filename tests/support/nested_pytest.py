"""pytest in a process of its own, for tests of what a plug-in makes it print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
# With these variables pytest repeats each message in its summary, so the output would depend on where it runs.
SAYS_BUILD_SERVER = ("CI", "BUILD_NUMBER")


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder whose modules it can import, with aiogroup's plug-in and the named ones only."""
    environment = {name: value for name, value in os.environ.items() if name not in SAYS_BUILD_SERVER}
    environment |= {"PYTHONPATH": f"{ROOT}:{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "aiogroup_pytest", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
