"""The command line: `python -m servers fetch NAME…` fetches the classes of servers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from servers.errors import ServerMissing
from servers.jars import fetch


def main(arguments: Sequence[str]) -> int:
    """Fetch what is named; 2 when something cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m servers")
    parser.add_argument("command", choices=["fetch"])
    parser.add_argument("names", nargs="+", choices=["zookeeper"], metavar="NAME")
    try:
        for name in parser.parse_args(arguments).names:
            print(fetch(name))
    except ServerMissing as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
