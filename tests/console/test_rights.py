"""Who may see and do what: with a key, without one, with one that is over, and from another site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from api.auth.caller import Caller
from api.auth.sessions import COOKIE, LASTS, Sessions
from delayq.embedded.processes import LOCALHOST
from testbed.chromium import REBOUND
from tests.console.test_pages import settle
from tests.console.world import AnotherApi, World, now
from tests.support.browser import Pages, too_wide, violations

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Chromium tells each of these answers as an error: they are what these tests are about.
REFUSED: Final = r"status of (401|403|429)"
#: What buttons are called that change something.
ACTS: Final = re.compile(r"Cancel|Deliver|Move|Put back|Delete|Pause|Resume|policy|Change")
#: What a hand can try that may only read.
CALLS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("POST", "v1/messages", {"topic": "t", "delayTime": 1000}),
    ("POST", "v1/messages:batch", {"messages": [{"topic": "t", "delayTime": 1000}]}),
    ("DELETE", "v1/messages/unpaid-0", None),
    ("PATCH", "v1/messages/unpaid-0", {"delayTime": 1000}),
    ("POST", "v1/messages/unpaid-0:deliverNow", {}),
    ("POST", "v1/messages:deliverNow", {"ids": ["unpaid-0"]}),
    ("POST", "v1/messages:cancel", {"ids": ["unpaid-0"]}),
    ("POST", "v1/topics:pause", {"match": "orders.*"}),
    ("POST", "v1/topics:resume", {"match": "sms.*"}),
    ("PUT", "v1/policies/p", {"match": "orders.*"}),
    ("DELETE", "v1/policies/mail", None),
    ("POST", "v1/dead-letters:redrive", {"ids": ["billing.refund-0"]}),
    ("DELETE", "v1/dead-letters/billing.refund-0", None),
)
#: The status of an answer, and of each result in it.
ASK: Final = """async ([method, path, body]) => {
  const headers = body === null ? {} : { "content-type": "application/json" };
  const answer = await fetch(`../${path}`, { method, headers, body: body === null ? undefined : JSON.stringify(body) });
  const told = answer.status === 204 ? {} : await answer.json();
  return [answer.status, ...(told.results ?? []).map((one) => one.status)];
}"""


def log_in(page: Page, key: str) -> None:
    page.get_by_label("Key of the API").fill(key)
    page.get_by_role("button", name="Log in").click()


def enter(pages: Pages, api: AnotherApi, name: str, place: str = "overview", *accepts: str) -> Page:
    """A page of somebody who has logged in."""
    page = pages.open(f"{api.url}#/{place}", accepts=[REFUSED, *accepts])
    log_in(page, api.keys.texts[name])
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    return page


def say_what_is_left(page: Page, why: str) -> None:
    """The page has nothing but the login, and says why."""
    expect(page.get_by_role("alert")).to_contain_text(why)
    expect(page.get_by_role("navigation")).to_have_count(0)
    expect(page.get_by_label("Key of the API")).to_be_visible()


@pytest.mark.parametrize("width", [1440, 320])
def test_without_a_key_there_is_the_login_alone(pages: Pages, keyed: AnotherApi, width: int) -> None:
    page = pages.open(keyed.url, width=width, accepts=[REFUSED])
    expect(page.get_by_label("Key of the API")).to_be_focused()
    expect(page.get_by_role("navigation")).to_have_count(0)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == []
    assert too_wide(page) == []


def test_a_session_is_kept_where_no_script_finds_it(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "boss", "topics")
    expect(page.get_by_role("heading", name="Topics", level=1)).to_be_visible()
    kept = page.evaluate(
        "[document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage }), location.href].join()"
    )
    assert keyed.keys.texts["boss"].rpartition("_")[2] not in kept and COOKIE.decode() not in kept
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    page.reload()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Key of the API")).to_be_visible()
    assert page.context.cookies() == []


def test_all_tabs_show_whom_they_act_for(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "boss", "topics")
    other = page.context.new_page()
    other.goto(f"{keyed.url}#/topics")
    expect(other.get_by_role("banner")).to_contain_text("boss")
    page.get_by_role("button", name="Log out").click()
    expect(other.get_by_label("Key of the API")).to_be_visible()
    expect(page.get_by_label("Key of the API")).to_be_visible()
    log_in(page, keyed.keys.texts["reader"])
    expect(other.get_by_role("banner")).to_contain_text("reader")
    expect(other.get_by_role("button", name="Pause by a pattern")).to_have_count(0)


def test_who_is_not_logged_out_is_told_so(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "boss", "topics", "ERR_FAILED")
    page.route("**/console/session*", lambda route: route.abort())
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("alert")).to_contain_text("The API does not answer. You are not logged out")
    page.unroute("**/console/session*")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Key of the API")).to_be_visible()


@pytest.mark.parametrize(("name", "why"), [("program", "not for the console"), ("nobody", "key")])
def test_a_key_that_may_not_come_in_is_told_why(pages: Pages, keyed: AnotherApi, name: str, why: str) -> None:
    page = pages.open(keyed.url, accepts=[REFUSED])
    log_in(page, keyed.keys.texts.get(name, "dq_0123456789ab_nothing"))
    say_what_is_left(page, why)


def test_without_https_there_is_no_session_but_on_loopback(pages: Pages, keyed: AnotherApi) -> None:
    page = pages.open(keyed.url.replace(LOCALHOST, REBOUND), accepts=[REFUSED])
    log_in(page, keyed.keys.texts["boss"])
    say_what_is_left(page, "needs HTTPS")


def test_a_session_ends_with_its_key(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "leaver")
    keyed.keys.remove("leaver")
    say_what_is_left(page, "changed or revoked")


def test_a_session_ends_by_its_time(pages: Pages, keyed: AnotherApi, world: World) -> None:
    page = enter(pages, keyed, "late")
    caller = Caller(next(key for key in keyed.keys.keys if key.name == "late"))
    over = Sessions([caller], world.valkey.url, read_only=False).begin(caller, now() - LASTS - 1)
    page.context.add_cookies([{"name": over.name.decode(), "value": over.value.decode(), "url": keyed.service.url}])
    say_what_is_left(page, "ended by its time")


def test_wrong_keys_lock_the_right_one_out(pages: Pages, keyed: AnotherApi) -> None:
    right = keyed.keys.texts["locked"]
    wrong = right[:-1] + ("a" if right[-1] != "a" else "b")
    page = pages.open(keyed.url, accepts=[REFUSED])
    expect(page.get_by_label("Key of the API")).to_be_visible()  # the lock may be over before a slow page is there
    for _ in range(10):
        assert keyed.service.http.post("/console/session", json={"key": wrong, "path": "/"}).status_code == 401
    log_in(page, right)
    say_what_is_left(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"Try again in \d"))


@pytest.mark.parametrize(
    "place",
    [
        "messages?topic=sms.*",
        "messages/unpaid-0",
        "messages/billing.refund-1",
        "topics",
        "topics/orders.unpaid",
        "dead-letters",
    ],
)
def test_who_may_only_look_is_offered_nothing_else(pages: Pages, keyed: AnotherApi, place: str) -> None:
    for name in ("boss", "reader"):
        page = enter(pages, keyed, name, place)
        settle(page)
        acts = (
            page.get_by_role("main").get_by_role("button", name=ACTS).or_(page.get_by_role("checkbox", name="Select"))
        )
        assert (acts.count() > 0) is (name == "boss")


def test_who_may_only_look_can_change_nothing_by_hand_either(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "reader")
    statuses = {f"{method} {path}": page.evaluate(ASK, [method, path, body]) for method, path, body in CALLS}
    assert {call: found for call, found in statuses.items() if found[-1] != 403} == {}


def test_a_console_that_is_read_only_changes_nothing_without_keys_either(
    pages: Pages, world: World, tmp_path: Path
) -> None:
    with AnotherApi(world, tmp_path, console="read-only") as api:
        page = pages.open(api.url, accepts=[REFUSED])
        expect(page.get_by_text("read-only")).to_be_visible()
        statuses = {f"{method} {path}": page.evaluate(ASK, [method, path, body]) for method, path, body in CALLS}
    assert {call: found for call, found in statuses.items() if found[-1] != 403} == {}


def test_whose_topics_are_few_sees_no_other(pages: Pages, keyed: AnotherApi) -> None:
    page = enter(pages, keyed, "shop", "messages/unpaid-0", "404 .*/v1/messages/sms.marketing-1")
    expect(page.get_by_role("contentinfo")).to_contain_text("This key may read orders.*:")
    settle(page)
    expect(page.get_by_role("main")).to_contain_text("orders.unpaid")
    page.goto(f"{keyed.url}#/messages/sms.marketing-1")
    expect(page.get_by_role("main").get_by_role("alert")).to_be_visible()


def elsewhere(chromium: Browser, api: AnotherApi) -> Page:
    """A page of another site, in a browser in which `boss` is logged in."""
    context = chromium.new_context()
    caller = Caller(next(key for key in api.keys.keys if key.name == "boss"))
    name, value = Sessions([caller], api.service.settings["redis_url"], read_only=False).begin(caller, now())
    url = api.service.url
    context.add_cookies([{"name": name.decode(), "value": value.decode(), "url": url, "sameSite": "Strict"}])
    page = context.new_page()
    page.goto(f"{api.service.url.replace(LOCALHOST, REBOUND)}/livez")  # of another name, so of another site
    return page


def test_another_site_can_neither_look_nor_change_anything(chromium: Browser, keyed: AnotherApi, world: World) -> None:
    page = elsewhere(chromium, keyed)
    told: Any = page.evaluate(
        """async (url) => {
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
        }""",
        keyed.service.url,
    )
    assert told == ["opaque", "refused", "refused"]
    page.evaluate(
        """(action) => {
          const form = Object.assign(document.createElement("form"), { method: "post", action });
          document.body.append(form);
          form.submit();
        }""",
        f"{keyed.service.url}/v1/topics:pause",
    )
    expect(page.locator("body")).to_contain_text("urn:delayq:problem")
    assert "csrf.*" not in [one["match"] for one in world.get("/v1/policies")["pauses"]]
    page.context.close()


def test_another_site_cannot_frame_it(chromium: Browser, keyed: AnotherApi) -> None:
    page = elsewhere(chromium, keyed)
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.evaluate(
            "(src) => document.body.append(Object.assign(document.createElement('iframe'), { src }))", keyed.url
        )
    expect(page.frame_locator("iframe").get_by_label("Key of the API")).to_have_count(0)
    page.context.close()


def test_a_name_that_leads_here_by_rebinding_shows_nothing(pages: Pages, world: World) -> None:
    url = world.url.replace(LOCALHOST, REBOUND)
    page = pages.open(url, accepts=["status of 421", "favicon.ico"])
    expect(page.locator("body")).to_contain_text("has to be called localhost")
    expect(page.get_by_role("navigation")).to_have_count(0)
