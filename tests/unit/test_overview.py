"""What lines and figures say at a glance, and what they do not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from delayq.client.findings import Facts
from delayq.client.findings.overview import Overview, overview
from delayq.client.looking.counting import _rates
from delayq.client.looking.dead_groups import reason_class
from delayq.config import Settings
from delayq.domain.nodes import LATENESS, RECENT_SLOTS, RECENT_STEP, NodeLine, Recent
from delayq.domain.policies import NO_POLICIES, Pause, Policies
from delayq.store.checks import ServerSettings
from delayq.store.keys import KEYS
from delayq.telemetry.histogram import Histogram
from workers.node.duties.recent import RecentLateness

NOW = 1_800_000_000_000
LAST = NOW // RECENT_STEP - 1


def line_of(node: str, **told: Any) -> NodeLine:
    return NodeLine(
        node=node, address="", version="", since=None, seen=NOW, stale=False, coordinator="", queues={}, handed_over=None,
        **told,
    )  # fmt: skip


def facts_of(*lines: NodeLine, held: int | None = 0, policies: Policies = NO_POLICIES) -> Facts:
    server = ServerSettings(
        name="valkey",
        version="9",
        aof=True,
        policy="noeviction",
        max_memory=0,
        used_memory=0,
        role="master",
        loading=False,
    )
    nodes = {line.node: line for line in lines}
    return Facts(
        settings=Settings(), redis_url="", now=NOW, server=server, version="", layouts=(), era=0,
        nodes=nodes, stats=[], routes=[], held=held, policies=policies,
    )  # fmt: skip


def seen(*told: Recent | None, held: int | None = 0) -> Overview:
    return overview(facts_of(*(line_of(str(number), recent=recent) for number, recent in enumerate(told)), held=held))


def counts(*late: float) -> tuple[int, ...]:
    histogram = Histogram(LATENESS)
    for one in late:
        histogram.add(one)
    return tuple(histogram.counts)


def test_slots_of_all_nodes_are_added_where_they_belong_and_unknown_is_not_zero() -> None:
    found = seen(Recent(LAST, (counts(0.0005, 0.0005), ())), Recent(LAST - 1, (counts(0.0005, 0.2),)), held=None)
    assert found.traffic is not None
    assert found.traffic.delivered == [None] * (RECENT_SLOTS - 2) + [4, 0]
    assert (found.traffic.total, found.traffic.complete, found.traffic.lateness[-1]) == (4, True, None)
    assert found.traffic.lateness[-2] is not None
    assert 0 < found.traffic.lateness[-2][0] <= 1 < 150 < found.traffic.lateness[-2][1] <= 250
    assert (found.held, found.parked) == (None, None)
    assert found.traffic.begin == (LAST - RECENT_SLOTS + 1) * RECENT_STEP
    # What is older counts for nothing, and what is told by some only is said so.
    assert seen(Recent(LAST - RECENT_SLOTS, (counts(1),)), None).traffic is None
    partly = seen(Recent(LAST, (counts(1),)), None).traffic
    assert partly is not None
    assert not partly.complete


@pytest.mark.parametrize(
    "steps", [(1_000, 1_000), (RECENT_STEP, 3 * RECENT_STEP), (RECENT_STEP, -5 * RECENT_STEP)], ids=str
)
def test_a_node_tells_the_slots_that_are_over_whatever_its_clock_does(steps: Sequence[int]) -> None:
    histogram = Histogram(LATENESS)
    recent = RecentLateness(histogram)
    now = NOW
    recent.tick(now)
    assert recent.slots() is None
    for step in steps:
        histogram.add(0.0005, 3)
        now += step
        recent.tick(now)
    expected = {
        1_000: None,
        3 * RECENT_STEP: Recent(LAST + 4, ((3,), (3,), (), ())),
        -5 * RECENT_STEP: None,
    }
    assert recent.slots() == expected[steps[1]]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("hooks.example answered 404", "hooks.example answered 404"),
        ("order 4711001 of 2027-01-31 is gone", "order # of #-01-31 is gone"),
        ("no tenant 0b8f3c52-1111-4222-8333-abcdefabcdef", "no tenant #"),
        ("x" * 300, "x" * 120),
    ],
)
def test_a_class_of_reasons_is_without_what_differs(reason: str, kind: str) -> None:
    assert reason_class(reason) == kind


def test_a_pause_that_is_over_is_told_no_more() -> None:
    pauses = {
        match: Pause(match=match, since=NOW - since, until=until)
        for match, since, until in (("over", 9, NOW), ("last", 1, None), ("first", 5, NOW + 1))
    }
    told = overview(facts_of(policies=Policies(pauses=pauses))).pauses
    assert [one.match for one in told] == ["first", "last"]


@pytest.mark.parametrize(
    ("slots", "rate", "capacity"),
    [
        ([], None, None),
        ([[0.0] * 500], 50.0, None),  # nothing had to wait: who asks for more may get it
        ([[5.0] * 99], 9.9, None),  # too few to be more than retries
        ([[5.0] * 79 + [0.5] * 21], 10.0, None),
        ([[5.0] * 80 + [0.5] * 20], 10.0, 10.0),
        ([[5.0] * 100, [0.5] * 300], 30.0, 30.0),  # more than that went out in time
    ],
)
def test_what_workers_can_do_is_known_only_if_messages_had_to_wait(
    slots: list[list[float]], rate: float | None, capacity: float | None
) -> None:
    recent = {"last": LAST, "counts": [counts(*one) for one in slots]}
    line = msgspec.json.encode({"seen": NOW, "recent": recent if slots else None})
    plan = _rates(KEYS)
    next(plan)
    with pytest.raises(StopIteration) as ended:
        plan.send([{"a": line}, NOW])
    assert ended.value.value == (rate, capacity)
