"""Refuses what a service cannot be made of. Each error names the argument, and says what is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, get_args

from aiogroup.asgi.life import WhenDead, WhenFenced
from aiogroup.asgi.loop import Loop
from aiogroup.asgi.probes import Ready
from aiogroup.errors import ConfigError

__all__ = ["check_arguments"]

CHOICES: Final = {"when_dead": get_args(WhenDead), "when_fenced": get_args(WhenFenced), "ready": get_args(Ready)}
TIMES: Final = ("stop_timeout_ms", "unready_after_ms")
FLAGS: Final = ("drain_on_signal", "page", "metrics")


def check_arguments(given: Mapping[str, Any], loops: Mapping[str, object]) -> None:
    """Check the arguments of `Service` by name, and its loops.

    Raises:
        ConfigError: one of them is not of its kind, or there is no loop.
    """
    if given["unnamed"]:
        raise ConfigError(
            "Service takes loops by name, which the log and the probes give them: a loop needs a name, as "
            "Service(audit=Loop(lambda: Consumer(...), audit))"
        )
    for name, value in given.items():
        if isinstance(value, Loop):
            raise ConfigError(f"{name} is an argument of Service, so no loop can have it: give the loop another name")
    _check_kinds(given)
    if given["page"] and given["access"] is None:
        raise ConfigError(
            "page=True needs access, a function that says who may see it: behind a proxy in the same pod every "
            "client has the address 127.0.0.1, so no default would be safe"
        )
    if not loops:
        raise ConfigError("a service without a loop does nothing: give one, as Service(audit=Loop(...))")
    for name, loop in loops.items():
        if not isinstance(loop, Loop):
            raise ConfigError(f"{name}={loop!r}: a Loop is needed, or this is no argument of Service")


def _check_kinds(given: Mapping[str, Any]) -> None:
    for name, choices in CHOICES.items():
        if given[name] not in choices:
            raise ConfigError(f"{name}={given[name]!r}: one of {', '.join(map(repr, choices))} is needed")
    for name in TIMES:
        number = given[name]
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ConfigError(f"{name}={number!r}: a number of milliseconds, at least 0, is needed")
    for name in FLAGS:
        if not isinstance(given[name], bool):
            raise ConfigError(f"{name}={given[name]!r}: True or False is needed")
    access, health_file = given["access"], given["health_file"]
    if access is not None and not callable(access):
        raise ConfigError(f"access={access!r}: a function that takes the request's scope is needed")
    if health_file is not None and not isinstance(health_file, (str, os.PathLike)):
        raise ConfigError(f"health_file={health_file!r}: a path is needed")
