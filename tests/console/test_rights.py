"""What the pages show to callers with other rights, and to other sites. The API's own tests show that it enforces them."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from api.auth.caller import Caller
from api.auth.sessions import COOKIE, LASTS, Sessions
from delayq.embedded.processes import LOCALHOST
from testbed.chromium import REBOUND
from tests.console.world import AnotherApi, World, now
from tests.support.browser import Pages, load, settle, too_wide, violations

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Chromium logs each of these answers as an error, and these tests provoke them.
REFUSED: Final = r"status of (401|403|429)"
#: The names of the buttons that change something.
ACTS: Final = re.compile(r"Cancel|Deliver|Reschedule|Redrive|Discard|Delete|Pause|Resume|policy|Change|Send a test")
#: Pages on which `boss` can change something.
PLACES: Final = (
    "messages?topic=sms.*",
    "messages/unpaid-0",
    "messages/billing.refund-1",
    "topics?match=sms.*",
    "topics/orders.unpaid",
    "dead-letters",
)
#: Calls of another site: how the browser answers its script.
FORGE: Final = """async (url) => {
  const body = JSON.stringify({ match: "csrf.*" });
  const ways = [
    { method: "POST", mode: "no-cors", credentials: "include", body },
    { method: "POST", credentials: "include", body, headers: { "content-type": "application/json" } },
    { credentials: "include" },
  ];
  const found = [];
  for (const way of ways) {
    const path = way.method ? "v1/topics:pause" : "v1/topics";
    found.push(await fetch(`${url}/${path}`, way).then((answer) => answer.type, () => "refused"));
  }
  return found;
}"""
SUBMIT: Final = """(action) => {
  const form = Object.assign(document.createElement("form"), { method: "post", action });
  document.body.append(form);
  form.submit();
}"""
FRAME: Final = "(src) => document.body.append(Object.assign(document.createElement('iframe'), { src }))"


def log_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()


def enter(pages: Pages, api: AnotherApi, name: str, place: str = "overview", *accepts: str) -> Page:
    """A page of a caller who has logged in, in a browser without other sessions."""
    page = pages.open(f"{api.url}#/{place}", fresh=True, accepts=[REFUSED, *accepts])
    log_in(page, api.keys.texts[name])
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    return page


def only_the_login(page: Page, why: str) -> None:
    """The page shows nothing but the login, with the reason."""
    expect(page.get_by_role("alert")).to_contain_text(why)
    expect(page.get_by_role("navigation")).to_have_count(0)
    expect(page.get_by_label("API key")).to_be_visible()


def test_a_caller_without_a_valid_key_sees_only_the_login_and_the_reason(pages: Pages, keyed: AnotherApi) -> None:
    page = pages.open(keyed.url, width=320, accepts=[REFUSED])
    expect(page.get_by_label("API key")).to_be_focused()
    expect(page.get_by_role("navigation")).to_have_count(0)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == []
    assert too_wide(page) == []
    for key, why in ((keyed.keys.texts["program"], "not for the console"), ("dq_0123456789ab_nothing", "key")):
        log_in(page, key)
        only_the_login(page, why)
    right = keyed.keys.texts["locked"]
    wrong = right[:-1] + ("a" if right[-1] != "a" else "b")
    for _ in range(10):
        assert keyed.service.http.post("/console/session", json={"key": wrong, "path": "/"}).status_code == 401
    log_in(page, right)
    only_the_login(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"Retry in \d"))
    page = pages.open(keyed.url.replace(LOCALHOST, REBOUND), accepts=[REFUSED])
    log_in(page, keyed.keys.texts["boss"])
    only_the_login(page, "needs HTTPS")


def test_a_session_is_hidden_from_scripts_and_the_same_in_all_tabs(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "boss", "topics", "ERR_FAILED")
    expect(page.get_by_role("heading", name="Topics", level=1)).to_be_visible()
    kept = page.evaluate(
        "[document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage }), location.href].join()"
    )
    assert keyed.keys.texts["boss"].rpartition("_")[2] not in kept and COOKIE.decode() not in kept
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    page.reload()
    log_out = page.get_by_role("button", name="Log out")
    expect(log_out).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{keyed.url}#/topics")
    expect(other.get_by_role("banner")).to_contain_text("boss")
    page.route("**/console/session*", lambda route: route.abort())
    log_out.click()
    expect(page.get_by_role("alert")).to_contain_text("The API does not answer. You are still logged in")
    page.unroute("**/console/session*")
    log_out.click()
    for tab in (page, other):
        expect(tab.get_by_label("API key")).to_be_visible()
    assert page.context.cookies() == []
    log_in(page, keyed.keys.texts["reader"])
    expect(other.get_by_role("banner")).to_contain_text("reader")
    expect(other.get_by_role("button", name="Pause a pattern")).to_have_count(0)


def test_a_session_ends_with_its_key_and_its_time(pages: Pages, keyed: AnotherApi, world: World) -> None:
    page = enter(pages, keyed, "leaver")
    keyed.keys.remove("leaver")
    only_the_login(page, "changed or revoked")
    page = enter(pages, keyed, "late")
    caller = Caller(next(key for key in keyed.keys.keys if key.name == "late"))
    over = Sessions([caller], world.valkey.url, read_only=False).begin(caller, now() - LASTS - 1)
    page.context.add_cookies([{"name": over.name.decode(), "value": over.value.decode(), "url": keyed.service.url}])
    only_the_login(page, "has expired")


def test_a_caller_who_may_only_read_is_offered_no_change(pages: Pages, keyed: AnotherApi) -> None:
    for name in ("boss", "reader"):
        page = enter(pages, keyed, name)
        for place in PLACES:
            load(page, f"{keyed.url}#/{place}")
            button = page.get_by_role("main").get_by_role("button", name=ACTS)
            acts = button.or_(page.get_by_role("checkbox", name="Select")).count()
            assert (acts > 0) is (name == "boss"), place


def test_a_caller_with_few_topics_sees_no_other(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "shop", "messages/unpaid-0", "404 .*/v1/messages/sms.marketing-1")
    expect(page.get_by_role("contentinfo")).to_contain_text("This key can read orders.*.")
    settle(page)
    expect(page.get_by_role("main")).to_contain_text("orders.unpaid")
    page.goto(f"{keyed.url}#/messages/sms.marketing-1")
    expect(page.get_by_role("main").get_by_role("alert")).to_be_visible()


def test_another_site_can_neither_read_nor_change_nor_frame_it(
    chromium: Browser, pages: Pages, keyed: AnotherApi, world: World
) -> None:
    context = chromium.new_context()
    caller = Caller(next(key for key in keyed.keys.keys if key.name == "boss"))
    name, value = Sessions([caller], keyed.service.settings["redis_url"], read_only=False).begin(caller, now())
    url = keyed.service.url
    context.add_cookies([{"name": name.decode(), "value": value.decode(), "url": url, "sameSite": "Strict"}])
    page = context.new_page()
    page.goto(f"{url.replace(LOCALHOST, REBOUND)}/livez")  # another name, so another site
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.evaluate(FRAME, keyed.url)
    expect(page.frame_locator("iframe").get_by_label("API key")).to_have_count(0)
    forged: Any = page.evaluate(FORGE, url)
    assert forged == ["opaque", "refused", "refused"]
    page.evaluate(SUBMIT, f"{url}/v1/topics:pause")
    expect(page.locator("body")).to_contain_text("urn:delayq:problem")
    assert "csrf.*" not in [one["match"] for one in world.get("/v1/policies")["pauses"]]
    context.close()
    page = pages.open(world.url.replace(LOCALHOST, REBOUND), accepts=["status of 421", "favicon.ico"])
    expect(page.locator("body")).to_contain_text("address it as localhost")
    expect(page.get_by_role("navigation")).to_have_count(0)
