"""The result of a check, and the finding that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

OK: Final = "ok"
INFO: Final = "info"
WARN: Final = "warn"
FAIL: Final = "fail"
CRITICAL: Final = "critical"
WARNING: Final = "warning"
#: The severity of a finding by the result of its check, the worst first. `info` means that nothing is broken.
SEVERITIES: Final = {FAIL: CRITICAL, WARN: WARNING, INFO: INFO}


class Check(msgspec.Struct, frozen=True):
    """The result of a check: 'ok', 'info', 'warn' or 'fail', one sentence, and the remedy.

    `since` is Unix ms, if it is known, and `runbook` a section of docs/runbook.md.
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
    """A check that has not passed: 'critical', 'warning' or 'info', its beginning (Unix ms, if known), and the remedy.

    `code` is the name of the check, and `runbook` a section of docs/runbook.md.
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
        """Return the finding of a check that is not 'ok'."""
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
    """Name queues in a sentence, but only the first ones of many."""
    if len(numbers) == 1:
        return f"queue {numbers[0]}"
    named = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"{len(numbers)} queues ({named})"
