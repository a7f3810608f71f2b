"""The tutorials in docs: a reader's files are made of their blocks, and what the pages promise happens.

These run on an embedded broker of their own, as the pages say.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from aiogroup.embedded import Broker
from tests.support.kafka import eventually

ROOT = Path(__file__).parents[2]
PAGES = {path.stem.removeprefix("tutorial-"): path.read_text() for path in (ROOT / "docs").glob("tutorial-*.md")}
ORDER_SERVICE = ("fastapi", "testing", "kubernetes")
"""These pages go on in one folder."""


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], re.DOTALL)


def write_files(folder, *pages):
    """What a reader has saved after these pages: a block begins with `# name` or, where it is added, `# in name`."""
    for page in pages:
        for block in blocks(page, "python"):
            is_added, name = re.match(r"# (in )?(\w+\.py)\n", block).groups()
            place = folder / name
            assert place.exists() == bool(is_added), f"{page}: {name}"
            place.write_text((place.read_text() + "\n\n" if is_added else "") + block)
        for block in blocks(page, "toml"):
            (folder / "pyproject.toml").write_text(block)


@pytest.fixture
def start(tmp_path):
    """Start a program of the folder; its output is in a file."""
    began = []

    def begin(*command, **variables):
        said = tmp_path / f"said-{len(began)}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "", **variables}
        with said.open("wb") as out:
            running = subprocess.Popen(
                [sys.executable, *command], cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        began.append(running)
        return running, said

    yield begin
    for each in began:
        each.kill()
        each.wait()


def test_every_tutorial_is_in_one_of_these_tests():
    assert set(PAGES) == {"first-group", *ORDER_SERVICE}


async def test_the_first_group(tmp_path, start):
    write_files(tmp_path, "first-group")
    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        for path in tmp_path.glob("*.py"):
            path.write_text(path.read_text().replace("localhost:9092", broker.bootstrap_servers))

        async def produce(count):
            running, said = start("produce.py", str(count))
            assert await asyncio.to_thread(running.wait, 60) == 0
            assert said.read_text() == f"wrote {count}\n"

        def offsets(*outputs):
            found = (re.findall(r"partition (\d), offset (\d+): b'order", each.read_text()) for each in outputs)
            return [(int(partition), int(offset)) for each in found for partition, offset in each]

        await produce(8)
        first, heard = start("worker.py")
        await eventually(lambda: len(offsets(heard)) == 8, 60)
        assert "mine: [0, 1, 2, 3]" in heard.read_text()
        second, heard_too = start("worker.py")
        await eventually(lambda: re.search(r"^mine: .+\n", heard_too.read_text(), re.MULTILINE), 60)
        await eventually(lambda: re.search(r"given back: \[0, 1, 2, 3\]\nmine: .+\n", heard.read_text()), 60)
        shares = [re.findall("mine: (.+)", each.read_text())[-1] for each in (heard, heard_too)]
        assert sorted(shares) == ["[0, 1]", "[2, 3]"]  # which of the two gets which is chance
        await produce(60)
        await eventually(lambda: len(offsets(heard_too)) > 3, 60)
        second.send_signal(signal.SIGKILL)
        assert f"process {second.pid}\n" in heard_too.read_text()
        await eventually(lambda: heard.read_text().count("mine: [0, 1, 2, 3]") == 2, 60)
        expected = {(partition, offset) for partition in range(4) for offset in range(17)}
        await eventually(lambda: set(offsets(heard, heard_too)) == expected, 60)
        first.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(first.wait, 30) == 0
        assert "Traceback" not in heard.read_text()
        assert broker.group("billing").members == ()
        assert [broker.committed("billing")["orders", partition] for partition in range(4)] == [17] * 4


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


def asked(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


async def test_the_service_in_fastapi(tmp_path, start):
    page = re.sub(r"```python\n# in app\.py\n.*?```", "", PAGES["fastapi"], flags=re.DOTALL)
    for block in re.findall(r"```python\n(# (\w+\.py)\n.*?)```", page, re.DOTALL):
        (tmp_path / block[1]).write_text(block[0])
    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        running, said = start(
            *("-m", "uvicorn", "app:app", "--port", port := str(free_port())),
            KAFKA_BOOTSTRAP_SERVERS=broker.bootstrap_servers,
        )
        sender = tmp_path / "send.py"
        sender.write_text(sender.read_text().replace("localhost:9092", broker.bootstrap_servers))
        url = f"http://127.0.0.1:{port}"

        async def ask(path):
            return await asyncio.to_thread(asked, url + path)

        async def answers(path, status, text):
            there, body = await ask(path)
            return there == status and text in body

        await eventually(lambda: answers("/aiogroup/readyz", 200, "ready"), 60)
        assert "INFO:aiogroup:rebalance_completed " in said.read_text()
        sending = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, str(sender)],
            input=b'{"customer": "ada", "amount": 30}\n{"customer": "ada", "amount": 12}\n',
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=False,
        )
        assert sending.stdout == b"sent 2\n", sending.stderr
        await eventually(lambda: answers("/totals/ada", 200, '{"ada":42}'), 30)
        await eventually(lambda: answers("/lag", 200, '"orders-0":0,"orders-1":0,"orders-2":0,"orders-3":0'), 30)
        assert (await ask("/aiogroup/livez"))[0] == 200
        assert "aiogroup_lag_records" in (await ask("/aiogroup/metrics"))[1]
        broker.produce("orders", b'{"customer": "bob"}', partition=0)
        broker.produce("orders", b'{"customer": "eve", "amount": 5}', partition=0)
        await eventually(lambda: said.read_text().count("loop_failed") >= 2, 60)
        assert "KeyError" in said.read_text()
        assert await answers("/totals/eve", 200, '{"eve":0}')
        running.send_signal(signal.SIGINT)
        await asyncio.to_thread(running.wait, 40)
        assert broker.group("order-service").members == ()


def test_the_tests_of_the_service_pass(tmp_path):
    write_files(tmp_path, "fastapi", "testing")
    plugins = (
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "aiogroup_pytest",
    )  # which pytest finds by itself where it is installed
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr


async def test_the_program_of_the_container_answers_probes_and_ends_with_0(tmp_path, start):
    write_files(tmp_path, "fastapi", "kubernetes")
    deployment, scaled = (yaml.safe_load(block) for block in blocks("kubernetes", "yaml"))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    port = str(free_port())
    main = tmp_path / "main.py"
    assert f"port={container['ports'][0]['containerPort']}" in main.read_text()
    main.write_text(main.read_text().replace("port=8000", f"port={port}").replace("0.0.0.0", "127.0.0.1"))
    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        running, said = start("main.py", KAFKA_BOOTSTRAP_SERVERS=broker.bootstrap_servers)
        for probe in ("readinessProbe", "livenessProbe"):
            url = f"http://127.0.0.1:{port}{container[probe]['httpGet']['path']}"

            async def is_good(url=url):
                return (await asyncio.to_thread(asked, url))[0] == 200

            await eventually(is_good, 60)
        query = scaled["spec"]["triggers"][1]["metadata"]["query"]
        (name,) = re.findall(r"sum\((\w+)\{", query)
        labels = re.findall(r'\w+="[\w-]+"', query)

        async def are_told():
            _, figures = await asyncio.to_thread(asked, f"http://127.0.0.1:{port}/aiogroup/metrics")
            return all(re.search(rf"^{name}\{{.*{label}", figures, re.MULTILINE) for label in labels)

        assert len(labels) == 2
        await eventually(are_told, 30)  # what is not known yet is absent
        running.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait, 40) == 0, said.read_text()
        assert broker.group("order-service").members == ()


def test_the_times_of_the_pod_fit_each_other():
    deployment, scaled = (yaml.safe_load(block) for block in blocks("kubernetes", "yaml"))
    (main,) = blocks("kubernetes", "python")
    (graceful,) = re.findall(r"timeout_graceful_shutdown=(\d+)", main)
    stop_s = 20  # Service's stop_timeout_ms
    assert "`stop_timeout_ms` | `20000`" in (ROOT / "docs/service.md").read_text()
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= int(graceful) + stop_s + 3
    kafka = scaled["spec"]["triggers"][0]["metadata"]
    service = blocks("fastapi", "python")[0]
    assert f'group_id="{kafka["consumerGroup"]}"' in service
    assert f'auto_offset_reset="{kafka["offsetResetPolicy"]}"' in service
    assert "--partitions 4" in PAGES["fastapi"]
    assert scaled["spec"]["maxReplicaCount"] == 4
