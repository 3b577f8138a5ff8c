"""What a check says, and what of it is a finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

__all__ = ["CRITICAL", "FAIL", "INFO", "OK", "SEVERITIES", "WARN", "WARNING", "Check", "Finding", "name_queues"]

OK: Final = "ok"
INFO: Final = "info"
WARN: Final = "warn"
FAIL: Final = "fail"
CRITICAL: Final = "critical"
WARNING: Final = "warning"
#: What a finding of each result is, the worst first. `info` is what somebody wants to know, and nothing is broken.
SEVERITIES: Final = {FAIL: CRITICAL, WARN: WARNING, INFO: INFO}


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at: 'ok', 'info', 'warn' or 'fail', one sentence, and how to mend it.

    `since` is Unix ms, where it is known; `runbook` the section of docs/runbook.md.
    """

    name: str
    result: str
    text: str
    mend: str = ""
    since: int | None = None
    topic: str | None = None
    queue: int | None = None
    node: str | None = None
    runbook: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know: 'critical', 'warning' or 'info', since when (Unix ms, if that is known), and what to do, in words.

    `code` is the name of the check; `runbook` says where to read on.
    """

    severity: str
    code: str
    text: str
    since: int | None = None
    topic: str | None = None
    queue: int | None = None
    node: str | None = None
    runbook: str

    @classmethod
    def of(cls, check: Check) -> Finding:
        """A check that does not say 'ok'."""
        return cls(
            severity=SEVERITIES[check.result],
            code=check.name,
            text="; ".join(filter(None, (check.text, check.mend))),
            since=check.since,
            topic=check.topic,
            queue=check.queue,
            node=check.node,
            runbook=f"docs/runbook.md#{check.runbook}" if check.runbook else "docs/cli.md#doctor",
        )


def name_queues(numbers: Sequence[int]) -> str:
    """Queues in a sentence, not more than it can bear."""
    if len(numbers) == 1:
        return f"queue {numbers[0]}"
    named = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"{len(numbers)} queues ({named})"
