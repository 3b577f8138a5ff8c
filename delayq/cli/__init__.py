"""The command line: `delayq …`, directly on Redis through `delayq.Client`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from delayq.base.errors import MissingExtra
from delayq.base.stop_signals import stop_signals
from delayq.base.terminal import say

__all__ = ["main"]

SERVICES = ("api", "worker", "coordinator")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    The plain client installs this program too, without the packages that parse its options.
    """
    if argv is None and sys.argv[1:2] and sys.argv[1] in SERVICES:
        stop_signals.listen()
    elif argv is None:
        stop_signals.listen_beside_ctrl_c()
    try:
        from delayq.cli.app import main as run
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        name = (*(sys.argv[1:] if argv is None else argv), "")[0]
        is_service = name in SERVICES
        say(f"{MissingExtra(f'delayq {name}', 'server') if is_service else MissingExtra('the command line', 'cli')}.")
        return 2
    except KeyboardInterrupt:  # nothing has begun yet
        return 128 + (stop_signals.asked or signal.SIGINT)
    return run(argv)
