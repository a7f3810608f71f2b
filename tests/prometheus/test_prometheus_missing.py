"""Without prometheus-client the import says which extra brings it."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["prometheus_client"] = None
try:
    import aiogroup.prometheus
except ModuleNotFoundError as error:
    print(error.name, error)
"""


def test_the_import_names_the_extra():
    told = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True).stdout
    assert told == (
        "prometheus_client aiogroup.prometheus needs prometheus-client: pip install 'aiogroup[prometheus]'\n"
    )
