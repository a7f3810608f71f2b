"""Makes a Spark session for the command: with the connector, without log output, with a clear error if it fails."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Final
from uuid import uuid4

from aiogroup.errors import ConfigError
from aiogroup.spark.errors import (
    ConnectorMissingError,
    DrainError,
    JavaMissingError,
    PySparkMissingError,
    SparkStartError,
    UnsupportedSparkError,
)
from aiogroup.spark.interrupts import putting_off_interrupts

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = [
    "CONNECTOR",
    "JAVA_OPTIONS",
    "cancelled_on_error",
    "check_installed",
    "check_java",
    "check_pyspark",
    "check_running",
    "is_remote",
    "make_session",
    "slots_of",
]

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""The connector that is tested. Spark fetches its dependencies by itself (spark.jars.packages)."""
OLDEST_MAJOR: Final = 4
REMOTE: Final = "sc://"
DESCRIPTION: Final = "spark.job.description"
MANY: Final = 100_000
"""More tasks than any cluster runs at once."""
JAVAS: Final = range(17, 24)
"""Spark 4.0 is made for Java 17 and 21. Java 24 has no security manager any more, and Hadoop's client needs it to find
the user.
"""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOG_CONFIG: Final = Path(__file__).parent / "log4j2.properties"


def make_session(
    master: str | None = None,
    *,
    jars: Iterable[str | Path] = (),
    connector: str | None = None,
    conf: Mapping[str, str] | None = None,
    name: str = "aiogroup drain",
) -> SparkSession:
    """Start Spark, or use the active session.

    aiogroup's own reader needs no jar. For `reader="connector"` give `jars`, those of Spark's Kafka connector, or its
    coordinates as `connector`, say `aiogroup.spark.session.CONNECTOR`: Spark fetches it from Maven and keeps it. A
    `master` of `None` means the one given to spark-submit, or else all cores of this machine. `conf` overrides the
    settings that are made here. With a local master Spark's tasks run in this very Python, unless `PYSPARK_PYTHON`
    names another.

    A `master` of "sc://HOST:PORT", or without one the variable SPARK_REMOTE, is a server of Spark Connect: no Java
    is needed here, and the connector is the server's.

    Raises:
        PySparkMissingError, UnsupportedSparkError, JavaMissingError, ConnectorMissingError, SparkStartError: the
            message says what to do.
        ConfigError: jars are given for a server of Spark Connect.
    """
    check_pyspark()
    remote = os.environ.get("SPARK_REMOTE", "") if master is None else master
    if remote.startswith(REMOTE):
        if connector is not None or (*jars,):
            raise ConfigError(f"{remote}: name the connector's jars when you start this server (spark.jars), not here")
        return _connected(remote, conf or {})
    from pyspark import SparkConf  # noqa: PLC0415 (an extra)
    from pyspark.sql import SparkSession  # noqa: PLC0415 (an extra)

    if SparkSession.getActiveSession() is None:
        check_java()
    paths = [Path(each) for each in jars]
    if missing := [str(each) for each in paths if not each.is_file()]:
        raise ConnectorMissingError(f"no such jar: {', '.join(missing)}")
    given = {**(conf or {}), **({"spark.master": master} if master is not None else {})}
    settings = {
        "spark.app.name": name,
        "spark.master": "local[*]",
        "spark.ui.showConsoleProgress": "false",
        **({"spark.jars": ",".join(map(str, paths))} if paths else {}),
        **({"spark.jars.packages": connector} if connector is not None and not paths else {}),
        **given,
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()} {given.get(JAVA_OPTIONS, '')}",
    }
    wanted = SparkConf()
    wanted.setAll([(key, value) for key, value in settings.items() if key in given or not wanted.contains(key)])
    if str(wanted.get("spark.master", "")).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryFile() as words:
        try:
            _start_java(wanted, words)
            return SparkSession.builder.config(conf=wanted).getOrCreate()
        except Exception as error:
            words.seek(0)
            raise _why_it_did_not_start(error, words.read().decode(errors="replace").splitlines()) from error


def _connected(remote: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkException  # noqa: PLC0415 (an extra)
    from pyspark.sql import SparkSession  # noqa: PLC0415 (an extra)

    try:
        spark = SparkSession.builder.remote(remote).config(map=dict(conf)).getOrCreate()
        _ = spark.version  # asks the server
    except (PySparkException, ImportError) as error:
        raise SparkStartError(f"no session of {remote}: {error}") from error
    return spark


def check_pyspark() -> None:
    """Check that PySpark is installed, and that its version is supported.

    Raises:
        PySparkMissingError: it is not installed.
        UnsupportedSparkError: it is older than 4.0.
    """
    try:
        import pyspark  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise PySparkMissingError("PySpark is not installed: pip install 'aiogroup[spark]'", name="pyspark") from error
    if int(pyspark.__version__.partition(".")[0]) < OLDEST_MAJOR:
        raise UnsupportedSparkError(
            f"PySpark 4.0 or newer is needed, and this is {pyspark.__version__}: pip install 'aiogroup[spark]'"
        )


def check_installed(*names: str) -> None:
    """Check that these modules are installed, which PySpark needs and does not bring.

    Raises:
        PySparkMissingError: one is not.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise PySparkMissingError(f"{name} is not installed: pip install 'aiogroup[spark]'", name=name)


def is_remote(spark: object) -> bool:
    """Whether this is a session of Spark Connect, whose driver is another process."""
    return ".connect." in type(spark).__module__


def check_running(spark: SparkSession) -> None:
    """Refuse a session that the job cannot work with.

    Raises:
        UnsupportedSparkError: PySpark is too old, or `spark` is not a session, or it was stopped.
    """
    check_pyspark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 (an extra)

    if not is_remote(spark) and not isinstance(spark, SparkSession):
        raise UnsupportedSparkError(
            f"{spark!r:.200} is no Spark session: give one, or a function that returns one, such as make_session"
        )
    if _is_stopped(spark):
        raise UnsupportedSparkError("this Spark session was stopped: give one that runs, or a function that starts one")


def _is_stopped(spark: SparkSession) -> bool:
    if is_remote(spark):
        return bool(spark.is_stopped)  # type: ignore[attr-defined]
    from py4j.protocol import Py4JError  # noqa: PLC0415 (an extra)

    try:
        slots_of(spark)
    except (AttributeError, Py4JError):  # a stopped session: either Python has dropped Java's context, or Java says so
        return True
    return False


def slots_of(spark: SparkSession) -> int:
    """How many tasks Spark runs at once."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (an extra)

    partitions = spark.range(MANY).select(F.spark_partition_id()).distinct()  # a range has one for each task
    return partitions.count()


@contextmanager
def cancelled_on_error(spark: SparkSession, description: str) -> Iterator[None]:
    """Cancel what this thread has started in Spark, and free what it holds, if the block ends with an error.

    In a classic session the jobs of the block have this description.
    """
    tag = f"aiogroup-{uuid4().hex[:8]}"
    if is_remote(spark):
        spark.addTag(tag)
        try:
            yield
        except BaseException:
            spark.interruptTag(tag)
            raise
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext  # a session's tags are not set on the jobs of its RDDs
    before = context.getLocalProperty(DESCRIPTION)
    context.setJobDescription(description)
    context.addJobTag(tag)
    try:
        yield
    except BaseException:
        context.cancelJobsWithTag(tag)
        raise
    finally:
        context.removeJobTag(tag)
        context.setLocalProperty(DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it


def check_java() -> None:
    """Check for a Java that can run Spark: with another one Spark fails later, with an obscure error.

    Raises:
        JavaMissingError: there is no Java, or its version is not in `JAVAS`.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "PATH"
    advice = "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless) and let JAVA_HOME name it"
    if java is None:
        raise JavaMissingError(f"Spark needs Java, and there is none in PATH: {advice}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"Spark needs Java, and that of {where} does not run ({error}): {advice}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) not in JAVAS:
        version = found[1] if found else "of an unknown version"
        raise JavaMissingError(f"Spark 4.0 runs on Java 17 to 23, and that of {where} is {version}: {advice}")


def _start_java(conf: SparkConf, words: IO[bytes]) -> None:
    """Start Java, unless it runs already. Its standard error goes into `words`, and not to the terminal.

    Its standard output, which has its log, goes to the terminal's standard error.
    """
    from pyspark import SparkContext  # noqa: PLC0415 (an extra)
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 (an extra)

    if SparkContext._gateway is None:
        sys.stderr.flush()
        # PySpark imports pandas where it is installed: two seconds, for which nobody has to wait while Java starts.
        Thread(target=_import_quietly, args=("pandas",), daemon=True).start()
        # An exception in the middle of it would leave a Java behind that never ends: it would not find the folder into
        # which it writes its port, and then does not look whether Python is there.
        with putting_off_interrupts():
            gateway = launch_gateway(conf, {"stdout": 2, "stderr": words})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def _import_quietly(name: str) -> None:
    with suppress(Exception):  # whoever needs the module imports it again, and raises what is wrong with it
        importlib.import_module(name)


def _why_it_did_not_start(error: Exception, words: Sequence[str]) -> DrainError:
    if any("unresolved dependency" in line or "UNRESOLVED DEPENDENCIES" in line for line in words):
        return ConnectorMissingError(
            "Spark's Kafka connector could not be fetched: check the network and the coordinates of --connector, or "
            "name its jars with --jars"
        )
    told = "\n".join(line for line in words if line.strip())[-4_000:]
    return SparkStartError(f"Spark did not start: {error}\n{told}")
