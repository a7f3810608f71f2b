"""The whole of it: a service that hands its backlog to jobs, Spark, Parquet, and the second commit log between them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark import java_options, table_jars, why_no_spark

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("into_table", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_service_stays_at_the_head_while_spark_drains_its_backlog(tmp_path, into_table):
    if why := why_no_spark():
        pytest.skip(why)
    table = ["--table", "--jars", *map(str, table_jars())] if into_table else []
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "examples/backlog_with_spark.py"),
            "--records",
            "8000",
            "--lake",
            str(tmp_path),
            *table,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": java_options()},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0 missing, 0 twice" in done.stdout.splitlines()[-1]
    assert len({path.name for path in tmp_path.glob("bills/slice=orders-*")}) == (0 if into_table else 4)
