"""What a page shows while something is wrong with the clock, the API, or Redis."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.console.world import HOUR, World
from tests.support.browser import MIDDAY, Pages, load, settle
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Chromium logs these answers as errors, and these tests provoke them.
AWAY = r"ERR_CONNECTION|ERR_FAILED|ERR_EMPTY_RESPONSE|status of 50[03]"
#: Each of these answers takes longer than the time from one refresh to the next.
_SLOW = """\
const asked = fetch;
globalThis.fetch = async (path, init) => {
  const answer = await asked(path, init);
  if (/v1.(queues|messages:count)/.test(String(path))) await new Promise((over) => setTimeout(over, 2_500));
  return answer;
};
"""
FRESH = re.compile(r"As of (now|[0-9] sec ago)")


def test_ages_follow_the_clock_of_the_server(pages: Pages, world: World) -> None:
    for hours in (-3, 3):
        page = pages.open(f"{world.url}#/overview", clock=hours * HOUR, zone="Asia/Kathmandu")
        expect(page.get_by_role("contentinfo")).to_contain_text(FRESH)
        assert page.evaluate("Math.round((Date.now() - performance.timeOrigin) / 3_600_000)") == hours  # it is off
        expect(page.get_by_role("main")).not_to_contain_text(re.compile(r"\b[2-9] hr"))


def test_a_time_of_today_has_its_day_from_midnight_on(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/messages?topic=sms.*", zone=MIDDAY, fresh=True, accepts=[AWAY])
    page.get_by_label("Refresh").select_option("off")
    shown = page.get_by_role("main").locator("tbody time").first
    expect(shown).to_have_text(re.compile(r"^\d\d:"))
    page.clock.install()
    page.reload()
    expect(shown).to_have_text(re.compile(r"^\d\d:"))
    page.route("**/v1/*", lambda route: route.abort())  # it tells the time
    page.clock.fast_forward(24 * HOUR)
    page.clock.run_for(5_000)
    expect(shown).to_have_text(re.compile(r"^\d\d/\d\d/\d{4} "))


def test_a_page_waits_for_the_api_and_redis_and_shows_how_old_its_figures_are(pages: Pages, own_world: World) -> None:
    page = pages.open(f"{own_world.url}#/overview", zone=MIDDAY, accepts=[AWAY])
    footer = page.get_by_role("contentinfo")
    expect(footer).to_contain_text(FRESH)
    own_world.service.api.kill()
    expect(footer).to_contain_text("Outdated: as of")
    expect(footer).to_contain_text("The API does not answer.")
    own_world.service.api.start()
    expect(footer).to_contain_text(FRESH)
    expect(footer).not_to_contain_text("Not fresh")
    own_world.valkey.kill()
    expect(footer).to_contain_text(re.compile(r"Outdated: as of \d\d:\d\d:\d\d"))
    own_world.valkey.start()
    expect(footer).to_contain_text(FRESH)
    expect(footer).not_to_contain_text("Not fresh")


def test_a_page_whose_file_is_gone_is_loaded_again(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/overview", accepts=["status of 404"])
    settle(page)
    page.route("**/pages/audit.js", lambda route: route.fulfill(status=404))
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("its version has changed")
    page.unroute("**/pages/audit.js")
    page.get_by_role("button", name="Reload the console").click()
    expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()


def sign_in(answer: dict[str, Any], route: Route) -> None:
    route.fulfill(content_type="text/html", body="<h1>Sign in</h1>", **answer)


def test_the_answer_of_a_proxy_is_not_taken_for_the_api(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/queues", accepts=["status of 401"])
    footer = page.get_by_role("contentinfo")
    for answer in ({"status": 200}, {"status": 401}, {"status": 302, "headers": {"location": "/"}}):
        expect(footer).to_contain_text(FRESH)
        settle(page)
        page.route("**/v1/*", partial(sign_in, answer))
        expect(footer).to_contain_text("Outdated: as of")
        expect(footer).to_contain_text("The answer is not from the API")
        page.unroute("**/v1/*")
        expect(footer).not_to_contain_text("Not fresh")


def test_an_answer_that_takes_longer_than_the_refresh_is_shown(pages: Pages, own_world: World) -> None:
    page = pages.open(f"{own_world.url}#/queues")
    page.get_by_label("Refresh").select_option("2")
    page.add_init_script(_SLOW)
    page.reload()
    main = page.get_by_role("main")
    expect(main).to_contain_text(FRESH)
    own_world.schedule("story.slow")
    page.goto(f"{own_world.url}#/messages?state=scheduled,due,inFlight,retrying")
    expect(main).to_contain_text("Matching messages in all: 1")
    own_world.schedule("story.slow")
    expect(main).to_contain_text("All matches: 2.")
    expect(main).to_contain_text("Matching messages in all: 2")


def test_a_page_is_not_fresh_if_a_part_of_it_is_not(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/no-such-page", accepts=[AWAY])
    main = page.get_by_role("main")
    for place, path in (
        ("topics?match=sms.*", "v1/policies"),
        ("messages/unpaid-0", "v1/routes"),
        ("messages/unpaid-0", "v1/topics/*"),
    ):
        load(page, f"{world.url}#/{place}")
        expect(main).to_contain_text(FRESH)
        page.route(f"**/{path}", lambda route: route.abort())
        page.get_by_role("button", name="Refresh now").click()
        expect(main).to_contain_text("Outdated: as of")
        page.unroute(f"**/{path}")
        page.get_by_role("button", name="Refresh now").click()
        expect(main).not_to_contain_text("Not fresh")


def test_an_action_without_an_answer_may_have_been_done(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/messages/unpaid-0", accepts=[AWAY])
    page.route("**/v1/messages:cancel", lambda route: route.abort())
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_contain_text("The API does not answer.")
    expect(dialog).to_contain_text("The change may have been made")


def test_a_page_waits_for_the_api_and_appears_by_itself_and_a_hidden_one_asks_nothing(
    pages: Pages, world: World
) -> None:
    page = pages.open(world.url, fresh=True, accepts=[AWAY])
    settle(page)
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route("**/v1/me", refuse)
    page.add_init_script("Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true })")
    page.clock.install()
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("The API does not answer.")
    page.clock.run_for(60_000)
    assert len(asked) == 1
    with page.expect_request("**/v1/me"):
        page.evaluate("""() => {
          Object.defineProperty(document, 'visibilityState', { value: 'visible' });
          document.dispatchEvent(new Event('visibilitychange'));
        }""")
    page.unroute("**/v1/me")
    page.clock.run_for(60_000)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_a_broken_page_is_drawn_again_with_another_view(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/overview", accepts=["TypeError"])
    settle(page)
    page.route("**/v1/forecast?*", lambda route: route.fulfill(json={"buckets": 1}))
    page.evaluate("location.hash = '#/timeline'")
    expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("This page has failed")
    page.unroute("**/v1/forecast?*")
    page.evaluate("location.hash = '#/timeline?range=1h'")
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()


def test_bars_of_one_topic_are_never_shown_as_those_of_another(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/timeline?range=6h", accepts=[AWAY])
    bars = page.get_by_role("main").get_by_text("In the highest bar")
    expect(bars).to_be_visible()
    held: list[Route] = []
    page.route("**/v1/forecast?*", lambda route: held.append(route))
    page.get_by_label("Topic or pattern").fill("sms.*")
    page.get_by_label("Topic or pattern").press("Enter")
    expect(bars).to_have_count(0)
    eventually(
        lambda: page.title() and any("topic=sms" in one.request.url for one in held), "it asks for them, not for all"
    )
    for one in held:
        one.continue_()
    expect(bars).to_be_visible()


def test_old_bars_stay_and_show_their_age(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/timeline?range=15m", fresh=True, accepts=[AWAY])
    main = page.get_by_role("main")
    expect(main.get_by_text("In the highest bar")).to_be_visible()
    page.clock.install()
    page.route("**/v1/*", lambda route: route.abort())
    with page.expect_request(lambda request: "/v1/forecast" in request.url):
        page.clock.run_for(30_000)  # other bars begin by now
    expect(main).to_contain_text("Outdated: as of")
    expect(main.get_by_text("In the highest bar")).to_be_visible()
