"""The checks of workers by what they report: open circuits, complaints, lateness, clocks, silence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from delayq.base.times import format_instant
from delayq.client.findings.alerts import ALERTS
from delayq.client.findings.check import FAIL, INFO, WARN, Check
from delayq.client.findings.facts import Facts
from delayq.client.findings.queues import LATE
from delayq.client.looking.traffic import late_of, slots_of, total_of
from delayq.domain.nodes import LATENESS
from delayq.domain.patterns import covered
from delayq.domain.words import counted

#: The share of late messages that uses up a month's allowance in two days: DelayqLate.
TOO_MANY: Final = 0.144
#: The difference (ms) between the clocks of a node and of Redis from which messages are late by a second or more.
SKEW: Final = 1_000
#: A rolling restart claims each queue once or twice.
CLAIMS_PER_QUEUE: Final = 3


def check_circuits(facts: Facts) -> Iterator[Check]:
    """A check for each route whose circuit is open."""
    for route in facts.routes:
        if not route.open_at or route.since is None:
            continue
        probe = (
            f", the next probe is sent in {max(0, route.next_probe - facts.now) // 1000} s" if route.next_probe else ""
        )
        text = (
            f"the target of route {route.name} has refused messages since {format_instant(route.since)} at "
            f"{', '.join(route.open_at)} ({route.reason or 'no reason'}): "
            f"{counted(route.parked, 'message is', 'messages are')} parked{probe}"
        )
        node = route.open_at[0] if len(route.open_at) == 1 else None
        mend = "check the target, or the consumers of a full stream; parked messages are then delivered by themselves"
        yield Check("circuit", WARN, text, mend, since=route.since, node=node, runbook="delayqcircuitopen")


def check_complaints(facts: Facts) -> Iterator[Check]:
    """Return a check for each complaint of a worker, as its /readyz answers it."""
    for line in facts.live:
        for text, code in line.complaints:
            mend = f"see the log of {line.node}"
            section = (code if code in ALERTS else "DelayqStuckQueue").lower()
            yield Check("worker", FAIL, f"{line.node}: {text}", mend, node=line.node, runbook=section)


def check_silent(facts: Facts) -> Iterator[Check]:
    """A check for each node that has stopped reporting without shutting down."""
    for line in facts.nodes.values():
        if line.stale:
            text = f"{line.node} has not reported since {format_instant(line.seen)}"
            mend = "it died, or cannot reach Redis: see its log; its report is removed after an hour"
            yield Check("silent", WARN, text, mend, since=line.seen, node=line.node, runbook="delayqnoworker")


def check_lateness(facts: Facts) -> Iterator[Check]:
    """Return a check if more than one of 100 messages of the last ten minutes was late by more than a second."""
    delivered = total_of(slots_of(facts.nodes.values(), facts.now))
    total, late = sum(delivered.counts), late_of(delivered)
    if late * 100 <= total:
        return
    p99 = delivered.quantile(0.99) or 0.0
    longest = f"more than {LATENESS[-1] / 60:.0f} min" if p99 == math.inf else f"{p99:.3g} s"
    text = (
        f"{late} of the {total} messages of the last 10 minutes {'was' if late == 1 else 'were'} delivered more than 1 s "
        f"late, the p99 is {longest}"
    )
    mend = "see the other findings, and check for a slow target; paused, limited and retried messages count too"
    yield Check(
        "lateness", WARN if p99 > LATE / 1_000 or late > TOO_MANY * total else INFO, text, mend, runbook="delayqlate"
    )


def check_skew(facts: Facts) -> Iterator[Check]:
    """Return a check for each live node whose clock is off by more than a second."""
    for line in facts.live:
        if line.skew is not None and abs(line.skew) > SKEW:
            text = f"the clock of {line.node} is {abs(line.skew)} ms {'behind' if line.skew > 0 else 'ahead of'} that of Redis"
            mend = "synchronize both clocks (NTP): messages are late by this difference"
            yield Check("clockSkew", WARN, text, mend, node=line.node, runbook="delayqclockskew")


def check_coordinators(facts: Facts) -> Iterator[Check]:
    """Return a check for each live node that is missing in ZooKeeper: no other node takes over its queues."""
    for line in facts.live:
        if line.connected is False:
            text = f"{line.node} has no session with ZooKeeper: no node takes over its queues if it ends"
            mend = f"restore ZooKeeper before you restart a worker; see the log of {line.node}"
            yield Check("zookeeper", WARN, text, mend, node=line.node, runbook="delayqzookeeperlost")


def check_failures(facts: Facts) -> Iterator[Check]:
    """Return a check for each live node with recent errors in its pull jobs."""
    for line in facts.live:
        if line.lately is not None and line.lately.failures:
            failed = counted(line.lately.failures, "time", "times")
            text = f"Redis refused writes of {line.node}, or its pull jobs failed, {failed} in 15 minutes"
            mend = f"see redis_trouble and tick_failed in the log of {line.node}"
            yield Check("pullJobs", WARN, text, mend, node=line.node, runbook="delayqpulljobfailures")


def check_went_back(facts: Facts) -> Iterator[Check]:
    """Return a check for each live node that recently found that Redis had lost changes."""
    for line in facts.live:
        if line.lately is not None and line.lately.went_back:
            times = counted(line.lately.went_back, "time", "times")
            text = f"Redis had lost its latest changes, as {line.node} found {times} in the last 15 minutes"
            mend = f"repeat the last calls with the same ids; see went_back in the log of {line.node}"
            yield Check("wentBack", FAIL, text, mend, node=line.node, runbook="delayqrediswentback")


def check_claims(facts: Facts) -> Iterator[Check]:
    """Return a check if queues change their owner again and again."""
    claims = sum(line.lately.claims for line in facts.live if line.lately is not None)
    if claims > CLAIMS_PER_QUEUE * len(facts.stats):
        text = f"queues changed their owner {claims} times in the last 15 minutes, and there are {len(facts.stats)}"
        mend = "see zookeeper, stood_still and clock_skew in the logs of the workers"
        yield Check("ownersChange", WARN, text, mend, runbook="delayqownerschange")


def check_unused_routes(facts: Facts) -> Iterator[Check]:
    """Return a check for each route of a live worker that gets no message, or that has settings without effect."""
    told: set[str] = set()
    for line in facts.live:
        behind = covered(tuple(route.match for route in line.routes))
        for place, route in enumerate(line.routes):
            found = []
            if place in behind:
                first = line.routes[behind[place]]
                text = (
                    f"the route {route.name} with {route.match} gets no message, because the earlier route {first.name} "
                    f"with {first.match} takes all its topics"
                )
                found.append((text, f"put {route.name} before {first.name}, or remove it"))
            if route.unused:
                text = f"the route {route.name} has {', '.join(route.unused)}, which targets {route.target} ignore"
                found.append((text, "remove it from DELAYQ_ROUTES"))
            for text, mend in found:
                if text not in told:
                    told.add(text)
                    yield Check("noEffect", WARN, text, mend, node=line.node)
