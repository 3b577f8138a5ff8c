"""Reports of the progress of jobs on many messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from delayq.store.commands.command import Command, by_name, plain
from delayq.store.keys import Keys

__all__ = ["REPORT_KEPT", "keep_report", "report", "reported", "unreport"]

#: ms for which a report is kept after its last line.
REPORT_KEPT: Final = 86_400_000


def report(keys: Keys, name: str, field: str, line: bytes) -> Command[None]:
    """Write a line of a report."""
    return plain("HSET", keys.report(name), field, line, read=lambda _: None)


def unreport(keys: Keys, name: str, field: str) -> Command[None]:
    """Remove a line from a report."""
    return plain("HDEL", keys.report(name), field, read=lambda _: None)


def keep_report(keys: Keys, name: str) -> Command[None]:
    """Keep a report for another day."""
    return plain("PEXPIRE", keys.report(name), REPORT_KEPT, read=lambda _: None)


def reported(keys: Keys, name: str) -> Command[Mapping[str, bytes]]:
    """Read the lines of a report; none if it does not exist, or no longer."""
    return plain("HGETALL", keys.report(name), read=by_name)
