"""The example that tunes the time-outs of a fleet by its own event log, from a day of rebalances to a calm one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark import why_no_spark

ROOT = Path(__file__).parents[2]
AS_A_USER = """
import runpy
from aiogroup._runtime.membership import loop_watchdog
loop_watchdog.TICK_MS = 5_000  # half of a calm day's work is the watchdog's
runpy.run_path("examples/tune_timeouts.py", run_name="__main__")
"""


def test_a_day_is_calm_with_the_settings_that_its_log_speaks_for():
    if why := why_no_spark():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-c", AS_A_USER],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"max_poll_interval_ms +change +60000 -> 120000", done.stdout), done.stdout
    assert re.search(r"registration_timeout_ms +change +None -> 120000", done.stdout)
    assert re.search(r"session_timeout_ms +keep +30000", done.stdout)
    assert re.search(r": 0 rebalances instead of [12]\d\d\.$", done.stdout.strip()), done.stdout
