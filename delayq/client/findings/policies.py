"""What is paused for so long that it may be forgotten, and who does not act on what is set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from delayq.client.findings.check import WARN, Check
from delayq.client.findings.facts import Facts
from delayq.policies import number_of
from delayq.times import format_instant

__all__ = ["check_pauses", "check_versions"]

LONG: Final = 86_400_000
LAG: Final = 10_000  # ms that a node has to act on what was set


def check_pauses(facts: Facts) -> Iterator[Check]:
    """A check for each pause that is old."""
    for pause in facts.policies.pauses.values():
        if facts.now - pause.since > LONG:
            why = f" ({pause.reason})" if pause.reason else ""
            text = f"{pause.match} is paused since {format_instant(pause.since)}{why}"
            topic = pause.match if not set(pause.match) & set("*?") else None
            mend = "resume it, or give it an end if it is to last; delayq audit says who did it"
            yield Check("paused", WARN, text, mend, since=pause.since, topic=topic, runbook="delayqpausedlong")


def check_versions(facts: Facts) -> Iterator[Check]:
    """A check for each live node that acts on older policies than there have been for a while."""
    policies = facts.policies
    for line in facts.live:
        if line.policies is not None and line.policies < policies.version and line.seen - policies.changed > LAG:
            old, new = number_of(line.policies), policies.number
            text = f"{line.node} acts on version {old} of the policies, and there is {new}"
            mend = f"see what keeps it from Redis in the log of {line.node}, or restart it"
            yield Check(
                "policies",
                WARN,
                text,
                mend,
                since=policies.changed or None,
                node=line.node,
                runbook="delayqpolicieslag",
            )
