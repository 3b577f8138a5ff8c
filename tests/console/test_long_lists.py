"""Lists of a thousand rows: the page draws the first part at once, the rest soon after, and removes none of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.world import AnotherApi, World
from tests.support.browser import Pages, settle

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: One row less than a page: a full page may name a next page that is empty.
MANY: Final = 999
#: An API whose searches may take long: else it ends each answer after 200 ms, and a list comes in several.
PATIENT: Final = """
from api.__main__ import main
from delayq.client.looking import search

search.SECONDS = 60
raise SystemExit(main())
"""
#: Rows of the first frame.
FIRST: Final = 50
#: Records in `seen` the number of rows after each change of the page.
WATCH: Final = """() => {
  globalThis.seen = [];
  new MutationObserver(() => {
    const rows = document.querySelectorAll("main tbody tr").length;
    if (rows !== seen.at(-1)) seen.push(rows);
  }).observe(document.body, { subtree: true, childList: true });
}"""
#: Holds each frame that the page requests until the test calls `goOn`.
HOLD: Final = """() => {
  const held = [];
  const real = requestAnimationFrame;
  globalThis.requestAnimationFrame = (act) => held.push(act);
  globalThis.goOn = () => {
    globalThis.requestAnimationFrame = real;
    held.forEach((act) => real(act));
  };
}"""


@pytest.fixture(scope="module")
def api(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnotherApi]:
    """An API that returns all that it finds in one answer."""
    made = AnotherApi(world, tmp_path_factory.mktemp("patient"))
    made.service.api.command = [sys.executable, "-c", PATIENT]
    with made:
        yield made


@pytest.fixture(scope="module")
def list_of_many(world: World) -> str:
    """The place of messages that have a key in common."""
    world.schedule("many.rows", MANY, keys=["many-rows"])
    return f"messages?key=many-rows&limit={MANY + 1}"


def begin(pages: Pages, api: AnotherApi, script: str) -> Page:
    """A page that runs the script before it draws a list."""
    page = pages.open(f"{api.url}#/no-such-page")
    settle(page)
    page.evaluate(script)
    return page


def go(page: Page, place: str) -> None:
    page.evaluate("(place) => { location.hash = place; }", f"#/{place}")


def test_a_long_list_comes_in_parts_and_a_refresh_moves_nothing(
    pages: Pages, api: AnotherApi, list_of_many: str
) -> None:
    page = begin(pages, api, WATCH)
    go(page, list_of_many)
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(MANY)
    seen = [count for count in page.evaluate("seen") if count]
    assert seen[0] == FIRST
    assert len(seen) > 3
    assert seen == sorted(seen)
    last = rows.last.get_by_role("link").first.inner_text()
    assert page.evaluate("(text) => find(text, true)", last)
    expect(rows.last).to_be_in_viewport()
    page.keyboard.press("j")
    page.evaluate("() => scrollTo(0, document.body.scrollHeight / 2)")
    place = page.evaluate("scrollY")
    assert place > 0
    page.evaluate(WATCH)
    again = page.get_by_role("button", name="Refresh now")
    with page.expect_response(lambda answer: "/v1/messages?" in answer.url):
        again.dispatch_event("click")
    expect(again).to_have_attribute("aria-busy", "false")
    expect(rows.first).to_be_focused()
    assert set(page.evaluate("seen")) <= {MANY}
    assert page.evaluate("scrollY") == place


def test_keys_and_selection_are_right_while_rows_are_still_to_come(
    pages: Pages, api: AnotherApi, list_of_many: str
) -> None:
    page = begin(pages, api, HOLD)
    go(page, list_of_many)
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(FIRST)
    expect(page.get_by_role("status").filter(has_text=f"All matches: {MANY}")).to_be_visible()
    page.get_by_role("checkbox", name="Select all rows shown").check()
    expect(page.get_by_role("button", name=f"Cancel {MANY} messages")).to_be_enabled()
    rows.nth(FIRST - 1).focus()
    page.keyboard.press("j")
    expect(rows.nth(FIRST - 1)).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_role("button", name=f"Cancel {MANY - 1} messages")).to_be_enabled()
    page.evaluate("goOn()")
    expect(rows).to_have_count(MANY)
    expect(rows.nth(FIRST - 1)).to_be_focused()
    expect(page.locator("main tbody").get_by_role("checkbox", checked=True)).to_have_count(MANY - 1)
    page.keyboard.press("j")
    expect(rows.nth(FIRST)).to_be_focused()
    id = rows.nth(FIRST).get_by_role("link").first.inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(id)
