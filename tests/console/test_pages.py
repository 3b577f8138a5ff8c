"""Every page, with messages in every state: wide and narrow, light and dark, in both languages."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.world import World
from tests.support.browser import Pages, load, settle, too_wide, violations

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console")]

#: Places, which stand behind the # of the address. One test visits the places of a line.
PLACES: Final = (
    ("overview", "timeline"),
    ("messages?limit=50", "messages?find=order-17"),
    ("messages?topic=orders.*&state=scheduled&limit=50", "messages/unpaid-0", "messages/unpaid-100"),
    ("messages/billing.receipt-1", "messages/partners.orders-1", "messages/crm.contacts-0"),
    ("messages/sms.marketing-1", "messages/slow.reports-1", "messages/orders.paid-1"),
    ("messages/nobody-knows-it", "topics?match=billing.*", "topics/sms.marketing", "topics/orders.unpaid"),
    ("queues", "dead-letters"),
    ("audit", "no-such-page"),
)
#: Dialogs and what unfolds: the place, and the button or the text that opens it, maybe after another one of a narrow page.
#: One test opens those of a line.
OPENED: Final = (
    (
        ("overview", "button", "Pages > Keys"),
        ("overview", "text", "Pages > View"),
        ("overview", "text", "As a table"),
        ("messages?limit=50", "text", "Filter > More filters"),
    ),
    (
        ("messages/unpaid-0", "button", "Cancel"),
        ("messages/unpaid-0", "button", "Reschedule"),
        ("messages/sms.marketing-1", "button", "Deliver now"),
        ("messages/billing.refund-1", "button", "Redrive"),
        ("dead-letters", "button", "Discard …"),
    ),
    (
        ("topics?match=sms.*", "button", "Pause"),
        ("topics?match=sms.*", "button", "Send a test message"),
        ("messages/unpaid-0", "text", "Read this message by a program"),
        ("topics?match=sms.*", "button", "New policy"),
        ("topics?match=mail.*", "button", "Change"),
        ("topics/sms.marketing", "button", "Resume"),
    ),
)
#: Chromium logs a 404. The console first looks for an id when it gets a business key.
NOT_FOUND: Final = ("404 .*/v1/messages/(nobody-knows-it|order-17)",)


@pytest.mark.parametrize("places", PLACES, ids=" ".join)
def test_a_page_is_accessible_and_fits_wide_and_narrow_light_and_dark(
    pages: Pages, world: World, places: tuple[str, ...]
) -> None:
    page = pages.open(f"{world.url}#/no-such-page", width=320, accepts=NOT_FOUND)
    for place in places:
        page.set_viewport_size({"width": 320, "height": 800})
        page.emulate_media(color_scheme="dark")
        load(page, f"{world.url}#/{place}")
        assert violations(page) == [], place
        assert too_wide(page) == [], place
        page.set_viewport_size({"width": 1440, "height": 900})
        page.emulate_media(color_scheme="light")
        assert violations(page) == [], place
        assert too_wide(page) == [], place


@pytest.mark.parametrize("half", [0, 1])
def test_every_page_fits_in_chinese(pages: Pages, world: World, half: int) -> None:
    page = pages.open(f"{world.url}#/no-such-page", width=320, locale="zh-CN", accepts=NOT_FOUND)
    places = [place for line in PLACES for place in line]
    for place in places[half::2]:
        load(page, f"{world.url}#/{place}")
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        assert too_wide(page) == [], place


@pytest.mark.parametrize("opened", OPENED)
def test_a_dialog_is_accessible_and_fits(pages: Pages, world: World, opened: tuple[tuple[str, str, str], ...]) -> None:
    page = pages.open(f"{world.url}#/no-such-page", width=320)
    for place, kind, name in opened:
        load(page, f"{world.url}#/{place}")
        click(page, kind, name)
        settle(page)
        assert violations(page) == [], name
        page.emulate_media(color_scheme="dark")
        assert violations(page, "color-contrast") == [], name
        page.emulate_media(color_scheme="light")
        assert too_wide(page) == [], name
        if kind == "button":
            dialog = page.get_by_role("dialog")
            assert dialog.evaluate("(one) => one.scrollWidth <= one.clientWidth"), name


def click(page: Page, kind: str, names: str) -> None:
    *before, name = names.split(" > ")
    for one in before:
        page.get_by_text(one, exact=True).first.click()
    if kind == "text":
        page.get_by_text(name, exact=True).first.click()
    else:
        page.get_by_role("button", name=name).first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
