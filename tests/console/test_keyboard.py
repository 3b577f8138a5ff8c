"""Without a mouse: keys reach everything, and the focus is visible."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.world import World
from tests.support.browser import Pages, settle

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: The pages that g and a key open.
GOES: Final = {
    "o": "Overview", "m": "Messages", "s": "Timeline", "t": "Topics", "q": "Queues and nodes", "c": "Consumers",
    "d": "Dead letters", "a": "Audit",
}  # fmt: skip
#: The element that has the focus: its tag and name, and whether its focus is visible.
FOCUS: Final = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const place = one.getBoundingClientRect();
  const seen = place.width > 0 && place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;
  const name = `${one.tagName} ${one.ariaLabel ?? one.textContent}`;
  return [name, seen && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
}"""


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the button of this name has the focus, which is visible at each step."""
    for _ in range(200):
        focused = press_tab(page)
        if focused.startswith("BUTTON") and name in focused:
            return
    raise AssertionError(f"Tab does not lead to {name}")


def press_tab(page: Page) -> str:
    page.keyboard.press("Tab")
    name, seen = page.evaluate(FOCUS)
    assert seen or name.startswith("BODY"), (name, page.evaluate("document.activeElement.outerHTML"))
    return str(name)


def test_a_message_is_found_opened_and_cancelled_by_keys(pages: Pages, world: World) -> None:
    (id,) = world.schedule("keys", keys=["by-keys-alone"])
    # The console first looks for an id.
    page = pages.open(f"{world.url}#/overview", accepts=["404 .*/v1/messages/by-keys-alone"])
    settle(page)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("by-keys-alone")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(id)
    settle(page)
    tab_to(page, "Cancel")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.get_by_label("Reason").press_sequentially("no mouse is here: / ? x j k")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("status")).to_contain_text("cancelled")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert world.get(f"/v1/messages/{id}")["state"] == "cancelled"


def test_two_keys_lead_to_each_page_and_its_heading_is_read_out(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/audit")
    settle(page)
    for key, title in GOES.items():
        # The second key must follow soon, and a busy machine may press it late: the clock stands still.
        page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.evaluate("() => { delete performance.now; }")
        expect(page.get_by_role("heading", name=title, level=1)).to_be_focused()
        expect(page).to_have_title(f"{title} · delayq")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next and previous row")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_first_tab_skips_the_menu(pages: Pages, world: World) -> None:
    page = pages.open(f"{world.url}#/topics")
    settle(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


@pytest.mark.parametrize(("width", "last"), [(390, "Pages"), (1280, "Keys")])
@pytest.mark.parametrize(
    "place", ["overview", "messages", "timeline", "topics?match=sms.*", "queues", "dead-letters", "audit"]
)
def test_the_focus_is_visible_on_every_page(pages: Pages, world: World, place: str, width: int, last: str) -> None:
    page = pages.open(f"{world.url}#/{place}", width=width)
    settle(page)
    tab_to(page, last)
    for _ in range(30):
        press_tab(page)
