"""The check of consumer groups: whether consumers receive, whether they keep up, and whether others write to their streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from delayq.client.findings.check import WARN, Check
from delayq.client.findings.facts import Facts
from delayq.client.looking.groups import ConsumerGroup
from delayq.domain.words import counted

#: ms for which a message can be received, and no consumer receives, before it is a finding. No call waits longer than 30 s.
UNATTENDED: Final = 600_000
#: ms for which a message is not acknowledged before it is a finding.
OLD: Final = 3_600_000
#: ms for which an entry that was skipped is a finding.
SHOWN: Final = 86_400_000
RUNBOOK: Final = "delayqconsumerlag"


def check_consumers(facts: Facts) -> Iterator[Check]:
    """Return a check if consumers have stopped, one if a group is behind, and one of entries that delayq did not write.

    The first two name the group that waits longest.
    """
    stopped = [one for one in facts.groups if _is_unattended(one, facts.now)]
    behind = [one for one in facts.groups if one not in stopped and facts.now - _delivered(one, facts.now) > OLD]
    if stopped:
        first = min(stopped, key=lambda one: one.ready or 0)
        text = f"no consumer of group {first.group} receives from topic {first.topic}, where {_count(first)}"
        mend = "start its consumers, or delete the group (delayq delete-group)"
        yield Check(
            "consumers", WARN, text + _more(stopped), mend, since=first.ready, topic=first.topic, runbook=RUNBOOK
        )
    if behind:
        first = min(behind, key=lambda one: _delivered(one, facts.now))
        text = f"group {first.group} of topic {first.topic} has not acknowledged a message for over an hour: {_count(first)}"
        mend = "add consumers, or find out what delays them (delayq consumers)"
        since = _delivered(first, facts.now)
        yield Check("consumers", WARN, text + _more(behind), mend, since=since, topic=first.topic, runbook=RUNBOOK)

    foreign = [(one, one.foreign) for one in facts.groups if one.foreign and facts.now - one.foreign.last < SHOWN]
    if foreign:
        group, found = max(foreign, key=lambda one: one[1].last)
        entries = "an entry" if found.count == 1 else f"{found.count} entries"
        text = (
            f"group {group.group} of topic {group.topic} has skipped {entries} of the stream {found.stream} that delayq did not"
            f" write, the last one {found.entry}: {found.reason}"
        )
        mend = "let nobody else write to this stream"
        yield Check(
            "foreignEntries", WARN, text + _more(foreign), mend, since=found.last, topic=group.topic, runbook=RUNBOOK
        )


def _is_unattended(one: ConsumerGroup, now: int) -> bool:
    return (
        one.ready is not None
        and now - one.ready > UNATTENDED
        and (one.last_receive is None or now - one.last_receive > UNATTENDED)
    )


def _delivered(one: ConsumerGroup, now: int) -> int:
    return now if one.oldest is None else one.oldest.delivered


def _count(one: ConsumerGroup) -> str:
    if one.lag is None:
        return "an unknown number of messages wait"
    return counted(one.lag, "message waits", "messages wait")


def _more(found: Sequence[object]) -> str:
    count = len(found) - 1
    return f" (and {count} more {'group' if count == 1 else 'groups'})" if count else ""
