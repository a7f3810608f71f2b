"""The command that runs a class of Kafka's jars: a node, or one of Kafka's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiogroup.devkafka import jars

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["quick", "run", "tool"]


def run(java: Path, classpath: str, heap: str, *options: str) -> list[str]:
    """The part of the command before the class and its arguments."""
    command = [str(java), f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:-UsePerfData", *options]
    # The JVM's own warnings go to standard output, which belongs to the tools that speak JSON on it.
    return [*command, "-Xlog:disable", f"-Dlog4j2.configurationFile={jars.LOG_CONFIG.as_uri()}", "-cp", classpath]


def quick(java: Path, classpath: str, what: jars.Runs) -> list[str]:
    """The options of a JVM that has to start soon: it optimises little, and loads its classes from their cache."""
    cache = jars.aot_cache(java, classpath, what)
    options = ["-XX:TieredStopAtLevel=1"]
    if what == "tools":  # most end within a second, before compiled code pays off
        options.append("-XX:CompileThresholdScaling=5")
    return [*options, f"-XX:AOTCache={cache}"] if cache is not None and cache.exists() else options


def tool(main_class: str, *arguments: str, is_quick: bool = True) -> list[str]:
    """The command of one of Kafka's tools.

    Raises:
        DevKafkaError: there is no Java, or a jar could not be fetched.
    """
    java, classpath = jars.java(), jars.classpath()
    options = quick(java, classpath, "tools") if is_quick else []
    return [*run(java, classpath, "256m", *options), main_class, *arguments]
