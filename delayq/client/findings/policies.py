"""The checks of pauses that may be forgotten, and of nodes with older policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from delayq.base.times import format_instant
from delayq.client.findings.check import INFO, WARN, Check
from delayq.client.findings.facts import Facts
from delayq.domain.nodes import RouteLine
from delayq.domain.patterns import covered, covers, is_pattern, overlap
from delayq.domain.policies import Pause, Policy, may_be_lost, number_of
from delayq.domain.words import counted

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
        text = f"{counted(len(young), 'pause holds', 'pauses hold')} messages back: {named}"
        topic = _topic(young[0]) if len(young) == 1 else None
        yield Check("paused", INFO, text, "resume when the reason no longer applies", since=young[0].since, topic=topic)


def _why(pause: Pause) -> str:
    return f" ({pause.reason})" if pause.reason else ""


def _topic(pause: Pause) -> str | None:
    return None if is_pattern(pause.match) else pause.match


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


def check_unused_policies(facts: Facts) -> Iterator[Check]:
    """Return a check for each policy that applies to no topic, or that has a setting which does nothing for its topics."""
    yield from islice(_unused_policies(facts), MOST_OLD)


def _unused_policies(facts: Facts) -> Iterator[Check]:
    policies = facts.policies.in_order
    behind = covered(tuple(one.match for one in policies))
    tables = list(dict.fromkeys(line.routes for line in facts.live if line.tells_routes))
    for place, policy in enumerate(policies):
        found: list[tuple[str, str]] = []
        if place in behind:
            first = policies[behind[place]]
            why = f"{first.name} for {first.match} (order {first.order}) comes first"
            found.append((f"applies to no topic, because {why}", f"give it an order below {first.order}, or delete it"))
        elif reached := [(route, table) for table in tables for route in _reached(policy.match, table)]:
            found += _without_streams(policy, reached, facts)
            found += _without_sends(policy, reached)
        for what, mend in found:
            text = f"the policy {policy.name} for {policy.match} {what}"
            topic = None if is_pattern(policy.match) else policy.match
            yield Check("noEffect", WARN, text, mend, since=policy.since or None, topic=topic)


Table = Sequence[RouteLine]
Reached = Sequence[tuple[RouteLine, Table]]


def _reached(match: str, table: Table) -> Iterator[RouteLine]:
    """Yield the routes that topics of a pattern may have."""
    for route in table:
        if overlap(route.match, match):
            yield route
        if covers(route.match, match):
            return


def _without_streams(policy: Policy, reached: Reached, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the settings for streams of delayq's own Redis that meet no such stream, and the remedy."""
    streams = [one for one in reached if one[0].stream is not None]
    trimmed = any(_is_trimmed(policy, *one, facts) for one in streams)
    given = {
        "retentionAge": policy.retention_age is not None and not trimmed,
        "retentionLength": policy.retention_length is not None and not trimmed,
        "maxDeliveries": policy.max_deliveries is not None and not streams,
    }
    if idle := [name for name, is_idle in given.items() if is_idle]:
        why = "of these topics has a stream of this Redis" + (" that no other policy is for" if streams else "")
        mend = "remove this from the policy, or give the topics a route to streams of their own"
        yield f"has {' and '.join(idle)} without effect, because none {why}", mend


def _is_trimmed(policy: Policy, route: RouteLine, table: Table, facts: Facts) -> bool:
    """Whether streams of a route are trimmed: a stream of several topics only if one policy is for all of them."""
    if route.stream is None or "{topic}" in route.stream:
        return True
    sharing = [one.match for one in table if one.stream == route.stream]
    return all(facts.policies.policy_of_all(one) is policy for one in sharing)


def _without_sends(policy: Policy, reached: Reached) -> Iterator[tuple[str, str]]:
    """Yield a bound of concurrent sends for topics that workers append to streams without a send, and the remedy."""
    if policy.max_in_flight is not None and all(route.local for route, _ in reached):
        why = "all these topics have streams of this Redis"
        yield f"has maxInFlight without effect, because {why}", "give their route a maxBacklog instead"
