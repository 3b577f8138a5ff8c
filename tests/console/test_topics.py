"""The timeline, the topics, and their pauses and policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.console.world import BURST, HOUR, World, now
from tests.support.browser import Pages
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Until the next bars are there, the ones before stay: the same button leads to the same place then.
LOOK_CLOSER: Final = """() => {
  [...document.querySelectorAll("main button")].find((one) => one.textContent === "Look closer")?.click();
  return document.querySelector("figcaption")?.textContent ?? "";
}"""


@pytest.fixture
def topics(world: World) -> Iterator[str]:
    """A pattern of two topics that have policies and no messages."""
    world.service.http.put("/v1/policies/by-hand-1", json={"match": "held-by-hand.one", "rate": 5}).raise_for_status()
    world.service.http.put("/v1/policies/by-hand-2", json={"match": "held-by-hand.two", "rate": 5}).raise_for_status()
    yield "held-by-hand.*"
    for name in ("by-hand-1", "by-hand-2", "by-hand-3"):
        world.service.http.delete(f"/v1/policies/{name}")
    world.service.http.post("/v1/topics:resume", json={"match": "held-by-hand.*"})


def address(page: Page) -> dict[str, str]:
    """The query behind the # as it is now: `page.url` lags behind."""
    return {name: one for name, (one, *_) in parse_qs(page.evaluate("location.hash").partition("?")[2]).items()}


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def done(page: Page, text: str | re.Pattern[str]) -> None:
    """The dialog shows this text, and closes."""
    expect(dialog(page).get_by_role("status")).to_contain_text(text)
    dialog(page).get_by_role("button", name="Close").last.click()
    expect(dialog(page)).to_have_count(0)


def instant(page: Page, name: str) -> datetime:
    """A time of the address."""
    return datetime.fromisoformat(address(page)[name])


def wide(page: Page) -> float:
    """ms of the time that the timeline shows."""
    return (instant(page, "dueTo") - instant(page, "dueFrom")) / timedelta(milliseconds=1)


def test_the_timeline_shows_a_burst_from_far_and_to_the_ms(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/timeline?range=6h")
    highest = page.get_by_text("In the highest bar").locator("xpath=..")
    expect(highest).to_contain_text(re.compile(rf"{BURST // 1_000},\d\d\d"))
    eventually(lambda: "in bars of 1 ms" in page.evaluate(LOOK_CLOSER), "it shows single ms")
    expect(highest).to_contain_text(f"{BURST:,}")
    page.get_by_text("As a table").click()
    row = page.get_by_role("row").filter(has_text=f"{BURST:,}")
    expect(row).to_contain_text(re.compile(r"\d\d\.\d{3}"))
    row.get_by_role("button").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Messages")
    assert instant(page, "dueTo") - instant(page, "dueFrom") == timedelta(milliseconds=1)


def test_the_timeline_is_moved_by_keys_and_by_dragging_and_a_bar_lists_its_messages(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/timeline")
    page.get_by_role("button", name="Zoom in").focus()
    for key, times in (("+", 1 / 2), ("+", 1 / 4), ("ArrowRight", 1 / 4), ("-", 1 / 2)):
        page.keyboard.press(key)
        assert wide(page) == pytest.approx(times * 24 * 3_600_000, rel=0.02)
    before = wide(page)
    expect(page.locator("figcaption")).to_contain_text("in bars of 10 min")  # until they are there, those before stay
    plot = page.locator(".u-over").bounding_box()
    assert plot is not None
    middle = plot["y"] + plot["height"] / 2
    page.mouse.move(plot["x"] + plot["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * 0.75, middle, steps=5)
    page.mouse.up()
    assert wide(page) == pytest.approx(before / 2, rel=0.05)
    page.go_back()
    assert wide(page) == before
    page.mouse.click(plot["x"] + plot["width"] / 2, middle)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Messages")
    assert {"dueFrom", "dueTo", "state"} <= set(address(page))


def test_topics_are_found_by_a_pattern_among_thousands(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/topics")
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"100 of [\d,]+ topics"))
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()
    page.get_by_label("Topic or pattern").fill("sms.*")
    page.get_by_role("button", name="Filter").click()
    row = page.get_by_role("region", name="Topics").get_by_role("row").filter(has_text="sms.marketing")
    expect(row).to_contain_text("the provider is down")
    assert address(page) == {"match": "sms.*"}


def test_a_pause_of_several_topics_is_confirmed_by_their_number(pages: Pages, world: World, topics: str) -> None:
    page = pages.open(f"{world.url}#/topics?match={topics}")
    page.get_by_role("button", name="Pause a pattern").click()
    expect(dialog(page).get_by_role("button", name="Pause")).to_be_disabled()
    dialog(page).get_by_label("Type 2 to confirm").fill("2")
    dialog(page).get_by_label("Reason").fill("<b>the provider</b> is down")
    dialog(page).get_by_role("button", name="Pause").click()
    done(page, f"Nothing of {topics} is delivered")
    row = page.get_by_role("region", name="Topics").get_by_role("row").filter(has_text="held-by-hand.one")
    expect(row).to_contain_text("<b>the provider</b> is down")
    row.get_by_role("link").first.click()
    expect(page.get_by_role("main")).to_contain_text("paused: no message may arrive")
    page.get_by_role("button", name="Resume").click()
    dialog(page).get_by_label("Maximum messages per second").fill("0.5")
    dialog(page).get_by_role("button", name="Resume").click()  # the browser itself refuses that
    dialog(page).get_by_label("Maximum messages per second").fill("50")
    dialog(page).get_by_role("button", name="Resume").click()
    done(page, f"{topics} is resumed")
    expect(page.get_by_role("main")).to_contain_text("It is not paused.")


def test_a_pause_that_ends_while_the_dialog_waits_is_not_made_again(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/topics/slow.reports")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.method} {request.url.partition('?')[0]}"))
    page.get_by_role("button", name="Pause").click()
    dialog(page).get_by_role("button", name="Pause").click()
    expect(dialog(page)).to_contain_text("at most 3 messages may still arrive")
    with page.expect_response("**/v1/topics?match=slow.reports*"):  # it is looked at
        pass
    world.service.http.post("/v1/topics:resume", json={"match": "slow.reports"}).raise_for_status()
    done(page, "slow.reports was resumed meanwhile")
    expect(page.get_by_role("button", name="Pause")).to_be_focused()
    assert "pause" not in world.get("/v1/topics/slow.reports")
    assert len([one for one in asked if one.startswith("POST")]) == 1


def test_what_may_arrive_yet_of_a_pattern_is_looked_at_again_and_again(pages: Pages, world: World) -> None:
    def looked(route: Route) -> None:
        told = route.fetch().json()
        told["arriving"] = [{"node": "w0", "inFlight": one} for one in left]
        route.fulfill(json=told)

    left: list[int | None] = [2, None]
    page = pages.open(f"{world.url}#/topics?match=slow.*")
    page.route("**/v1/topics?match=slow.*", looked)
    page.get_by_role("button", name="Pause a pattern").click()
    dialog(page).get_by_label("Topic, or a pattern").fill("slow.*")
    dialog(page).get_by_role("button", name="Pause").click()
    try:
        expect(dialog(page)).to_contain_text("not every node has reported yet")
        left[1] = 3
        expect(dialog(page)).to_contain_text("at most 5 messages may still arrive")
        left.clear()
        done(page, "Nothing of slow.* is delivered, and no message may arrive")
    finally:
        world.service.http.post("/v1/topics:resume", json={"match": "slow.*"}).raise_for_status()


def test_a_pause_that_is_replaced_while_the_dialog_waits_is_not_called_resumed(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/topics?match=slow.*")
    for match in ("slow.reports", "slow.*"):
        page.get_by_role("button", name="Pause a pattern").click()
        dialog(page).get_by_label("Topic, or a pattern").fill(match)
        dialog(page).get_by_role("button", name="Pause").click()
        expect(dialog(page)).to_contain_text("at most 3 messages may still arrive")
        other = {"match": match, "reason": "another one"}
        world.service.http.post("/v1/topics:pause", json=other, params={"wait": 0}).raise_for_status()
        done(page, "was changed meanwhile")
        pauses = world.get("/v1/policies")["pauses"]
        assert [one["reason"] for one in pauses if one["match"] == match] == ["another one"]
        world.service.http.post("/v1/topics:resume", json={"match": match}).raise_for_status()


def test_policies_are_created_and_changed_and_a_change_of_others_is_shown(
    pages: Pages, world: World, topics: str
) -> None:
    page = pages.open(f"{world.url}#/topics?match={topics}", accepts=["412"])
    page.get_by_role("button", name="New policy").click()
    dialog(page).get_by_label("Name").fill("by-hand-3")
    dialog(page).get_by_label("Pattern").fill(topics)
    dialog(page).get_by_label("Order").fill("7")
    dialog(page).get_by_label("Back-off").fill("10s, 1m")
    dialog(page).get_by_label("Spread over").fill("1h30m")
    dialog(page).get_by_label("Reason").fill("für die Kunden: 短信")
    dialog(page).get_by_role("button", name="Save").click()
    done(page, "The policy is in force")
    policies = page.get_by_role("region", name="Policies")
    row = policies.get_by_role("row").filter(has_text="by-hand-3")
    expect(row).to_contain_text("10 sec, 1 min")
    assert world.get("/v1/audit", action="putPolicy")["entries"][0]["reason"] == "für die Kunden: 短信"
    row.get_by_role("button", name="Change").click()
    expect(dialog(page).get_by_label("Spread over")).to_have_value("1h30m")
    world.service.http.put("/v1/policies/by-hand-3", json={"match": topics, "pending": 77}).raise_for_status()
    dialog(page).get_by_label("Spread over").fill("2h")
    dialog(page).get_by_role("button", name="Save").click()
    expect(dialog(page)).to_contain_text("The policy was changed meanwhile")
    expect(dialog(page)).to_contain_text("77")
    dialog(page).get_by_role("button", name="Save").click()
    done(page, "The policy is in force")
    assert world.get("/v1/policies/by-hand-3")["window"] == 7_200_000
    row.get_by_role("button", name="Delete").click()
    dialog(page).get_by_label("Type 2 to confirm").fill("2")
    dialog(page).get_by_role("button", name="Delete").click()
    done(page, "The policy is deleted")
    expect(row).to_have_count(0)


def test_overdue_messages_are_delivered_before_the_bars(pages: Pages, world: World) -> None:
    def forecast(route: Route) -> None:
        asked = {
            name: int(one)
            for name, (one, *_) in parse_qs(route.request.url.partition("?")[2]).items()
            if name != "topic"
        }
        times = range(asked["dueFrom"], asked["dueTo"], asked["step"])
        bars = [{"dueFrom": at, "messages": 7 * (capacity is None and at == times[3])} for at in times]
        rates = {"drainRate": 0.005, "capacity": capacity}
        route.fulfill(json={"buckets": bars, "exact": True, "asOf": None} | rates)

    capacity: float | None = 0.005
    page = pages.open(f"{world.url}#/overview")
    page.route("**/v1/forecast?*", forecast)
    page.route("**/v1/messages:count?*", lambda route: route.fulfill(json={"count": 36}))
    page.goto(f"{world.url}#/timeline?range=6h")
    main = page.get_by_role("main")
    expect(main).to_contain_text("36 messages are overdue")
    expect(main.get_by_text("Time to deliver all").locator("xpath=..")).to_contain_text("2 hr")
    expect(main.get_by_text("Drain rate, messages/s").locator("xpath=..")).to_contain_text("< 0.01")
    expect(main).to_contain_text(re.compile(r"36 at .* would take 2 hr"))
    capacity = None  # no message had to wait: nobody knows how long anything takes
    page.get_by_role("button", name="Refresh now").click()
    expect(main).to_contain_text("The capacity of the workers is unknown")
    expect(main).to_contain_text("The bars exceed the measured peak rate once")
    expect(main).to_contain_text("7 fall due between")
    expect(main.get_by_text("Time to deliver all").locator("xpath=..")).to_contain_text("–")
    expect(main).not_to_contain_text(re.compile(r"would take \d| late\."))
    capacity = 0.005
    for later in ("range=6h&topic=sms.*", f"dueFrom={now() + HOUR}&dueTo={now() + 2 * HOUR}"):
        page.goto(f"{world.url}#/timeline?{later}")
        expect(main).to_contain_text("Overdue messages, and those due before this range, are excluded.")
        expect(main).to_contain_text("No message falls due in this range.")


def test_a_topic_gets_a_limit_of_its_own_beside_what_its_policy_sets(pages: Pages, world: World) -> None:
    world.service.http.put("/v1/policies/shared", json={"match": "alone.*", "pending": 77}).raise_for_status()
    page = pages.open(f"{world.url}#/topics/alone.one")
    page.get_by_role("button", name="Limit this topic").click()
    expect(dialog(page).get_by_label("Pattern")).to_have_value("alone.one")
    dialog(page).get_by_role("group", name="Limits").get_by_label("Rate", exact=True).fill("3")
    dialog(page).get_by_role("button", name="Save").click()
    done(page, "The policy is in force")
    expect(page.get_by_role("main")).to_contain_text("3/s for each topic")
    policy = world.get("/v1/topics/alone.one")["policy"]
    assert (policy["name"], policy["rate"], policy["pending"], policy["order"]) == ("alone.one", 3, 77, 99)
    page.get_by_role("button", name="Limit this topic").click()
    expect(dialog(page)).to_contain_text("Change the policy alone.one")


def test_consumer_groups_have_their_lag_and_the_program_to_receive(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/consumers?match=nobody.*")
    expect(page.get_by_text("No topic matches.")).to_be_visible()
    page.goto(f"{world.url}#/consumers")
    ids = world.schedule("received.here", 3, delayTime=0)
    eventually(
        lambda: all(world.get(f"/v1/messages/{id}")["state"] == "delivered" for id in ids), "all are in the stream"
    )
    asked = {"group": "mail", "max": 1, "lease": "1h"}
    received = world.service.http.post("/v1/topics/received.here:receive", json=asked).json()["messages"]
    page.goto(f"{world.url}#/consumers?match=received.*")
    row = page.get_by_role("row").filter(has_text="mail")
    expect(row.get_by_role("cell").nth(2)).to_have_text("3")
    expect(row).to_contain_text(f"{received[0]['id']} Leased")
    row.get_by_role("link", name="received.here").click()
    expect(page.get_by_role("heading", name="received.here", level=1)).to_be_visible()
