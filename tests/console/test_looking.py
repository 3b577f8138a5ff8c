"""What a page does by itself: it looks while somebody looks, keeps still under the hand, and gives texts to take along."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.test_pages import settle
from tests.console.world import World
from tests.support.browser import Pages
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

HIDE: Final = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Watch:
    """Lets the page's time pass, and sees what it asks for meanwhile."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._asked: list[str] = []
        page.on("request", lambda request: self._asked.append(request.url))
        page.clock.install()
        page.reload()
        settle(page)

    def asks(self, path: str) -> bool:
        """Whether it asks for a path, once its time has passed."""
        self._asked.clear()
        eventually(partial(self._has_asked_in_a_second, path), f"it asks for {path}")
        return True

    def _has_asked_in_a_second(self, path: str) -> bool:
        self._page.clock.run_for(1_000)
        return self._has_asked(path)

    def is_still(self, path: str) -> bool:
        """Whether it never asks for a path, while half a minute passes for it."""
        self._tell_all()
        self._asked.clear()
        self._page.clock.run_for(30_000)
        self._tell_all()
        return not self._has_asked(path)

    def _has_asked(self, path: str) -> bool:
        return any(path in url for url in self._asked)

    def _tell_all(self) -> None:
        """What it has asked for by now is told before this."""
        self._page.evaluate("() => fetch('../livez')")


def test_a_tab_that_nobody_sees_asks_nothing(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/queues")
    watch = Watch(page)
    assert watch.asks("/v1/overview")
    page.evaluate(HIDE, "hidden")
    assert watch.is_still("/v1/")
    page.evaluate(HIDE, "visible")
    assert watch.asks("/v1/overview")


def test_a_list_stands_still_while_rows_are_selected_or_a_dialog_is_open(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/messages?key=order-18")  # looked up: there is no next page
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


@pytest.mark.parametrize("clipboard", [True, False])
def test_an_id_is_copied_also_where_a_browser_has_no_clipboard_for_the_page(
    pages: Pages, world: World, clipboard: bool
) -> None:
    page = pages.open(f"{world.url}#/messages/partners.orders-1", permissions=["clipboard-write"])
    settle(page)
    if not clipboard:  # as it is without HTTPS
        page.evaluate("() => Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("() => { globalThis.setTimeout = () => 0; }")  # the word stays until it is looked for
    page.get_by_role("button", name="Copy partners.orders-1").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.get_by_role("searchbox").focus()
    page.keyboard.press("ControlOrMeta+V")
    expect(page.get_by_role("searchbox")).to_have_value("partners.orders-1")


def test_what_was_chosen_is_kept(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/audit")
    page.get_by_text("View", exact=True).click()
    page.get_by_label("Colours").select_option("dark")
    page.get_by_label("Language").select_option("zh-CN")
    for _ in range(2):
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"[\u4e00-\u9fff]"))
        page.reload()
