"""What workers say of themselves in their lines: circuits that are open, what keeps them from their work, silence."""

from __future__ import annotations

from collections.abc import Iterator

from delayq.client.findings.check import FAIL, WARN, Check
from delayq.client.findings.facts import Facts
from delayq.times import format_instant

__all__ = ["check_circuits", "check_complaints", "check_silent"]


def check_circuits(facts: Facts) -> Iterator[Check]:
    """A check for each route whose circuit is open."""
    for route in facts.routes:
        if not route.open_at or route.since is None:
            continue
        probe = f", the next probe goes in {max(0, route.next_probe - facts.now) // 1000} s" if route.next_probe else ""
        text = (
            f"the target of route {route.name} takes nothing since {format_instant(route.since)} at "
            f"{', '.join(route.open_at)} ({route.reason or 'it does not say why'}): {route.parked} messages are parked{probe}"
        )
        node = route.open_at[0] if len(route.open_at) == 1 else None
        mend = "see to the target, or to the consumers of a stream that is full; what is parked comes back by itself"
        yield Check("circuit", WARN, text, mend, since=route.since, node=node, runbook="delayqcircuitopen")


def check_complaints(facts: Facts) -> Iterator[Check]:
    """A check for each thing that keeps a worker from doing its work well, as its own /readyz says."""
    for line in facts.live:
        for sentence in line.complaints:
            mend = f"see the log of {line.node}"
            yield Check("worker", FAIL, f"{line.node}: {sentence}", mend, node=line.node, runbook="delayqstuckqueue")


def check_silent(facts: Facts) -> Iterator[Check]:
    """A check for each node that has stopped without a word."""
    for line in facts.nodes.values():
        if line.stale:
            text = f"{line.node} has not written its line since {format_instant(line.seen)}"
            mend = "it died or is cut off from Redis: see its log; its line goes an hour after its last word"
            yield Check("silent", WARN, text, mend, since=line.seen, node=line.node, runbook="delayqnoworker")
