"""The overview with its findings, the queues, and the audit."""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from delayq import Client
from delayq.base.clock import SystemClock
from delayq.care.resharding import reshard
from tests.console.world import MARKUP, PARKED, World
from tests.support.browser import MIDDAY, Pages, too_wide, violations
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]


#: The figures of the overview, and their lists.
FIGURES: Final = {
    "Due": "messages",
    "Scheduled": r"messages\?state=scheduled%2Cretrying$",
    "Held": r"messages\?state=held$",
    "Dead letters": "dead-letters$",
    "Live nodes": r"queues\?see=nodes$",
}


def main(page: Page) -> Locator:
    return page.get_by_role("main")


def test_a_finding_says_how_bad_it_is_and_since_when_and_where_to_read_on(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/overview", zone=MIDDAY)
    finding = page.get_by_role("listitem").filter(has_text="the target of route partners has refused messages")
    expect(finding).to_contain_text("Warning:")
    expect(finding).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d \(.* ago\)"))
    finding.get_by_role("link", name="What to do").click()
    expect(page.get_by_role("heading", name="DelayqCircuitOpen", level=1)).to_be_visible()
    expect(main(page).get_by_role("listitem").filter(has_text="Mend:")).to_be_visible()
    main(page).get_by_role("link", name="DelayqRedisDown").click()
    expect(page.get_by_role("heading", name="DelayqRedisDown", level=1)).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    finding.get_by_role("link", name="Parked messages").click()
    expect(page).to_have_url(f"{world.url}#/messages?state=parked")


def test_a_figure_of_the_overview_has_its_age_and_leads_to_its_list(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/overview")
    for figure, place in FIGURES.items():
        shown = page.locator(".figure").filter(has=page.get_by_text(figure, exact=True))
        expect(shown).to_contain_text(re.compile(r"(now|\d+ sec ago)$"))
        shown.get_by_role("link").click()
        expect(page).to_have_url(re.compile(rf"{re.escape(world.url)}#/{place}"))
        if figure == "Due":
            expect(page.get_by_role("table")).to_contain_text("slow.reports-0")
        page.goto(f"{world.url}#/overview")


def test_dead_letters_and_pauses_are_findings_and_nothing_is_green_then(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/overview")
    found = {one["code"]: one["severity"] for one in world.get("/v1/status")["findings"]}
    assert (found["deadLetters"], found["paused"]) == ("warning", "info")
    dead = page.locator(".finding.warning").filter(has_text="dead letters wait to be redriven")
    dead.get_by_role("link", name="Dead letters").click()
    expect(page).to_have_url(f"{world.url}#/dead-letters")
    page.goto(f"{world.url}#/overview")
    expect(page.locator(".finding.info")).to_contain_text("Information:")
    expect(page.locator(".well")).to_have_count(0)
    assert violations(page) == []


def test_a_percentile_above_all_that_is_measured_is_more_than_that(pages: Pages, world: World) -> None:
    def late(route: Route) -> None:
        told = route.fetch().json()
        slots = len(told["traffic"]["delivered"])
        told["traffic"] |= {
            "overMs": 600_000,
            "delivered": [0.1] * slots,
            "p50Ms": [5.0] * slots,
            "p99Ms": [None] * slots,
        }
        told["traffic"]["total"] = {"delivered": 0.1, "p50Ms": 5.0, "p99Ms": None}
        route.fulfill(json=told)

    page = pages.open(f"{world.url}#/no-such-page")
    page.route("**/v1/overview", late)
    page.goto(f"{world.url}#/overview")
    expect(main(page)).to_contain_text("Lateness: p50 5 ms, p99 more than 10 min.")
    page.get_by_text("As a table").nth(1).click()
    cells = page.get_by_role("region", name="Lateness").get_by_role("cell")
    expect(cells.nth(1)).to_have_text("more than 10 min")


def test_no_findings_and_no_answer_are_told_apart(pages: Pages, own_world: World) -> None:
    page = pages.open(f"{own_world.url}#/overview", accepts=["ERR_FAILED"])
    expect(main(page)).to_contain_text("All is well")
    page.route("**/v1/overview", lambda route: route.abort())
    expect(main(page)).to_contain_text("The current problems are unknown: The API does not answer.")
    expect(main(page)).not_to_contain_text("All is well")
    assert violations(page) == []
    page.unroute("**/v1/overview")
    expect(main(page)).to_contain_text("All is well")


def test_an_unknown_figure_is_a_dash_and_a_gap_in_the_charts(pages: Pages, world: World) -> None:
    def unknown(route: Route) -> None:
        told = route.fetch().json()
        told["held"]["count"] = None
        told["traffic"]["complete"] = False
        told["traffic"]["delivered"][0] = None
        route.fulfill(json=told)

    page = pages.open(f"{world.url}#/no-such-page")
    page.route("**/v1/overview", unknown)
    page.goto(f"{world.url}#/overview")
    held = page.locator(".figure").filter(has=page.get_by_text("Held", exact=True))
    expect(held.locator(".value")).to_have_text("–")
    expect(main(page)).to_contain_text("Not every live node has reported")
    page.get_by_text("As a table").first.click()
    expect(page.get_by_role("region", name="Delivered per second").get_by_role("cell").first).to_have_text("–")


def test_a_link_of_a_finding_keeps_the_focus_while_the_text_changes(pages: Pages, world: World) -> None:
    number = 0

    def counting(route: Route) -> None:
        nonlocal number
        number += 1
        told = route.fetch().json()
        told["findings"] = [
            {"severity": "warning", "code": "late", "text": f"{number} {MARKUP}", "queue": 3, "runbook": "r"}
        ]
        route.fulfill(json=told)

    page = pages.open(f"{world.url}#/no-such-page")
    page.route("**/v1/overview", counting)
    page.goto(f"{world.url}#/overview")
    link = page.get_by_role("link", name="Queue 3")
    link.focus()
    seen = number
    expect(main(page)).to_contain_text(f"Warning: {seen + 1} {MARKUP}")
    expect(link).to_be_focused()


def test_keys_walk_the_queues_and_links_lead_to_nodes_and_routes(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/queues")
    expect(page.get_by_role("region", name="Queues").get_by_role("row")).to_have_count(17)
    for key in "jjj":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{world.url}#/queues?queue=2")
    expect(page.get_by_role("heading", name="Queue 2")).to_be_focused()
    (queue,) = (one for one in world.get("/v1/queues")["queues"] if one["queue"] == 2)
    expect(page.get_by_role("code").filter(has_text=queue["epoch"])).to_be_visible()
    expect(page.get_by_role("list", name="Queues by head lateness")).to_contain_text("on time")
    page.get_by_role("link", name=queue["owner"]).first.click()
    expect(page.get_by_role("heading", name="Nodes", exact=True)).to_be_focused()
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("0–15 (16)")
    page.goto(f"{world.url}#/queues?queue=99")
    expect(main(page)).to_contain_text("There is no queue 99.")
    page.goto(f"{world.url}#/queues?node=%3Cb%3E%2F%3F%23&see=nodes")
    expect(main(page)).to_contain_text("Node <b>/?# has not reported within the last hour.")
    expect(main(page)).to_contain_text("No queue matches.")
    page.goto(f"{world.url}#/queues?see=routes")
    expect(page.get_by_role("heading", name="Routes")).to_be_focused()
    row = page.get_by_role("region", name="Routes").get_by_role("row").filter(has_text="partners")
    expect(row).to_contain_text("open")
    expect(row).to_contain_text("we are closed")
    expect(row.get_by_role("link", name=f"{PARKED}")).to_have_attribute("href", "#/messages?state=parked")


def test_a_route_has_its_deliveries_per_second_since_the_page_was_opened(pages: Pages, own_world: World) -> None:
    page = pages.open(f"{own_world.url}#/queues?see=nodes", width=390)
    routes = page.get_by_role("region", name="Routes")
    story = routes.get_by_role("row").filter(has=page.get_by_text("story", exact=True))
    rate = story.locator("td[data-label='Delivered per second']")
    expect(rate).to_have_text("0")  # each node has reported twice, and nothing went out
    chart = page.get_by_role("figure").filter(has_text="story: delivered per second")
    expect(chart).to_have_count(0)
    own_world.schedule("story.rates", 20, delayTime=0)
    expect(chart).to_be_visible()  # once drawn, it stays
    chart.get_by_text("As a table").click()
    expect(chart.get_by_role("cell").filter(has_text=re.compile("[1-9]")).first).to_be_visible()
    assert too_wide(page) == []
    assert violations(page) == []
    page.goto(f"{own_world.url}#/topics/story.rates")
    expect(page.get_by_role("heading", name="Deliveries of route story")).to_be_visible()
    expect(main(page)).to_contain_text(re.compile(r"[\d.]+ per second now, of all topics of the route"))
    expect(chart).to_be_visible()
    assert too_wide(page) == []
    assert violations(page) == []


def test_how_far_a_reshard_is_can_be_seen(pages: Pages, own_world: World) -> None:
    page = pages.open(f"{own_world.url}#/queues")
    expect(page.get_by_role("heading", name="Nodes", exact=True)).to_be_visible()
    expect(page.get_by_role("progressbar")).to_have_count(0)
    (id,) = own_world.schedule("orders.unpaid")
    with Client(own_world.valkey.url) as client:
        assert [one.step for one in reshard(client.store, 4, SystemClock())] == ["list", "own", "close", "keep"]
    eventually(lambda: len(own_world.get("/v1/queues")["queues"]) == 20, "the API knows the new queues")
    page.get_by_role("button", name="Refresh now").click()
    expect(page.get_by_role("progressbar", name="Reshard")).to_have_attribute("value", "15")
    expect(main(page)).to_contain_text(
        "Empty queues of older layouts: 15 of 16. Messages in the others: 1, including dead letters: 0."
    )
    own_world.service.http.delete(f"/v1/messages/{id}").raise_for_status()
    page.get_by_role("button", name="Refresh now").click()
    expect(page.get_by_role("progressbar", name="Reshard")).to_have_attribute("value", "16")


def test_the_audit_is_asked_by_the_address_and_by_its_fields(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/audit?action=cancel&topic=orders.*")
    rows = page.get_by_role("region", name="Audit").get_by_role("row")
    act = rows.filter(has_text="a test of ours")  # which cancelled messages of several queues
    expect(act).to_have_count(1)
    act.get_by_role("button", name="more").click()
    expect(act).to_contain_text("unpaid-100")
    expect(act).to_contain_text("unpaid-900")
    page.get_by_label("Id of a message").fill("unpaid-300")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(2)
    expect(page).to_have_url(f"{world.url}#/audit?id=unpaid-300&topic=orders.*&action=cancel")
    expect(page.get_by_label("Id of a message")).to_be_focused()
    page.get_by_role("link", name="Show all").click()
    expect(page.get_by_label("Id of a message")).to_have_value("")
    page.get_by_label("Before").fill("2020-01-31T08:00")
    page.keyboard.press("Enter")
    expect(main(page)).to_contain_text("No manual change matches.")
    assert "to=2020-01-31T08%3A00%3A00.000Z" in page.url


def test_the_audit_goes_on_page_by_page_and_shows_names_as_they_are(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/no-such-page")
    page.route(
        "**/v1/audit*", lambda route: route.continue_(url=re.sub(r"\?|$", "?limit=2&", route.request.url, count=1))
    )
    page.goto(f"{world.url}#/audit")
    rows = page.get_by_role("region", name="Audit").locator("tbody tr")
    more = page.get_by_role("button", name="Show more")
    expect(rows).to_have_count(2)
    more.click()
    expect(rows).to_have_count(4)
    expect(more).to_be_focused()
    page.goto(f"{world.url}#/audit?action=pause")
    page.get_by_role("link", name=MARKUP).click()
    expect(page.get_by_label("Actor")).to_have_value(MARKUP)
    assert violations(page) == []
