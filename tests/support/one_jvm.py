"""Runs Kafka's tools one after the other in one JVM, which saves the second of CPU that each start of a JVM takes.

They are called by py4j, which comes with PySpark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from importlib.metadata import version
from pathlib import Path
from typing import Any

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from aiogroup.devkafka import jars, jvm

LIMIT_S = 120
PACKAGE = "org.apache.kafka.common.utils"


class OneJvm:
    """Runs the `main` of a tool. An exit of the JVM is turned into the end of the tool.

    The verifiable clients cannot be run: they print their last lines when their JVM ends.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway, self._java = gateway, gateway.jvm.java
        self._lock = threading.Lock()
        self._running: str | None = None
        self._codes: list[int] = []
        self._hooks: list[Any] = []
        # These streams are never replaced: Scala and the loggers keep the first ones that they find.
        self._streams = [self._java.io.ByteArrayOutputStream() for _ in range(2)]
        output, errors = (self._java.io.PrintStream(each, True) for each in self._streams)
        self._java.lang.System.setOut(output)
        self._java.lang.System.setErr(errors)
        kafkas = gateway.jvm.org.apache.kafka.common.utils.Exit
        kafkas.setExitProcedure(_Procedure(self._codes))
        kafkas.setHaltProcedure(_Procedure(self._codes))
        kafkas.setShutdownHookAdder(_ShutdownHookAdder(self._hooks))

    def run(self, tool: str, arguments: Sequence[str], given: str | None = None) -> tuple[int, str, str]:
        """(exit code, standard output, standard error) of the class `tool` with `given` as standard input."""
        with self._lock:
            assert self._running is None, f"{self._running} did not end, and would be heard beside {tool}"
            self._running = tool
            self._java.lang.System.setIn(self._java.io.ByteArrayInputStream((given or "").encode()))
            failure = ""
            try:
                reduce(getattr, tool.split("."), self._gateway.jvm).main(self._array(arguments))
            except Py4JJavaError as error:
                failure = str(error)
                self._codes.append(1)
            while self._hooks:
                self._hooks.pop().run()
            # `main` goes on after an exit that would have ended its own JVM: so the first code counts.
            code = next(iter(self._codes), 0)
            self._codes.clear()
            output, errors = (each.toString() for each in self._streams)
            for each in self._streams:
                each.reset()
            self._running = None
            return code, output, errors + failure

    def _array(self, arguments: Sequence[str]) -> Any:
        made = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(arguments))
        for at, argument in enumerate(arguments):
            made[at] = argument
        return made


@contextmanager
def one_jvm() -> Iterator[OneJvm]:
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = stack.enter_context(subprocess.Popen(_command(), text=True, **pipes))
        stack.callback(process.kill)
        assert process.stdout is not None
        late = threading.Timer(LIMIT_S, process.kill)
        late.start()
        port, token = process.stdout.readline(), process.stdout.readline().strip()
        late.cancel()
        assert token, f"{process.args} did not begin to serve"
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token, read_timeout=LIMIT_S),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        stack.callback(gateway.shutdown)
        loopback = gateway.jvm.java.net.InetAddress.getLoopbackAddress()
        gateway.java_gateway_server.resetCallbackClient(loopback, gateway.get_callback_server().get_listening_port())
        yield OneJvm(gateway)


def _command() -> list[str]:
    java, classpath = jars.java(), jars.classpath()
    py4j = Path(sys.prefix, "share", "py4j", f"py4j{version('py4j')}.jar")
    # Kafka's jars come first in the path: the cache for tools holds their classes
    options = jvm.quick(java, classpath, "tools")
    command = jvm.run(java, os.pathsep.join((classpath, str(py4j))), "256m", *options)
    # The JVM ends when its standard input is closed, and so when this process ends, however it ends.
    return [*command, "py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0"]


class _Procedure:
    """Called by Kafka in place of ending the JVM."""

    def __init__(self, codes: list[int]) -> None:
        self._codes = codes

    def execute(self, code: int, _message: str | None) -> None:
        self._codes.append(code)

    class Java:
        implements = (f"{PACKAGE}.Exit$Procedure",)


class _ShutdownHookAdder:
    """Keeps the hooks that Kafka would run when the JVM ends."""

    def __init__(self, hooks: list[Any]) -> None:
        self._hooks = hooks

    def addShutdownHook(self, _name: str, hook: Any) -> None:  # noqa: N802 (Kafka's name)
        self._hooks.append(hook)

    class Java:
        implements = (f"{PACKAGE}.Exit$ShutdownHookAdder",)
