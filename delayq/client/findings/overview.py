"""An overview made of the same facts as the findings: messages by state, deliveries and lateness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from delayq.client.findings import Facts, Finding, findings
from delayq.client.looking.service import RouteState
from delayq.client.looking.traffic import last_slots, slots_of, total_of
from delayq.domain.nodes import RECENT_STEP
from delayq.domain.policies import Pause
from delayq.store.commands import COUNTERS
from delayq.telemetry.histogram import Histogram

P50: Final = 0.5
P99: Final = 0.99


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """The deliveries of the last ten minutes in slots of 10 s, as nodes report them; None is a slot that no node reports.

    `begin` is the beginning of the first slot (Unix ms). `lateness` has the p50 and p99 of each slot in ms, by the bounds of
    buckets: they are infinite above the last bound, `LATENESS[-1]`. `complete` means that every live node reports.
    """

    begin: int
    delivered: list[int | None]
    lateness: list[tuple[float, float] | None]
    total: int
    p50: float | None
    p99: float | None
    complete: bool


class Memory(msgspec.Struct, frozen=True):
    """The memory of Redis in bytes; of a cluster, of its fullest primary. None is unknown, and a `limit` of 0 is none."""

    used: int | None
    limit: int | None
    policy: str | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The service at `now` (Unix ms). Counts are messages, and None is unknown.

    `scheduled` messages are not due yet or wait for another attempt. `parked` does not include the held ones. `remembered` are
    ids that have ended. `counters` count since the store was created. `pauses` are in force, the oldest first.
    """

    now: int
    findings: list[Finding]
    scheduled: int
    due: int
    held: int | None
    parked: int | None
    dead: int
    remembered: int
    head_lateness: int
    queues: int
    counters: dict[str, int]
    live: int
    stale: int
    pauses: list[Pause]
    traffic: Traffic | None
    memory: Memory
    routes: Sequence[RouteState]


def overview(facts: Facts) -> Overview:
    """Make the overview from facts."""
    stats, held = facts.stats, facts.held
    return Overview(
        now=facts.now,
        findings=findings(facts),
        scheduled=sum(one.scheduled - one.due for one in stats),
        due=sum(one.due for one in stats),
        held=held,
        parked=max(0, sum(one.parked for one in stats) - held) if held is not None else None,
        dead=sum(one.dead for one in stats),
        remembered=sum(one.remembered for one in stats),
        head_lateness=max((one.head_lateness for one in stats), default=0),
        queues=len(stats),
        counters={name: sum(one.counters[name] for one in stats) for name in COUNTERS},
        live=len(facts.live),
        stale=len(facts.nodes) - len(facts.live),
        pauses=[one for one in facts.policies.by_age if one.until is None or one.until > facts.now],
        traffic=_traffic(facts),
        memory=Memory(facts.server.used_memory or None, facts.server.max_memory, facts.server.policy),
        routes=facts.routes,
    )


def _traffic(facts: Facts) -> Traffic | None:
    slots = slots_of(facts.nodes.values(), facts.now)
    if not slots:
        return None
    numbers, total = last_slots(facts.now), total_of(slots)
    ordered = [slots.get(number) for number in numbers]
    return Traffic(
        begin=numbers[0] * RECENT_STEP,
        delivered=[None if one is None else sum(one.counts) for one in ordered],
        lateness=[_late(one) for one in ordered],
        total=sum(total.counts),
        p50=_ms(total.quantile(P50)),
        p99=_ms(total.quantile(P99)),
        complete=all(line.recent is not None for line in facts.live),
    )


def _late(slot: Histogram | None) -> tuple[float, float] | None:
    p50, p99 = (None, None) if slot is None else (_ms(slot.quantile(P50)), _ms(slot.quantile(P99)))
    return (p50, p99) if p50 is not None and p99 is not None else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1_000 * seconds, 2)
