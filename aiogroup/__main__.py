"""`aiogroup COMMAND`: the command line of aiogroup/cli. Without arguments it prints what is installed."""

from __future__ import annotations

import sys

from aiogroup.cli.run import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
