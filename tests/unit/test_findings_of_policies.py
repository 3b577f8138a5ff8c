from __future__ import annotations

from math import inf

import pytest

from delayq.client.findings.policies import LAG, LONG, MOST_OLD, check_pauses, check_unused_policies, check_versions
from delayq.domain.nodes import RouteLine
from delayq.domain.policies import Limit, Pause, Policies, Policy
from tests.unit.test_overview import NOW, facts_of, line_of

V1, V2 = "0000000001.0000000001", "0000000002.0000000001"
OLD = Pause(match="orders.*", since=NOW - LONG - 1, reason="payment is down")
NEW = Pause(match="news", since=NOW - LONG, reason="")


def test_each_pause_of_a_day_is_a_warning_and_all_others_are_one_information() -> None:
    pauses = {"orders.*": OLD, "news": NEW, "sms": Pause(match="sms", since=0)}
    told = list(check_pauses(facts_of(policies=Policies(V1, pauses))))
    assert [(one.result, one.topic, one.since) for one in told] == [
        ("warn", "sms", 0),
        ("warn", None, OLD.since),
        ("info", "news", NEW.since),
    ]
    assert "(payment is down)" in told[1].text
    young = {f"t{number}.*": Pause(match=f"t{number}.*", since=NOW - number, reason="why") for number in range(5)}
    many = {f"t{number}": Pause(match=f"t{number}", since=number) for number in range(500)}
    told = list(check_pauses(facts_of(policies=Policies(V1, many))))
    assert [one.topic for one in told] == [*(f"t{number}" for number in range(20)), None]
    assert told[-1].text == "480 more patterns have been paused for more than a day"
    over = {"x": Pause(match="x", since=NOW - 2, until=NOW - 1)}
    (told_of_all,) = check_pauses(facts_of(policies=Policies(V1, young | over)))
    assert (told_of_all.result, told_of_all.topic, told_of_all.since) == ("info", None, NOW - 4)
    assert told_of_all.text == "5 pauses hold messages back: t4.* (why), t3.* (why), t2.* (why), …"


@pytest.mark.parametrize(
    ("version", "since", "told"),
    [(V1, NOW - LAG - 1, True), (V1, NOW - LAG, False), (V2, 0, False), (None, 0, False), ("", 0, True)],
)
def test_a_node_that_lags_is_told_once_it_had_its_time(version: str | None, since: int, told: bool) -> None:
    policies = Policies(V2, {"x": Pause(match="x", since=0)}, changed=since)
    found = list(check_versions(facts_of(line_of("a", policies=version), policies=policies)))
    assert [one.node for one in found] == ["a"] * told


def test_what_a_limit_holds_waits_as_long_as_its_rate_takes() -> None:
    policies = Policies(
        V1,
        {"paused": Pause(match="paused")},
        {
            "sms": Policy(name="sms", match="sms.*", rate=50.0, per="policy"),
            "hooks": Policy(name="hooks", match="hooks", max_in_flight=3),
            "mail": Policy(name="mail", match="mail", rate=2.0),
            "all": Policy(name="all", match="*", order=200),
        },
        {"news": Limit(match="news", rate=10.0)},
    )
    held = {"sms.a": 100, "sms.b": 50, "mail": 9, "paused": 7, "news": 5, "other": 3, "hooks": 1}
    assert policies.waits(held) == {"t:policy/sms": 3.0, "t:mail": 4.5, "t:limit/news": 0.5, "hooks": inf}


HOOKS = RouteLine("hooks", "hooks.*", "https://h.example")
OWN = RouteLine("orders", "orders.*", "redis+stream:", local=True, stream="{topic}")
SHARED = RouteLine("shared", "shared.*", "redis+stream:", local=True, stream="all")
REST = RouteLine("rest", "*", "redis+stream:", local=True, stream="{topic}")


def unused(*policies: Policy, tables: tuple[tuple[RouteLine, ...], ...] = ((HOOKS, OWN, SHARED, REST),)) -> list[str]:
    lines = [line_of(str(number), routes=table, tells_routes=True) for number, table in enumerate(tables)]
    found = list(
        check_unused_policies(facts_of(*lines, policies=Policies(V1, {}, {one.name: one for one in policies})))
    )
    assert {(one.name, one.result) for one in found} <= {("noEffect", "warn")}
    return [one.text for one in found]


def test_a_policy_behind_one_that_covers_it_is_named_with_its_pattern() -> None:
    told = unused(
        Policy(name="late", match="orders.eu", rate=5, order=20), Policy(name="first", match="orders.*", rate=5)
    )
    assert told == []  # a lower order comes first
    (said,) = unused(
        Policy(name="late", match="orders.eu", rate=5), Policy(name="first", match="orders.*", rate=5, order=20)
    )
    assert (
        said == "the policy late for orders.eu applies to no topic, because first for orders.* (order 20) comes first"
    )
    same = [Policy(name=name, match="a.*", rate=5) for name in ("one", "two")]
    assert [one.split()[2] for one in unused(*same)] == ["two"]
    assert len(unused(*(Policy(name=f"p{number:03}", match="a", rate=5) for number in range(100)))) == MOST_OLD


@pytest.mark.parametrize(
    ("match", "fields", "told"),
    [
        ("hooks.*", {"retention_age": 10_000}, "retentionAge without effect"),
        ("hooks.a", {"retention_length": 5, "max_deliveries": 3}, "retentionLength and maxDeliveries without effect"),
        ("hooks*", {"retention_age": 10_000, "max_deliveries": 3}, None),
        ("orders.*", {"retention_age": 10_000, "max_deliveries": 3}, None),
        ("*", {"retention_age": 10_000}, None),
        ("shared.a", {"retention_age": 10_000, "max_deliveries": 3}, "retentionAge without effect"),
        ("shared.*", {"retention_age": 10_000}, None),
        ("orders.*", {"max_in_flight": 5}, "maxInFlight without effect"),
        ("hooks.*", {"max_in_flight": 5}, None),
        ("*", {"max_in_flight": 5}, None),
        ("hooks.*", {"window": 5, "max_hand_backs": 3}, None),
    ],
)
def test_a_setting_that_meets_nothing_on_the_routes_of_its_topics_is_named(
    match: str, fields: dict[str, int], told: str | None
) -> None:
    said = unused(Policy(name="p", match=match, **fields))  # type: ignore[arg-type] # of several types
    assert [told in one for one in said if told is not None] == [True] * (told is not None)
    assert len(said) == (told is not None)


def test_a_setting_that_meets_something_on_any_live_worker_is_used_and_without_workers_nothing_is_known() -> None:
    policy = Policy(name="p", match="hooks.*", retention_age=10_000)
    assert len(unused(policy)) == 1
    assert unused(policy, tables=((HOOKS,), (REST,))) == []
    assert unused(policy, tables=()) == unused(policy, tables=((),)) == []
