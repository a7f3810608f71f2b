"""Makes a Spark session for the command: with the connector, without log output, with a clear error if it fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiogroup.spark.errors import ConnectorMissingError, JavaMissingError, PySparkMissingError, SparkStartError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CONNECTOR", "check_java", "check_pyspark", "make_session"]

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""The connector that is tested. Spark fetches its dependencies by itself (spark.jars.packages)."""
JAVAS: Final = range(17, 24)
"""Spark 4.0 is made for 17 and 21. Since 24 Java has no security manager, by which Hadoop's client finds the user."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOG_CONFIG: Final = Path(__file__).parent / "log4j2.properties"


def make_session(
    master: str | None = None,
    *,
    jars: Iterable[str | Path] = (),
    connector: str = CONNECTOR,
    conf: Mapping[str, str] | None = None,
    name: str = "aiogroup drain",
) -> SparkSession:
    """Start Spark with its Kafka connector, or use the active session.

    `jars` are the connector's jars; without them Spark fetches `connector` from Maven and keeps it. A `master` of
    `None` means the one given to spark-submit, or else all cores of this machine. `conf` overrides the settings that
    are made here.

    Raises:
        PySparkMissingError, JavaMissingError, ConnectorMissingError, SparkStartError: the message says what to do.
    """
    check_pyspark()
    from pyspark import SparkConf  # noqa: PLC0415 (an extra)
    from pyspark.sql import SparkSession  # noqa: PLC0415 (an extra)

    if SparkSession.getActiveSession() is None:
        check_java()
    paths = [Path(each) for each in jars]
    if missing := [str(each) for each in paths if not each.is_file()]:
        raise ConnectorMissingError(f"no such jar: {', '.join(missing)}")
    given = dict(conf or {})
    settings = {
        "spark.ui.showConsoleProgress": "false",
        **({"spark.jars": ",".join(map(str, paths))} if paths else {"spark.jars.packages": connector}),
        **given,
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()} {given.get(JAVA_OPTIONS, '')}",
    }
    submitted = SparkConf()
    builder = SparkSession.builder.appName(name)
    if master is not None or not submitted.contains("spark.master"):
        builder = builder.master(master or "local[*]")
    for key, value in settings.items():
        if key in given or not submitted.contains(key):
            builder = builder.config(key, value)
    with _starting():
        return builder.getOrCreate()


def check_pyspark() -> None:
    """Check that PySpark is installed.

    Raises:
        PySparkMissingError: it is not.
    """
    try:
        import pyspark  # noqa: F401, PLC0415 (an extra)
    except ImportError as error:
        raise PySparkMissingError("PySpark is not installed: pip install 'aiogroup[spark]'") from error


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


@contextmanager
def _starting() -> Iterator[None]:
    """Hide what Java prints outside of any log while it starts, unless the start fails.

    The JVM gets a file as its standard error, and the terminal's standard error, to which its log goes, as its standard
    output.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        output, screen = os.dup(1), os.dup(2)
        try:
            os.dup2(screen, 1)
            os.dup2(kept.fileno(), 2)
            yield
        except Exception as error:
            kept.seek(0)
            words = kept.read().decode(errors="replace").splitlines()
            if any("unresolved dependency" in line or "UNRESOLVED DEPENDENCIES" in line for line in words):
                raise ConnectorMissingError(
                    "Spark's Kafka connector could not be fetched: check the network and the coordinates of "
                    "--connector, or name its jars with --jars"
                ) from error
            told = "\n".join(line for line in words if line.strip())[-4_000:]
            raise SparkStartError(f"Spark did not start: {error}\n{told}") from error
        finally:
            os.dup2(output, 1)
            os.dup2(screen, 2)
            os.close(output)
            os.close(screen)
