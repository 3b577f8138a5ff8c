"""When a page asks the API again, and which texts it copies."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.world import World
from tests.support.browser import Pages, settle
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

HIDE: Final = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Watch:
    """Moves the page's clock, and records the requests of the page meanwhile."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._asked: list[str] = []
        page.on("request", lambda request: self._asked.append(request.url))
        page.clock.install()
        page.reload()
        settle(page)

    def asks(self, path: str) -> bool:
        """Move the clock until the page asks for a path."""
        self._asked.clear()
        eventually(partial(self._asks_within, 1_000, path), f"it asks for {path}")
        return True

    def is_still(self, path: str) -> bool:
        """Whether the page does not ask for a path within half a minute."""
        self._flush()
        self._asked.clear()
        return not self._asks_within(30_000, path)

    def _asks_within(self, ms: int, path: str) -> bool:
        self._page.clock.run_for(ms)
        self._flush()
        return any(path in url for url in self._asked)

    def _flush(self) -> None:
        """Playwright has reported all earlier requests when this one is answered."""
        self._page.evaluate("() => fetch('../livez')")


def test_a_hidden_tab_asks_nothing(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/queues", fresh=True)
    watch = Watch(page)
    assert watch.asks("/v1/overview")
    page.evaluate(HIDE, "hidden")
    assert watch.is_still("/v1/")
    page.evaluate(HIDE, "visible")
    assert watch.asks("/v1/overview")


def test_a_list_stands_still_while_rows_are_selected_or_a_dialog_is_open(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/messages?key=order-18", fresh=True)  # the list has one page only
    watch = Watch(page)
    page.get_by_label("Refresh", exact=False).first.select_option("2")
    assert watch.asks("/v1/messages?")
    page.get_by_role("main").locator("tbody").get_by_role("checkbox").check()
    assert watch.is_still("/v1/messages?")
    page.get_by_role("button", name="Cancel 1 message").click()
    assert watch.is_still("/v1/messages?")
    page.keyboard.press("Escape")
    page.get_by_role("main").locator("tbody").get_by_role("checkbox").uncheck()
    assert watch.asks("/v1/messages?")


def test_an_id_is_copied_also_where_a_browser_has_no_clipboard_for_the_page(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/messages/partners.orders-1", permissions=["clipboard-write"])
    for clipboard in (True, False):
        page.reload()
        settle(page)
        if not clipboard:  # as it is without HTTPS
            page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        page.evaluate("() => { globalThis.setTimeout = () => 0; }")  # "Copied" stays until the test looks for it
        page.get_by_role("button", name="Copy partners.orders-1").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        page.get_by_role("searchbox").focus()
        page.keyboard.press("ControlOrMeta+V")
        expect(page.get_by_role("searchbox")).to_have_value("partners.orders-1")


def test_chosen_times_colors_and_language_are_kept(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/messages/sms.marketing-1", zone="Asia/Kathmandu")
    shown = page.get_by_role("main").locator("time").first
    local = shown.inner_text()  # the zone of the reader
    page.get_by_text("View", exact=True).click()
    page.get_by_label("Times").select_option("UTC")
    page.get_by_label("Colors").select_option("dark")
    page.get_by_label(re.compile("^Language(?! of)")).select_option("zh-CN")
    for _ in range(2):
        expect(shown).not_to_have_text(local)
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        expect(page.get_by_role("heading", name=re.compile(r"[\u4e00-\u9fff]")).first).to_be_visible()
        page.reload()
