"""docs/faststream.md: its code has types and does what it says, and its table of policies is that of the tests."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("faststream.kafka")

import mypy.api

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/faststream.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_block_passes_the_type_checker(tmp_path):
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"block_{number}.py").write_text(block)
    cache = str(ROOT / ".mypy_cache/faststream_page")
    options = ["--strict", "--no-error-summary", "--follow-imports=silent"]
    said, errors, code = mypy.api.run([*options, "--cache-dir", cache, str(tmp_path)])
    assert code == 0, said + errors


async def test_the_example_runs(aiogroup_broker, capsys):
    aiogroup_broker.create_topic("orders")
    aiogroup_broker.produce("orders", b'{"id": "17"}')
    names = {}
    exec(BLOCKS[0].replace("localhost:9092", aiogroup_broker.bootstrap_servers), names)
    running = asyncio.create_task(names["app"].run())
    await aiogroup_broker.until(lambda: aiogroup_broker.committed("billing").get(("orders", 0)) == 1)
    names["app"].exit()
    await running
    assert "{'id': '17'}" in capsys.readouterr().out
