"""The checks of pauses that may be forgotten, and of nodes with older policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from delayq.client.findings.check import INFO, WARN, Check
from delayq.client.findings.facts import Facts
from delayq.policies import Pause, may_be_lost, number_of
from delayq.times import format_instant

__all__ = ["check_pauses", "check_versions"]

LONG: Final = 86_400_000
MOST_OLD: Final = 20  # pauses that have a check each
NAMED: Final = 3  # pauses that one sentence names
LAG: Final = 10_000  # ms that a node has to apply new policies


def check_pauses(facts: Facts) -> Iterator[Check]:
    """Return a check for each of the oldest pauses, which may be forgotten, and one check for all pauses of today."""
    pauses = [one for one in facts.policies.by_age if one.until is None or one.until > facts.now]
    old = [one for one in pauses if facts.now - one.since > LONG]
    mend = "resume it, or set an end if it must last; delayq audit shows who paused it"
    for pause in old[:MOST_OLD]:
        text = f"{pause.match} is paused since {format_instant(pause.since)}{_why(pause)}"
        yield Check("paused", WARN, text, mend, since=pause.since, topic=_topic(pause), runbook="delayqpausedlong")
    if more := old[MOST_OLD:]:
        text = f"{len(more)} more patterns have been paused for more than a day"
        yield Check("paused", WARN, text, mend, since=more[0].since, runbook="delayqpausedlong")
    young = [one for one in pauses if facts.now - one.since <= LONG]
    if young:
        named = ", ".join(f"{one.match}{_why(one)}" for one in young[:NAMED]) + (", …" if len(young) > NAMED else "")
        text = f"{len(young)} {'pause holds' if len(young) == 1 else 'pauses hold'} messages back: {named}"
        topic = _topic(young[0]) if len(young) == 1 else None
        yield Check("paused", INFO, text, "resume when the reason no longer applies", since=young[0].since, topic=topic)


def _why(pause: Pause) -> str:
    return f" ({pause.reason})" if pause.reason else ""


def _topic(pause: Pause) -> str | None:
    return pause.match if not set(pause.match) & set("*?") else None


def check_versions(facts: Facts) -> Iterator[Check]:
    """Return a check for each live node that has applied older policies for a while."""
    policies = facts.policies
    for line in facts.live:
        if (
            line.policies is not None
            and may_be_lost(policies.version, line.policies)
            and line.seen - policies.changed > LAG
        ):
            old, new = number_of(line.policies), policies.number
            text = f"{line.node} applies version {old} of the policies, but the current version is {new}"
            mend = f"find out in the log of {line.node} what keeps it from Redis, or restart it"
            yield Check(
                "policies",
                WARN,
                text,
                mend,
                since=policies.changed or None,
                node=line.node,
                runbook="delayqpolicieslag",
            )
