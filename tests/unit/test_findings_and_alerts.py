"""One list of troubles: what Prometheus raises an alert for is a finding, too."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import pytest

from delayq.base.errors import StoreUnavailable
from delayq.care.accounts import Accounts, Found
from delayq.client.findings import Facts, Finding, away, findings
from delayq.client.findings.alerts import ALERTS, ONLY_PROMETHEUS
from delayq.client.findings.check import CRITICAL, INFO, WARNING
from delayq.client.looking.groups import ConsumerGroup, OldestMessage
from delayq.client.looking.service import RouteState
from delayq.domain.nodes import LATELY, LATENESS, Complaint, Lately, NodeLine, OpenCircuit, Owned, Recent, RouteLine
from delayq.domain.policies import Pause, Policies
from delayq.store.checks import Disk
from delayq.store.commands import COUNTERS, LAYOUT_VERSION, QueueStats
from delayq.store.keys import Layout
from delayq.telemetry.histogram import Histogram
from delayq.testing import ManualClock
from tests.support.service import ROOT
from tests.unit.test_overview import LAST, NOW, counts, facts_of, line_of
from workers.node.duties.recent import RecentCounters
from workers.node.duties.redis_clock import Skew
from workers.node.node import Node

EPOCH: Final = "0000000001.0000000001"
RULES: Final[list[dict[str, Any]]] = msgspec.yaml.decode((ROOT / "observability" / "alerts.yaml").read_bytes())[
    "groups"
][0]["rules"]


def stats_of(**other: Any) -> QueueStats:
    figures: dict[str, Any] = {
        "queue": 0, "now": NOW, "closed": False, "scheduled": 0, "due": 0, "head_due": None, "parked": 0, "dead": 0,
        "remembered": 0, "epoch": EPOCH, "watermark": None, "parked_sets": (), "counters": dict.fromkeys(COUNTERS, 0),
        "pool": 0, "born": None,
    }  # fmt: skip
    return QueueStats(**figures | other)


def node(**told: Any) -> NodeLine:
    line = line_of("node-1", **told)
    return msgspec.structs.replace(line, queues={0: Owned(EPOCH, since=0)})


def seen(*lines: NodeLine, stats: QueueStats | None = None, server: dict[str, Any] | None = None, **more: Any) -> Facts:
    """A service of one queue and one worker in which all is well, but for what is given."""
    facts = facts_of(*(lines or (node(),)))
    return msgspec.structs.replace(
        facts,
        version=LAYOUT_VERSION,
        layouts=(Layout(1),),
        era=1,
        **{"redis_url": "redis://127.0.0.1:6379/0"} | more,
        stats=[stats if stats is not None else stats_of()],
        server=msgspec.structs.replace(facts.server, appendfsync="everysec", **server or {}),
    )


def complains(**of_the_node: Any) -> Facts:
    """A worker whose line has what it says of itself."""
    well: dict[str, Any] = {
        "ready": True, "alarms": SimpleNamespace(own=[]), "jobs": {}, "skew": SimpleNamespace(complaint=None),
        "redis_clock": SimpleNamespace(answers=True), "line": SimpleNamespace(refused=""),
    }  # fmt: skip
    told = SimpleNamespace(**well | of_the_node)
    return seen(node(complaints=tuple(Node.own_complaints(cast(Node, told)))))


def alarmed(look: Callable[[list[QueueStats]], Found], *stats: list[QueueStats]) -> Facts:
    """A worker that remembers other queues than there are."""
    found = [look(one) for one in stats][-1]
    return complains(alarms=SimpleNamespace(own=[Complaint(text, "DelayqAlarm") for text in found.lost.values()]))


def wrong_clock() -> Skew:
    skew = Skew(ManualClock())
    skew.far, skew.ms = True, -2_500
    return skew


def job(**trouble: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"alive": True, "finished": False, "stuck": False, "pulls_fail": None} | trouble)


def delivered(*late: float) -> NodeLine:
    return node(recent=Recent(LAST, (counts(*late),)))


CIRCUIT: Final = RouteLine("hooks", "*", "https://hooks.example", OpenCircuit(NOW - 1, NOW + 1, "500"))
OPEN: Final = RouteState(
    name="hooks", target="https://hooks.example", reason="500", since=NOW - 1, next_probe=None, open_at=("node-1",),
    parked=1,
)  # fmt: skip
#: The same as several of these, of which an alert is one.
MORE: Final[list[tuple[str, Callable[[], Facts]]]] = [
    ("DelayqRedisDiskFailing", lambda: seen(server={"disk_failing": True})),
    ("DelayqAlarm", lambda: seen(server={"policy": "allkeys-lru"})),
    ("DelayqAlarm", lambda: seen(server={"aof": False})),
    ("DelayqAlarm", lambda: seen(server={"role": "slave"})),
    ("DelayqAlarm", lambda: alarmed(Accounts().look, [stats_of(born="a")], [stats_of(born="b")])),
    ("DelayqStuckQueue", lambda: complains(jobs={3: job(alive=False)})),
    ("DelayqClockSkew", lambda: complains(skew=wrong_clock())),
    ("DelayqRedisDown", lambda: complains(redis_clock=SimpleNamespace(answers=False))),
    ("DelayqZooKeeperLost", lambda: complains(ready=False)),
]
#: What there is when an alert fires, and what `delayq status` reads of it.
TROUBLES: Final[dict[str, Callable[[], Facts]]] = {
    "DelayqNoWorker": lambda: seen(msgspec.structs.replace(node(), stale=True)),
    "DelayqQueueWithoutOwner": lambda: seen(line_of("node-1"), stats=stats_of(scheduled=1, epoch=None)),
    "DelayqHeadOverdue": lambda: seen(stats=stats_of(scheduled=1, due=1, head_due=NOW - 30_001)),
    "DelayqLate": lambda: seen(delivered(*[0.0] * 80, *[1.2] * 20)),
    "DelayqStuckQueue": lambda: complains(jobs={0: job(stuck=True)}),
    "DelayqQueueNotPulled": lambda: complains(jobs={0: job(pulls_fail="WRONGTYPE")}),
    "DelayqDeadLettersGrowing": lambda: seen(stats=stats_of(dead=54), oldest_dead=NOW - 1),
    "DelayqCircuitOpen": lambda: seen(node(routes=(CIRCUIT,)), routes=[OPEN]),
    "DelayqStreamRefuses": lambda: seen(
        node(routes=(RouteLine("streams", "*", "redis+stream:", local=True),)),
        stats=stats_of(parked_sets=("t:streams",)),
    ),
    "DelayqPullJobFailures": lambda: seen(node(lately=Lately(failures=1))),
    "DelayqOwnersChange": lambda: seen(node(lately=Lately(claims=4))),
    "DelayqRedisFull": lambda: seen(server={"max_memory": 100, "used_memory": 86}),
    "DelayqRedisDiskFailing": lambda: seen(server={"disks": (Disk(failing=True),)}),
    "DelayqRedisRewriteNeeded": lambda: seen(server={"disks": (Disk(errors=1),)}),
    "DelayqRedisWentBack": lambda: seen(node(lately=Lately(went_back=1))),
    "DelayqAlarm": lambda: seen(stats=stats_of(pool=-1)),
    "DelayqZooKeeperLost": lambda: seen(node(connected=False)),
    "DelayqClockSkew": lambda: seen(node(skew=-1_001)),
    "DelayqPausedLong": lambda: seen(policies=Policies(EPOCH, {"x": Pause(match="x", since=NOW - 86_400_001)})),
    "DelayqPoliciesLag": lambda: seen(
        node(policies=""), policies=Policies(EPOCH, {"x": Pause(match="x", since=NOW)}, changed=NOW - 30_000)
    ),
    "DelayqApiKeysStale": lambda: seen(stale_keys="keys.yaml: line 3"),
    "DelayqConsumerLag": lambda: seen(groups=[group_with(NOW - 3_600_001)]),
}


def group_with(delivered: int, *, received: int | None = NOW, **more: Any) -> ConsumerGroup:
    """A group whose oldest message was delivered at a time."""
    oldest = OldestMessage(id="a", due=delivered, delivered=delivered, state="waiting")
    given: dict[str, Any] = {"topic": "orders", "group": "mail", "since": 0, "waiting": 1, "ready": delivered} | more
    return ConsumerGroup(oldest=oldest, last_receive=received, **given)


def found_at(alert: str) -> list[Finding]:
    if alert == "DelayqRedisDown":
        return away(StoreUnavailable("connection refused"), NOW)
    return findings(TROUBLES[alert]())


def test_each_alert_of_prometheus_is_a_finding_or_says_why_it_cannot_be_one() -> None:
    alerts = [rule["alert"] for rule in RULES]
    assert sorted(alerts) == sorted([*ALERTS, *ONLY_PROMETHEUS])
    assert all(why for why in ONLY_PROMETHEUS.values())
    assert findings(seen()) == []


@pytest.mark.parametrize("alert", ALERTS)
def test_what_an_alert_fires_for_is_found(alert: str) -> None:
    found = {(one.code, one.runbook): one.severity for one in found_at(alert)}
    severity = found[ALERTS[alert], f"docs/runbook.md#{alert.lower()}"]
    assert severity in (CRITICAL, WARNING)


@pytest.mark.parametrize(("alert", "facts"), MORE)
def test_what_else_an_alert_fires_for_is_found(alert: str, facts: Callable[[], Facts]) -> None:
    found = {one.runbook: one.severity for one in findings(facts())}
    assert found[f"docs/runbook.md#{alert.lower()}"] in (CRITICAL, WARNING)


def test_each_section_of_the_runbook_that_a_finding_names_is_that_of_its_alert() -> None:
    for alert in ALERTS:
        for one in found_at(alert):
            sections = {"docs/cli.md#doctor"} | {f"docs/runbook.md#{name.lower()}" for name in ALERTS}
            assert one.runbook in sections, one


@pytest.mark.parametrize(
    ("late", "severity"),
    [
        ([0.9] * 100, None),
        ([0.0] * 99 + [1.2], None),
        ([0.0] * 98 + [1.2] * 2, INFO),
        ([0.0] * 98 + [53.0] * 2, WARNING),
        ([0.0] * 85 + [1.2] * 15, WARNING),
        ([3_600.0], WARNING),
    ],
)
def test_late_deliveries_are_found_as_far_as_99_of_100_are_not_in_time(late: list[float], severity: str | None) -> None:
    found = findings(seen(delivered(*late)))
    assert [one.severity for one in found if one.code == "lateness"] == ([severity] if severity else [])
    if late == [3_600.0]:
        assert "the p99 is more than 10 min" in found[0].text


@pytest.mark.parametrize(
    ("groups", "texts"),
    [
        ([group_with(NOW - 3_600_000), group_with(NOW - 600_000, received=None)], []),
        ([ConsumerGroup(topic="orders", group="mail", since=0, waiting=0, last_receive=0)], []),
        (
            [group_with(NOW - 3_600_001, waiting=None)],
            ["has not acknowledged a message for over an hour: an unknown number"],
        ),
        (
            [group_with(NOW - 9_000_000, ready=None, received=0, waiting=0, handed_back=1)],
            ["over an hour: 1 message waits"],
        ),
        (
            [group_with(NOW - 600_001, received=NOW - 600_001), group_with(NOW - 700_000, received=None, group="sms")],
            ["no consumer of group sms receives from topic orders, where 1 message waits (and 1 more group)"],
        ),
        ([group_with(NOW - 600_001, received=NOW - 600_000)], []),
    ],
)
def test_groups_that_nobody_serves_and_groups_that_are_behind_are_found(
    groups: list[ConsumerGroup], texts: list[str]
) -> None:
    found = [one for one in findings(seen(groups=groups)) if one.code == "consumers"]
    assert len(found) == len(texts)
    for one, text in zip(found, texts, strict=True):
        assert text in one.text
        assert (one.severity, one.topic, one.runbook) == (WARNING, "orders", "docs/runbook.md#delayqconsumerlag")


def test_information_comes_behind_what_is_wrong() -> None:
    paused = Policies(EPOCH, {"x": Pause(match="x", since=NOW - 1)})
    found = findings(seen(stats=stats_of(dead=54, pool=-1), policies=paused))
    assert [(one.severity, one.code) for one in found] == [
        ("critical", "accounts"),
        ("warning", "deadLetters"),
        ("info", "paused"),
    ]


def test_a_percentile_above_all_buckets_is_no_number_of_them() -> None:
    histogram = Histogram(LATENESS)
    assert histogram.quantile(0.5) is None
    histogram.add(599.0, 99)
    assert histogram.quantile(1.0) == LATENESS[-1]
    histogram.add(601.0)
    assert histogram.quantile(0.995) == float("inf")


def test_a_node_counts_the_last_quarter_of_an_hour() -> None:
    total = [0]
    lately = RecentCounters(lambda: Lately(failures=total[0]))
    total[0] = 3
    assert lately.sum().failures == 3
    for _ in range(LATELY // 60_000):
        lately.tick()
    assert lately.sum().failures == 3
    total[0] = 5
    lately.tick()
    assert lately.sum().failures == 2
    for _ in range(LATELY // 60_000):
        lately.tick()
    assert lately.sum().failures == 0
