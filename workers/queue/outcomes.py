"""What becomes of a message that was sent, by what its target has answered."""

from __future__ import annotations

from delayq.routes import Route
from delayq.targets import Result
from workers.queue.parked_sets import of_route
from workers.queue.policy import Policy
from workers.queue.settlement import ACK, Ack, Bury, Park, Retry
from workers.sending.message import InFlightMessage

__all__ = ["judge"]


def judge(
    message: InFlightMessage, route: Route, result: Result, now: int, policy: Policy, *, broken: bool, certain: bool
) -> Ack | Retry | Bury | Park:
    """Decide it. `broken`: the target's circuit is open; `certain`: only the target can be at fault for what failed."""
    if result.outcome == "ok":
        return ACK
    if result.outcome == "rejected":
        return Bury(result.reason)
    spared = broken or message.probe or result.outcome == "full"
    # One that may have arrived, and may be at fault itself, burns an attempt in any case.
    if spared and (certain or result.outcome != "unknown"):
        return Park(of_route(route.name))
    made = message.attempts + 1
    if made >= (message.record.max_attempts or route.max_attempts or policy.max_attempts):
        return Bury(f"gave up after {made} attempts: {result.reason}")
    if message.expired(now):
        return Bury("expired")
    pause = max(policy.backoff.delay(made), result.after)
    # With an ordering key the due stays, so that nothing of the key overtakes it.
    return Retry(None if message.record.keyed else now + pause, pause)
