"""The command line: `delayq …`, directly on Redis through `delayq.Client`."""

from delayq.cli.app import main

__all__ = ["main"]
