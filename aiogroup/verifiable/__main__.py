"""`python -m aiogroup.verifiable consumer | producer ARGUMENTS`, with the Java tools' arguments."""

from __future__ import annotations

import logging
import sys

from aiogroup.verifiable import consumer, producer

_TOOLS = {"consumer": consumer.main, "producer": producer.main}


def main(arguments: list[str]) -> int:
    """The exit code: 1 for bad arguments, and 128 + the signal that ended it, as Java has it."""
    usage = f"usage: python -m aiogroup.verifiable {{{','.join(_TOOLS)}}} ARGUMENTS\n"
    if arguments and arguments[0] in {"-h", "--help"}:
        sys.stdout.write(usage)
        return 0
    if not arguments or arguments[0] not in _TOOLS:
        sys.stderr.write(usage)
        return 0 if not arguments else 1
    # To stderr, since stdout carries the JSON lines.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    return _TOOLS[arguments[0]](arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
