"""What `make dist` builds is whole: each artifact is installed into an empty environment outside of the clone and used
there.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from aiogroup._core.native import IS_COMPILED
from aiogroup.devkafka.jars import aot_cache, cache_dir, classpath, java
from aiogroup.devkafka.ports import free_ports
from aiogroup.devkafka.waiting import wait_until
from tests.support.workers import by_one_worker
from tests.test_readme import README, reading_from

ROOT = Path(__file__).parents[2]
INSTALLERS = {"wheel": "pip==26.3", "sdist": "pip==22.3.1", "clone": "uv"}
"""Each artifact by another installer: the newest pip, the oldest that knows Python 3.11, and uv."""
IN_TURN = [
    artifact if artifact == "wheel" else pytest.param(artifact, marks=pytest.mark.thorough) for artifact in INSTALLERS
]
"""The wheel is built from the sdist, which is built from the clone."""
EXTRAS_LEFT_OUT = {
    "pyspark", "py4j", "pytest", "fastapi", "uvicorn", "faststream", "prometheus_client",
    "opentelemetry", "opentelemetry.instrumentation", "confluent_kafka",
}  # fmt: skip
LIMIT_S = 60

NAMES = """
import importlib.metadata, pkgutil
import aiogroup

assert aiogroup.__version__ == importlib.metadata.version("aiogroup")
assert not [name for name in aiogroup.__all__ if not hasattr(aiogroup, name)]
for each in pkgutil.walk_packages(aiogroup.__path__, "aiogroup."):
    if each.name.endswith(".__main__"):
        print("command", each.name.removesuffix(".__main__"))
        continue
    try:
        importlib.import_module(each.name)
    except ModuleNotFoundError as error:
        print("missing", error.name)
print("command aiogroup")
"""
NAMES_OF_THE_CACHES = """
from aiogroup.devkafka.jars import aot_cache, classpath, java
print(*(aot_cache(java(), classpath(), what) for what in ("nodes", "tools")), sep="\\n")
"""
PRODUCE = """
import asyncio, sys
from aiokafka import AIOKafkaProducer

async def main(servers, topic):
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(3):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)

asyncio.run(main(*sys.argv[1:]))
"""

WORK = """
import asyncio, importlib.metadata
from aiokafka import AIOKafkaProducer
import aiogroup
from aiogroup import Consumer
from aiogroup._core import native
from aiogroup.embedded import Broker

assert aiogroup.__version__ == importlib.metadata.version("aiogroup")

async def main():
    with Broker() as broker:
        broker.create_topic("orders", 1)
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3):
                await producer.send_and_wait("orders", b"%d" % number)
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        async with Consumer("orders", auto_offset_reset="earliest", **settings) as consumer:
            async for record in consumer:
                print(record.value.decode())
                if record.offset == 2:
                    break
            await consumer.commit()
            print("lag", await consumer.lag())

print("compiled" if native.IS_COMPILED else "in Python")
asyncio.run(main())
"""
"""What a service does, on the embedded broker."""


def works(environment: Environment, decoder: str) -> bool:
    return environment.run(environment.python, "-c", WORK).split() == [*decoder.split(), "0", "1", "2", "lag", "0"]


@dataclass
class Environment:
    """An environment with nothing in it but what was installed, and a folder that is no clone to run in."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path, python: str = sys.executable) -> Environment:
        folder.mkdir(exist_ok=True)
        environment = cls(folder)
        environment.run(python, "-m", "venv", "--without-pip", folder / "environment")
        return environment

    def pip(self, *install: str | Path) -> None:
        """Installs something, by the pip of this test's own environment. (Most modules are never imported.)"""
        quietly = ("install", "-q", "--no-compile", "--disable-pip-version-check")
        self.run(sys.executable, "-m", "pip", "--python", self.python, *quietly, *install)

    @property
    def bin(self) -> Path:
        return self.folder / "environment" / "bin"

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    def settings(self) -> dict[str, str]:
        left = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        return {**left, **self.variables}

    def run(self, *command: str | Path, cwd: Path | None = None, code: int = 0) -> str:
        ended = subprocess.run(
            [str(each) for each in command],
            cwd=cwd or self.folder,
            env=self.settings(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ended.returncode == code, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout


def copy_of_the_clone(folder: Path) -> Path:
    """As it is on disk, without what git ignores: no stale `*.egg-info` or `build` decides what is in an artifact."""
    left_out = (".git", ".venv*", "*.egg-info", "build", "dist", "*.so", "__pycache__", ".*_cache", ".hypothesis")
    return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*left_out)))


def build(source: Path, into: Path, *options: str, **variables: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(into), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module", params=by_one_worker("installed"))
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be looked at; whoever builds takes a copy."""
    return copy_of_the_clone(tmp_path_factory.mktemp("copied") / "aiogroup")


LEFT_OUT = {"MAKEFLAGS", "MAKELEVEL", "AIOGROUP_PURE_PYTHON"}
"""What this test's own `make` has set."""


def make_dist(clone: Path, *variables: str) -> tuple[Path, str]:
    """The folder that `make dist` has filled in a copy of the clone, by this test's environment; its output."""
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    command = ["make", "dist", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.installed", *variables]
    ended = subprocess.run(command, cwd=clone, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not list(clone.glob("*.egg-info")), "Python would take the version from it"
    return clone / "dist", ended.stdout


@pytest.fixture(scope="module", params=by_one_worker("installed"))
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, the wheels that are built from it for this Python and for every other, and a clone."""
    clone = copy_of_the_clone(tmp_path_factory.mktemp("dist") / "clone")
    dist, _ = make_dist(clone, "WHEELS_FOR=")
    (sdist,), (pure,) = dist.glob("*.tar.gz"), dist.glob("*-py3-none-any.whl")
    wheel = next((each for each in dist.glob("*.whl") if each != pure), pure)  # without a compiler there is one wheel
    return {"sdist": sdist, "wheel": wheel, "pure": pure, "clone": clone}


@pytest.fixture(scope="module")
def environment_of(
    artifacts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Environment]:
    """The environment into which an artifact was installed with the extra `devkafka`, made when first asked for."""

    @cache
    def make(artifact: str) -> Environment:
        made = Environment.made(tmp_path_factory.mktemp(f"from-{artifact}"))
        install = ("install", "-q", "--no-compile", "-c", ROOT / "constraints.txt")
        made.pip(INSTALLERS[artifact])
        if artifact == "clone":
            for what in re.findall(r"`pip install '?(\.[^`']*)'?`", README):  # a wheel's line is what "wheel" does
                made.run(made.bin / "uv", "pip", *install, "--python", made.python, what, cwd=artifacts["clone"])
        else:
            made.run(made.python, "-m", "pip", *install, f"{artifacts[artifact]}[devkafka]")
        known = know_the_jars(made)
        for what, theirs in zip(
            ("nodes", "tools"), made.run(made.python, "-c", NAMES_OF_THE_CACHES).split(), strict=True
        ):
            ours = aot_cache(java(), classpath(), what)
            if ours is not None and ours.exists():
                assert Path(theirs).parent == known
                shutil.copyfile(ours, theirs)
        return made

    return make


def know_the_jars(made: Environment, folder: str = "cache") -> Path:
    """The jars are there already. What a Java makes of them goes elsewhere, so that nothing is left behind."""
    known = made.folder / folder / "aiogroup" / "devkafka"
    known.mkdir(parents=True)
    for record in cache_dir().glob("*.json"):
        shutil.copy(record, known)
    made.variables = {"XDG_CACHE_HOME": str(known.parents[1])}
    return known


@pytest.fixture(params=IN_TURN)
def installed(request: pytest.FixtureRequest, environment_of: Callable[[str], Environment]) -> Environment:
    return environment_of(request.param)


@contextmanager
def kafka(installed: Environment) -> Iterator[str]:
    """The servers of a Kafka that the installed package has started, as the README says."""
    (port,) = free_ports(1)
    command = [installed.python, "-m", "aiogroup.devkafka", "up", "--port", str(port), "--topic", "orders"]
    log = installed.folder / "up.log"
    with log.open("wb") as file:
        up = subprocess.Popen(command, cwd=installed.folder, env=installed.settings(), stdout=file, stderr=file)

    def is_up() -> bool:
        assert up.poll() is None, log.read_text()
        return "Ctrl-C ends it" in log.read_text()

    try:
        wait_until(is_up, LIMIT_S * 1000, log.read_text)
        yield f"127.0.0.1:{port}"
        up.send_signal(signal.SIGINT)
        assert up.wait(LIMIT_S) == 130, log.read_text()  # as a shell tells a command that Ctrl-C ended
    finally:
        up.kill()
        up.wait()


def data_files(folder: Path) -> set[str]:
    """What the package reads at run time and is no module."""
    paths = {path.relative_to(folder) for path in (folder / "aiogroup").rglob("*") if path.is_file()}
    return {
        str(path) for path in paths if path.suffix not in {".py", ".c", ".h", ".so"} and "__pycache__" not in str(path)
    }


def test_both_artifacts_hold_every_data_file(clone, artifacts):
    wanted = data_files(clone)
    assert {"aiogroup/py.typed", "aiogroup/devkafka/kafka-4.3.1-jars.txt"} <= wanted
    with zipfile.ZipFile(artifacts["wheel"]) as wheel:
        names = set(wheel.namelist())
    assert wanted - names == set()
    assert {name for name in names if not name.startswith(("aiogroup/", "aiogroup-"))} == {"aiogroup_pytest.py"}
    assert not [name for name in names if name.endswith((".c", ".h"))], "only a compiler reads them"


def test_the_sdist_holds_every_file_of_the_clone(clone, artifacts):
    with tarfile.open(artifacts["sdist"]) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    files = {str(path.relative_to(clone)) for path in clone.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith((".", "benchmarks/results/"))} - held == set()


def test_tests_run_in_the_unpacked_sdist(artifacts, tmp_path):
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on
    shutil.unpack_archive(artifacts["sdist"], tmp_path, **safely)
    (unpacked,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not kafka"]
    chosen = ["tests/test_docs.py", "tests/test_public_names.py", "tests/test_readme.py", "tests/assignors"]
    ended = subprocess.run([*command, *chosen], cwd=unpacked, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def has_c(wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as opened:
        return any("/_native." in name for name in opened.namelist())


def test_the_wheel_is_tagged_for_what_is_in_it(artifacts):
    wheel = artifacts["wheel"]
    assert has_c(wheel) or not IS_COMPILED
    assert has_c(wheel) == ("-none-any" not in wheel.name)


def test_the_size_is_what_the_page_says(artifacts):
    (modules, megabytes), *_ = re.findall(
        r"Installed are (\d+) modules of ([\d.]+) MB", (ROOT / "docs/stability.md").read_text()
    )
    with zipfile.ZipFile(artifacts["pure"]) as opened:
        files = opened.infolist()
    count, size = sum(each.filename.endswith(".py") for each in files), sum(each.file_size for each in files)
    assert 0.9 < count / int(modules) < 1.1, f"{count} now"
    assert 0.9 < size / 1e6 / float(megabytes) < 1.1, f"{size / 1e6} MB now"


@pytest.mark.parametrize("without", ["asked for", "a compiler"])
def test_a_wheel_without_the_c_is_for_every_python(artifacts, tmp_path, without):
    wheel = artifacts["pure"]
    if without == "a compiler":
        build(copy_of_the_clone(tmp_path / "clone"), tmp_path, "--wheel", CC="false")
        (wheel,) = tmp_path.glob("*.whl")
    assert not has_c(wheel)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as opened:
        (tag,) = [opened.read(name).decode() for name in opened.namelist() if name.endswith(".dist-info/WHEEL")]
        assert not [name for name in opened.namelist() if ".data/" in name]
    assert "Root-Is-Purelib: true" in tag


OTHERS = {
    "another Python": "-cp39-cp39-linux_x86_64.whl",
    "another machine": f"-cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-win_arm64.whl",
}
"""The end of the name of a wheel that does not fit here."""


@pytest.mark.parametrize("only_for", [None, *OTHERS])
def test_pip_takes_the_wheel_without_c_where_no_other_fits(artifacts, tmp_path, only_for):
    """The sdist, which would need a compiler, lies beside them."""
    index = tmp_path / "index"
    index.mkdir()
    for each in ("sdist", "pure"):
        shutil.copy(artifacts[each], index)
    version = artifacts["sdist"].name.removesuffix(".tar.gz")
    binary = artifacts["wheel"].name if only_for is None else f"{version}{OTHERS[only_for]}"
    shutil.copy(artifacts["wheel"], index / binary)
    environment = Environment.made(tmp_path)
    environment.pip("--no-index", "--no-deps", "--find-links", index, "aiogroup")
    assert len(list(tmp_path.glob("environment/**/aiogroup/__init__.py"))) == 1
    compiled = list(tmp_path.glob("environment/**/aiogroup/_core/native/_native.*"))
    assert bool(compiled) == (only_for is None and IS_COMPILED)


def test_the_wheel_without_c_does_its_work(artifacts, tmp_path):
    environment = Environment.made(tmp_path)
    environment.pip("-c", ROOT / "constraints.txt", artifacts["pure"])
    assert works(environment, "in Python")
    told = environment.run(environment.python, "-m", "aiogroup")
    assert "was not compiled when aiogroup was installed" in told
    assert "--no-binary aiogroup SOURCES" in told, "pip would take the same wheel again"


@pytest.mark.thorough
def test_there_is_a_wheel_for_each_python_and_it_does_its_work(tmp_path):
    dist, said = make_dist(copy_of_the_clone(tmp_path / "clone"))
    others = re.findall(r"^a wheel for (.+)$", said, re.MULTILINE)
    assert len(list(dist.glob("*.whl"))) == len(others) + 1 + IS_COMPILED
    for python in others:
        environment = Environment.made(tmp_path / Path(python).name, python)
        version = environment.run(environment.python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])")
        (wheel,) = dist.glob(f"*-{version.strip()}-*.whl")
        environment.pip("-c", ROOT / "constraints.txt", wheel)
        assert works(environment, "compiled"), python


def test_every_name_and_command_is_there(installed):
    words = [line.split() for line in installed.run(installed.python, "-c", NAMES).splitlines()]
    assert {name for word, name in words if word == "missing"} <= EXTRAS_LEFT_OUT
    commands = [[installed.python, "-m", name] for word, name in words if word == "command"]
    assert [installed.python, "-m", "aiogroup.devkafka"] in commands
    console = (
        "from importlib.metadata import entry_points; "
        "print(*(each.name for each in entry_points(group='console_scripts') if each.dist.name == 'aiogroup'))"
    )
    names = installed.run(installed.python, "-c", console).split()
    assert "aiogroup" in names
    for command in [*commands, *([str(installed.bin / name)] for name in names)]:
        assert installed.run(*command, "--help").startswith("usage:"), command


def test_the_wheel_does_its_work(environment_of):
    assert works(environment_of("wheel"), "compiled" if IS_COMPILED else "in Python")


def test_fetch_finds_ready_what_is_there(environment_of):
    installed = environment_of("wheel")
    assert "53 jars ready" in installed.run(installed.python, "-m", "aiogroup.devkafka", "fetch")


def test_fetch_makes_ready_what_up_starts(environment_of):
    installed = dataclasses.replace(environment_of("wheel"))
    known = know_the_jars(installed, "no cache")
    said = installed.run(installed.python, "-m", "aiogroup.devkafka", "fetch")
    assert "53 jars ready" in said
    assert len(list(known.glob("*.aot"))) == (0 if aot_cache(java(), classpath(), "nodes") is None else 2)


def test_the_twelve_lines_read_what_an_installed_kafka_holds(installed):
    program, printed = installed.folder / "twelve_lines.py", installed.folder / "printed"
    with kafka(installed) as servers:
        installed.run(installed.python, "-c", PRODUCE, servers, "orders")
        program.write_text(reading_from(servers))
        with printed.open("wb") as out:
            reading = subprocess.Popen(
                [installed.python, program], cwd=installed.folder, env=installed.settings(), stdout=out
            )
        try:
            wait_until(lambda: printed.read_text().count("\n") == 3, LIMIT_S * 1000, printed.read_text)
            listing = [installed.bin / "aiogroup", "members", "list", "--group", "billing"]
            assert "orders:0,1,2,3" in installed.run(*listing, "--bootstrap-server", servers)
            reading.send_signal(signal.SIGTERM)
            assert reading.wait(LIMIT_S) == 0
        finally:
            reading.kill()
            reading.wait()
    assert printed.read_text().splitlines() == ["0 0 b'0'", "0 1 b'1'", "0 2 b'2'"]
