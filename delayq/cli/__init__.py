"""The command line: `delayq …`, directly on Redis through `delayq.Client`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from delayq.errors import MissingExtra
from delayq.terminal import say

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    The plain client installs this program too, without the packages that parse its options.
    """
    try:
        from delayq.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        name = (*(sys.argv[1:] if argv is None else argv), "")[0]
        is_service = name in ("api", "worker", "coordinator")
        say(f"{MissingExtra(f'delayq {name}', 'server') if is_service else MissingExtra('the command line', 'cli')}.")
        return 2
    return run(argv)
