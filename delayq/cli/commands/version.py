"""The command version."""

from __future__ import annotations

from importlib.metadata import version as version_of

from delayq.base.terminal import Output
from delayq.cli.options import AsJson


def version(json: AsJson = False) -> int:
    """Print the version of delayq."""
    number = version_of("delayq")
    if json:
        Output().json({"version": number})
    else:
        Output().line(f"delayq {number}")
    return 0
