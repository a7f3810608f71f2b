"""Runs one command, and makes an exit code of how it ended."""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from aiogroup.cli.commands.versions import versions
from aiogroup.cli.exits import Exit, NotDoneError, RefusedError
from aiogroup.cli.parser import TOOLS, make_parser
from aiogroup.cli.printing import OutputLostError, output, say, tell
from aiogroup.errors import AiogroupError, ConfigError, GroupNotFoundError

__all__ = ["main", "telling"]

SLOW_DECODER: Final = "slow_decoder"
"""The event of a consumer without the C, whose speed matters to no command."""


class _Teller(logging.Handler):
    """Tells the warnings of a command's consumer as the command tells its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", None) != SLOW_DECODER:
            tell(record.getMessage())


@contextmanager
def telling() -> Iterator[None]:
    """Tell the consumer's warnings meanwhile, instead of leaving them to Python's last resort."""
    logger, teller = logging.getLogger("aiogroup"), _Teller(logging.WARNING)
    logger.addHandler(teller)
    try:
        yield
    finally:
        logger.removeHandler(teller)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (`Exit`); wrong arguments end the process, as argparse does it."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and (tool := TOOLS.get(words[0])) is not None:
        code: int = import_module(tool.room).main(words[1:], f"aiogroup {words[0]}")
        return code
    given = make_parser().parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name must not end the command where it cannot be written
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # an error is printed once, below
    output.lost = None
    if sys.stdout is None:
        tell("standard output is closed: nothing was done")
        return Exit.NOT_DONE
    with telling():
        code = _ended(given)
    if not output.lost:
        return code
    tell(f"{'it was done, but ' if code == Exit.DONE else ''}the output could not be written: {output.lost}")
    return code or Exit.NOT_DONE


def _ended(given: argparse.Namespace) -> int:
    """The exit code of the command, which is printed as far as it can be."""
    try:
        if given.version or given.what is None:
            say("\n".join(versions()))
            return Exit.DONE
        if given.check is not None and (wrong := given.check(given)) is not None:
            given.parser.error(wrong)
        return _run(given)
    except ConfigError as error:
        if sys.stderr is not None:
            given.parser.print_usage(sys.stderr)
        tell(str(error))
        return Exit.ARGUMENTS
    except GroupNotFoundError as error:
        tell(f"{str(error).rstrip('.')}: `aiogroup groups` lists those that there are")
        return Exit.NOT_DONE
    except RefusedError as error:
        tell(f"refused: {error}")
        return Exit.REFUSED
    except OutputLostError:
        return Exit.NOT_DONE if output.lost else Exit.DONE
    except (AiogroupError, NotDoneError, OSError, ValueError) as error:
        tell(str(error))
        return Exit.NOT_DONE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _run(given: argparse.Namespace) -> int:
    outcome: int | Coroutine[None, None, int] = given.run(given)
    return outcome if isinstance(outcome, int) else asyncio.run(outcome)
