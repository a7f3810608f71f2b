"""How the cluster is reached: by options, a file of Java properties, or the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any, Final

from aiogroup._command.properties import PREFIX, consumer_settings, is_connection, load_properties, of_environment
from aiogroup.cli.arguments import file_read_by
from aiogroup.config import ConsumerConfig
from aiogroup.errors import ConfigError

__all__ = ["add_connection", "settings_of"]

SERVERS: Final = "bootstrap.servers"
REQUEST_MS: Final = 10_000
"""A broker that is silent for this long is given up, so that the answers of the others are still shown in time."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """The options of every command that asks brokers."""
    parser.add_argument(
        "--bootstrap-server",
        type=_servers,
        metavar="HOST:PORT[,...]",
        help=f"or the variable {PREFIX}BOOTSTRAP_SERVERS",
    )
    parser.add_argument(
        "--command-config",
        type=file_read_by(load_properties),
        metavar="FILE",
        help=f"Java properties: security.protocol, sasl.*, ssl.*; each may be a variable instead, as "
        f"{PREFIX}SECURITY_PROTOCOL",
    )


def _servers(text: str) -> str:
    """What it is given, if that is empty, as an unset variable is, or names brokers."""
    try:
        if text:
            ConsumerConfig(bootstrap_servers=text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def settings_of(given: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Consumer's settings. An option counts before the file, the file before the environment.

    Raises:
        ConfigError: no broker is named, or a property makes no sense.
    """
    properties = of_environment(environment)
    if given.command_config is not None:
        properties |= {key: text for key, text in given.command_config.items() if is_connection(key)}
    if given.bootstrap_server is not None:
        properties[SERVERS] = given.bootstrap_server
    if not properties.get(SERVERS):
        raise ConfigError(f"no broker is named: pass --bootstrap-server HOST:PORT, or set {PREFIX}BOOTSTRAP_SERVERS")
    settings, _ = consumer_settings(properties)
    return {
        **settings,
        "default_api_timeout_ms": given.timeout_ms,
        "request_timeout_ms": max(501, min(REQUEST_MS, given.timeout_ms)),
    }
